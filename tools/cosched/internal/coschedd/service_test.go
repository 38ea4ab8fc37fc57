package coschedd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

// rig is a machine with the service. It imitates systemd, and the kernel as far as the service
// writes to it.
type rig struct {
	cosched.Host
	*coschedtest.Log
	dir    string
	events chan Event
	stop   func()

	tree  sync.Mutex // held while the imitated kernel does something atomically
	mu    sync.Mutex
	units map[string]Unit // the units that systemd has loaded
	hold  chan struct{}   // systemd does not answer until this is closed
	fails error
	wrote map[string]int // writes to a file
}

func newRig(t *testing.T) *rig {
	h, dir := coschedtest.Host(t), t.TempDir()
	r := &rig{
		Host: h, Log: &coschedtest.Log{T: t, Without: []string{dir, h.Cgroup}}, dir: dir, events: make(chan Event),
		units: map[string]Unit{}, wrote: map[string]int{},
	}
	coschedtest.Replace(t, filepath.Join(r.Cgroup, "cgroup.subtree_control"), "cpu\n")
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
	})
	return r
}

// start starts the service, and sends the event that it gets at the beginning.
func (r *rig) start() {
	r.T.Helper()
	state := filepath.Join(r.dir, "state")
	if err := os.MkdirAll(state, 0o755); err != nil {
		r.T.Fatal(err)
	}
	record, err := OpenRecord(state)
	if err != nil {
		r.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error), make(chan struct{})
	s := NewService(r.Host, r, r, record, r.log)
	go func() { done <- s.Run(ctx, r.events, nil, func() { close(ready) }) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.T.Error(err)
		}
		r.stop = nil
	}
	r.events <- Event{Reloaded: true, Path: []string{filepath.Join(r.dir, "etc"), filepath.Join(r.dir, "lib")}}
	<-ready
}

// Unit is systemd's answer.
func (r *rig) Unit(ctx context.Context, name string) (Unit, error) {
	r.mu.Lock()
	u, ok := r.units[name]
	hold, err := r.hold, r.fails
	r.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
			return r.Unit(ctx, name)
		case <-ctx.Done():
			return Unit{}, ctx.Err()
		}
	}
	if err == nil && !ok {
		err = ErrNotLoaded
	}
	return u, err
}

// Existing does the part of the kernel: children of a cgroup for which the controller is enabled in
// cgroup.subtree_control get its files.
func (r *rig) Existing(name string, enable bool) (cosched.Group, error) {
	r.tree.Lock()
	defer r.tree.Unlock()
	if _, err := os.Stat(name); err == nil && enable && name != r.Cgroup {
		rel := strings.TrimPrefix(name, r.Cgroup)
		at := r.Cgroup
		for _, part := range strings.Split(filepath.Dir(rel), "/") {
			at = filepath.Join(at, part)
			if _, err := os.Stat(filepath.Join(at, "refuses")); err == nil {
				return "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: "refused", Err: syscall.EBUSY}
			}
			control := filepath.Join(at, "cgroup.subtree_control")
			if text, _ := os.ReadFile(control); strings.Contains(string(text), "cosched") {
				continue
			}
			_ = os.WriteFile(control, []byte("cosched\n"), 0o644)
			children, _ := os.ReadDir(at)
			for _, c := range children {
				dir := filepath.Join(at, c.Name())
				if _, err := os.Stat(filepath.Join(dir, cosched.FilePreferred)); c.IsDir() && err != nil {
					for file, text := range map[string]string{cosched.FilePreferred: "", cosched.FileEffective: "", cosched.FileWeights: "100 150\n"} {
						_ = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
					}
				}
			}
		}
	}
	return r.Host.Existing(name, enable)
}

func (r *rig) write(g cosched.Group, file, value string) {
	_ = os.WriteFile(g.Path(file), []byte(value+"\n"), 0o644)
	r.mu.Lock()
	r.wrote[filepath.Base(string(g))+"/"+file]++
	r.mu.Unlock()
}

// SetHome imitates a kernel with CPUs 0 to 11.
func (r *rig) SetHome(g cosched.Group, home cosched.Home, _ bool) (string, error) {
	if _, err := os.Stat(string(g)); err != nil {
		return "", &cosched.Problem{Text: "gone", Err: err}
	}
	if len(home.CPUs) > 0 && home.CPUs[len(home.CPUs)-1] > 11 {
		return "", &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%q: names a CPU that this machine cannot have", home.Value), Err: syscall.ERANGE}
	}
	r.write(g, cosched.FilePreferred, home.Value)
	if len(home.CPUs) > 0 && home.CPUs[0] > 7 {
		return "none of these CPUs is online", nil
	}
	return "", nil
}

func (r *rig) SetWeights(g cosched.Group, w *cosched.Weights) error {
	if _, err := os.Stat(string(g)); err != nil {
		return &cosched.Problem{Text: "gone", Err: err}
	}
	value := ""
	if w != nil {
		value = w.String()
	}
	r.write(g, cosched.FileWeights, value)
	return nil
}

// file writes a unit file or drop-in below the rig's directory.
func (r *rig) file(name, text string) string {
	r.T.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.T.Fatal(err)
	}
	coschedtest.Replace(r.T, file, text)
	return file
}

// load makes systemd know a unit and its files.
func (r *rig) load(cgroup string, files ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.units[strings.TrimPrefix(filepath.Base(cgroup), "_")] = Unit{Cgroup: cgroup, Files: files}
}

// begin makes the cgroup of a unit, as systemd does when it starts, and those above it.
func (r *rig) begin(cgroup string) cosched.Group {
	r.T.Helper()
	r.tree.Lock()
	defer r.tree.Unlock()
	at := r.Cgroup
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		control, _ := os.ReadFile(filepath.Join(at, "cgroup.subtree_control"))
		at = filepath.Join(at, part)
		if _, err := os.Stat(at); err == nil {
			continue
		}
		files := map[string]string{"cgroup.subtree_control": ""}
		if strings.Contains(string(control), "cosched") {
			files = map[string]string{"cgroup.subtree_control": "", cosched.FilePreferred: "", cosched.FileEffective: "", cosched.FileWeights: "100 150\n"}
		}
		made, err := os.MkdirTemp(r.dir, "cgroup")
		for name, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(made, name), []byte(text), 0o644))
		}
		if err = errors.Join(err, os.Rename(made, at)); err != nil {
			r.T.Fatal(err)
		}
	}
	return cosched.Group(at)
}

func (r *rig) end(cgroup string) {
	r.T.Helper()
	r.tree.Lock()
	defer r.tree.Unlock()
	if err := os.Rename(filepath.Join(r.Cgroup, cgroup), filepath.Join(r.T.TempDir(), "removed")); err != nil {
		r.T.Fatal(err)
	}
}

func (r *rig) value(cgroup, file string) string {
	text, err := os.ReadFile(filepath.Join(r.Cgroup, cgroup, file))
	if err != nil {
		return "none"
	}
	return strings.TrimSpace(string(text))
}

// has waits until a cgroup has the given values.
func (r *rig) has(cgroup, home, weights string) {
	r.T.Helper()
	r.Wait(fmt.Sprintf("%s: %s, %s", cgroup, home, weights), func() bool {
		return r.value(cgroup, cosched.FilePreferred) == home && r.value(cgroup, cosched.FileWeights) == weights
	})
}

// log is the Log of the service.
func (r *rig) log(p journal.Priority, unit string, c Complaint) {
	r.Add(fmt.Sprintf("<%d>%s: %s", p, unit, c))
}

// settled waits until systemd has answered the service about a unit, which must have settings.
func (r *rig) settled(name string) { r.T.Helper(); r.Logged("<7>" + name + ": given") }

const preferring = "[Service]\nExecStart=/bin/true\n[X-Cosched]\n"

func TestTypesOfUnits(t *testing.T) {
	r := newRig(t)
	before := r.file("etc/before.service", preferring+"CPUsPreferred=llc:1\nWeights=4 1000\n")
	r.load("/system.slice/before.service", before)
	r.begin("/system.slice/before.service")
	r.start()
	r.has("/system.slice/before.service", "4-7", "4 1000")

	// Drop-ins override in systemd's order; an empty assignment resets.
	for _, tc := range []struct{ cgroup, text, dropIn, home, weights string }{
		{"/system.slice/a.service", "CPUsPreferred=auto", "", "auto", "100 150"},
		{"/system.slice/b.service", "CPUsPreferred=0-3\nWeights=100:100", "CPUsPreferred=node:1", "4-7", "100 100"},
		{"/system.slice/c.service", "CPUsPreferred=0-3\nWeights=1 1", "CPUsPreferred=\nWeights=", "none", "none"},
		{"/system.slice/system-t.slice/t@1.service", "CPUsPreferred=2", "", "2", "100 150"},
		{"/machine.slice/vm.scope", "", "CPUsPreferred=near:6", "4-7", "100 150"},
		{"/big.slice", "CPUsPreferred=0-7\nWeights=2 3", "", "0-7", "2 3"},
		{"/big.slice/big-small.slice", "CPUsPreferred=0-1", "", "0-1", "100 150"},
		{"/system.slice/_cpu.service", "CPUsPreferred=5", "", "5", "100 150"},
		{"/x.mount", "CPUsPreferred=6", "", "6", "100 150"},
	} {
		name := strings.TrimPrefix(filepath.Base(tc.cgroup), "_")
		files := []string{r.file("lib/"+name, preferring+tc.text+"\n"), r.file("etc/"+name+".d/50-cosched.conf", "[X-Cosched]\n"+tc.dropIn+"\n")}
		r.load(tc.cgroup, files...)
		r.begin(tc.cgroup)
		if tc.home != "none" {
			r.has(tc.cgroup, tc.home, tc.weights)
		}
	}
	// Inherited values are not written, and nothing is written for units without settings.
	r.load("/big.slice/plain.service")
	r.begin("/big.slice/plain.service")
	r.load("/system.slice/last.service", before)
	r.begin("/system.slice/last.service")
	r.has("/system.slice/last.service", "4-7", "4 1000")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrote) != 14 || r.wrote["a.service/"+cosched.FileWeights] != 0 {
		t.Errorf("%d files were written: %v", len(r.wrote), r.wrote)
	}
	for _, l := range r.Lines() {
		if !strings.HasPrefix(l, "<7>") {
			t.Error(l)
		}
	}
}

// While systemd starts many units it does not answer. Values must not wait for its answers.
func TestBusySystemd(t *testing.T) {
	r := newRig(t)
	r.start()
	r.mu.Lock()
	hold := make(chan struct{})
	r.hold = hold
	r.mu.Unlock()
	const units = 500
	tmpl := r.file("lib/u@.service", preferring+"CPUsPreferred=llc:0\n")
	dropIn := r.file("etc/u@7.service.d/50-cosched.conf", "[X-Cosched]\nCPUsPreferred=3\n")
	cgroup := func(i int) string { return fmt.Sprintf("/system.slice/system-u.slice/u@%d.service", i) }
	for i := range units {
		r.begin(cgroup(i))
	}
	for i := range units {
		home := "0-3"
		if i == 7 {
			home = "3"
		}
		r.has(cgroup(i), home, "100 150")
	}
	if n := r.Count(""); n != 0 {
		t.Errorf("%d lines before systemd said anything", n)
	}
	// What systemd says takes precedence over the files that were found. For systemd, unit 9 has the
	// drop-in, under an alias.
	for i := range units {
		r.load(cgroup(i), tmpl)
	}
	r.load(cgroup(7), tmpl, dropIn)
	r.load(cgroup(9), tmpl, dropIn)
	r.mu.Lock()
	r.hold = nil
	r.mu.Unlock()
	close(hold)
	r.has(cgroup(9), "3", "100 150")
	r.has(cgroup(7), "3", "100 150")
	for i := range units {
		r.has(cgroup(i), map[bool]string{true: "3", false: "0-3"}[i == 7 || i == 9], "100 150")
	}
}

func TestRestarts(t *testing.T) {
	r := newRig(t)
	r.start()
	const cgroup = "/system.slice/u.service"
	file := r.file("etc/u.service", preferring+"CPUsPreferred=llc:1\nWeights=4 1000\n")
	r.load(cgroup, file)
	for i := range 100 {
		r.begin(cgroup)
		if i%5 == 0 { // the signal can come first, in between or last
			r.events <- Event{Unit: "u.service"}
		}
		r.has(cgroup, "4-7", "4 1000")
		if i%20 == 19 {
			r.stop()
			coschedtest.Replace(t, filepath.Join(r.Cgroup, cgroup, cosched.FilePreferred), "\n")
			r.start()
			r.has(cgroup, "4-7", "4 1000")
		}
		if i%7 == 0 {
			r.events <- Event{Unit: "u.service"}
		}
		r.end(cgroup)
	}
	if r.Count("<4>")+r.Count("<3>") > 0 {
		t.Errorf("%q", r.Lines())
	}
}

// A unit or its slice can end at any time.
func TestGone(t *testing.T) {
	r := newRig(t)
	file := r.file("etc/u.service", preferring+"CPUsPreferred=llc:1\n")
	r.start()
	for i := range 50 {
		cgroup := fmt.Sprintf("/s%d.slice/u.service", i%2)
		r.load(cgroup, file)
		r.begin(cgroup)
		if i%3 == 0 {
			time.Sleep(time.Millisecond)
		}
		r.end(filepath.Dir(cgroup))
	}
	r.load("/s0.slice/u.service", file)
	r.begin("/s0.slice/u.service")
	r.has("/s0.slice/u.service", "4-7", "100 150")
	r.settled("u.service")
	r.events <- Event{Unit: "u.service"}
	r.events <- Event{Unit: "never.service"}
	r.events <- Event{Unit: "../../etc/passwd"}
	if r.Count("<4>")+r.Count("<3>") > 0 {
		t.Errorf("%q", r.Lines())
	}
}

func TestReload(t *testing.T) {
	r := newRig(t)
	const cgroup = "/system.slice/u.service"
	file := r.file("etc/u.service", preferring+"CPUsPreferred=llc:1\nWeights=4 1000\n")
	other := r.file("etc/other.service", preferring)
	r.load(cgroup, file)
	r.load("/system.slice/other.service", other)
	r.begin(cgroup)
	r.begin("/system.slice/other.service")
	r.start()
	r.has(cgroup, "4-7", "4 1000")
	r.settled("u.service")
	// A user gives a home to a unit without settings. The service must not change it.
	coschedtest.Replace(t, filepath.Join(r.Cgroup, "/system.slice/other.service", cosched.FilePreferred), "1\n")

	r.file("etc/u.service", preferring+"CPUsPreferred=2\nWeights=4 1000\n")
	r.events <- Event{Unit: "u.service"} // what was read stays in force until systemd reads its files again
	if v := r.value(cgroup, cosched.FilePreferred); v != "4-7" {
		t.Errorf("before the reload: %s", v)
	}
	r.events <- Event{Reloaded: true}
	r.has(cgroup, "2", "4 1000")
	r.file("etc/u.service", preferring+"CPUsPreferred=2\n")
	r.events <- Event{Reloaded: true}
	r.has(cgroup, "2", "")
	r.file("etc/u.service", preferring)
	r.events <- Event{Reloaded: true}
	r.has(cgroup, "", "")

	// The same happens while the service does not run.
	r.file("etc/u.service", preferring+"CPUsPreferred=3\n")
	r.events <- Event{Reloaded: true}
	r.has(cgroup, "3", "")
	r.stop()
	r.file("etc/u.service", preferring)
	r.start()
	r.has(cgroup, "", "")
	// A record of another cgroup than the one that exists now.
	r.stop()
	r.end(cgroup)
	r.begin(cgroup)
	coschedtest.Replace(t, filepath.Join(r.Cgroup, cgroup, cosched.FilePreferred), "5\n")
	r.start()
	r.file("etc/other.service", preferring+"Weights=7 8\n")
	r.events <- Event{Reloaded: true}
	r.has("/system.slice/other.service", "1", "7 8")
	if v := r.value(cgroup, cosched.FilePreferred); v != "5" {
		t.Errorf("a value that was not the service's: %q", v)
	}
}

// firstAsked is a systemd that reports when it gets the first request.
type firstAsked struct {
	*rig
	asked func()
	once  sync.Once
}

func (f *firstAsked) Unit(ctx context.Context, name string) (Unit, error) {
	f.once.Do(f.asked)
	return f.rig.Unit(ctx, name)
}

// If several units start together, all have their values before systemd is asked about any of them.
func TestValuesFirst(t *testing.T) {
	const units = 100
	r := newRig(t)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	made := make(chan fsnotify.Event, units)
	watcher.Events = made
	var cgroups []string
	for i := range units {
		name := fmt.Sprintf("u%d.service", i)
		r.file("etc/"+name, preferring+"CPUsPreferred=3\n")
		cgroups = append(cgroups, "/system.slice/"+name)
		made <- fsnotify.Event{Name: string(r.begin(cgroups[i])), Op: fsnotify.Create}
	}
	record, _ := OpenRecord("")
	ctx, cancel := context.WithCancel(t.Context())
	given, done := make(chan int), make(chan struct{})
	s := NewService(r.Host, r, &firstAsked{rig: r, asked: func() {
		n := 0
		for _, cgroup := range cgroups {
			if r.value(cgroup, cosched.FilePreferred) == "3" {
				n++
			}
		}
		given <- n
	}}, record, r.log)
	s.watcher, s.path = watcher, []string{filepath.Join(r.dir, "etc")}
	go func() { s.serve(ctx, nil, nil, nil); close(done) }()
	if n := <-given; n != units {
		t.Errorf("%d of %d had their values when systemd was asked first", n, units)
	}
	cancel()
	<-done
}

// Only systemd finds the files of this unit. Its values stay until systemd says which files it has.
func TestGuess(t *testing.T) {
	r := newRig(t)
	const cgroup = "/system.slice/u.service"
	r.load(cgroup, r.file("elsewhere/u.service", preferring+"CPUsPreferred=3\n"))
	r.begin(cgroup)
	r.start()
	r.settled("u.service")
	r.stop()
	r.mu.Lock()
	hold := make(chan struct{})
	r.hold = hold
	r.mu.Unlock()
	r.start()
	if v := r.value(cgroup, cosched.FilePreferred); v != "3" {
		t.Errorf("on a guess: %q", v)
	}
	r.mu.Lock()
	r.hold = nil
	r.mu.Unlock()
	close(hold)
	r.Wait("systemd's answer", func() bool { return r.Count("<7>u.service: given home 3") == 2 })
}

func TestComplaints(t *testing.T) {
	r := newRig(t)
	r.start()
	run := func(name, text string) string {
		cgroup := "/system.slice/" + name
		r.load(cgroup, r.file("etc/"+name, preferring+text))
		r.begin(cgroup)
		return cgroup
	}
	// Refused by the kernel: the other value is written.
	r.has(run("refused.service", "CPUsPreferred=0-99\nWeights=4 1000\n"), "", "4 1000")
	r.Logged(`<4>refused.service: /etc/refused.service:4: "0-99": names a CPU that this machine cannot have`)
	// An invalid assignment is ignored, and the one before it stays in force.
	r.has(run("odd.service", "CPUsPreferred=llc:0\nCPUsPreferred=llc:7\nWeights=0 1\nWeight=5\nCPUsPreferred=%i\n=\n"), "0-3", "100 150")
	r.Logged(`<4>odd.service: /etc/odd.service:5: CPUsPreferred=llc:7: ignored: home "llc:7": this machine has no llc 7, only 0-1`)
	r.Logged(`<4>odd.service: /etc/odd.service:6: Weights=0 1: ignored: weights are two integers from 1 to 10000, as 100 150`)
	r.Logged(`<4>odd.service: /etc/odd.service:7: Weight=5: ignored: no such setting: [X-Cosched] has CPUsPreferred= and Weights=`)
	r.Logged(`<4>odd.service: /etc/odd.service:8: CPUsPreferred=%i: ignored: specifiers such as %i are not replaced here`)
	r.Logged(`<4>odd.service: /etc/odd.service:9: nothing before the = in "=", ignored`)
	// Less than was asked for.
	r.has(run("offline.service", "CPUsPreferred=9\n"), "9", "100 150")
	r.Logged(`<5>offline.service: /etc/offline.service:4: none of these CPUs is online`)
	// The controller cannot be enabled for the children of an inner cgroup. Later it can.
	inner := r.begin("/inner.slice")
	r.load("/inner.slice")
	if err := os.Mkdir(inner.Path("refuses"), 0o755); err != nil {
		t.Fatal(err)
	}
	cgroup := "/inner.slice/u.service"
	r.load(cgroup, r.file("etc/u.service", preferring+"CPUsPreferred=1\n"))
	r.begin(cgroup)
	r.Logged("<4>u.service: /etc/u.service:4: refused")
	if err := os.Remove(inner.Path("refuses")); err != nil {
		t.Fatal(err)
	}
	r.events <- Event{Unit: "u.service"}
	r.has(cgroup, "1", "100 150")
	// The root.
	r.load("/", r.file("etc/-.slice", "[X-Cosched]\nCPUsPreferred=1\n"))
	r.mu.Lock()
	r.units["-.slice"] = Unit{Cgroup: "/", Files: []string{filepath.Join(r.dir, "etc/-.slice")}}
	r.mu.Unlock()
	r.events <- Event{Reloaded: true}
	r.Logged("<4>-.slice: /etc/-.slice:2:  is the root, which is not a cluster")
	// A file that is none.
	r.load("/system.slice/dir.service", r.dir)
	r.begin("/system.slice/dir.service")
	r.Logged("<4>dir.service: : not read: not a regular file")
	// A complaint is logged once for each run of a unit, and once more after each reload.
	if n := r.Count("odd.service:5:"); n != 2 {
		t.Errorf("said %d times", n)
	}
	// Without an answer, the settings that were found on disk stay in force for now.
	r.mu.Lock()
	r.fails = errors.New("timeout")
	r.mu.Unlock()
	r.has(run("unanswered.service", "CPUsPreferred=0\nWeights=\n"), "0", "100 150")
	r.Logged("<4>unanswered.service: systemd does not say which files it has: timeout: trying again within 1m0s")
}

// Whatever systemd says about a unit, the service writes only to the cgroup of that unit.
func TestForeignCgroups(t *testing.T) {
	r := newRig(t)
	file := r.file("etc/u.service", preferring+"CPUsPreferred=1\n")
	outside := filepath.Join(filepath.Dir(r.Cgroup), "u.service")
	r.begin("/user.slice/user@7.service/u.service")
	r.begin("/system.slice/v.service")
	r.begin("/cosched/u.service")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, g := range []string{outside, filepath.Join(r.Cgroup, "user.slice/user@7.service/u.service"), filepath.Join(r.Cgroup, "cosched/u.service"), filepath.Join(r.Cgroup, "system.slice/v.service")} {
		coschedtest.Replace(t, filepath.Join(g, cosched.FilePreferred), "")
	}
	r.start()
	last := r.file("etc/last.service", preferring+"CPUsPreferred=2\n")
	r.load("/system.slice/last.service", last)
	r.begin("/system.slice/last.service")
	for _, cgroup := range []string{"/../u.service", "../u.service", "/user.slice/user@7.service/u.service", "/cosched/u.service", "/system.slice/v.service", "/", "u.service", "/system.slice//../../u.service", "/\nu.service"} {
		r.mu.Lock()
		r.units["u.service"] = Unit{Cgroup: cgroup, Files: []string{file}}
		r.mu.Unlock()
		r.events <- Event{Unit: "u.service"}
		r.events <- Event{Reloaded: true}
	}
	r.settled("last.service")
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.wrote {
		if !strings.HasPrefix(name, "last.service/") {
			t.Errorf("written: %s", name)
		}
	}
}

// The fallbacks, for changes about which there is no inotify event and no signal.
func TestRescan(t *testing.T) {
	r := newRig(t)
	record, _ := OpenRecord("")
	s := NewService(r.Host, r, r, record, r.log)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	drain := func() {
		for len(s.asked) > 0 {
			s.askWaiting(ctx)
			s.answered(<-s.answers)
		}
	}
	s.watcher = idleWatcher(t)
	file := r.file("etc/u.service", preferring+"CPUsPreferred=llc:0\n")
	r.load("/a.slice/b.slice/u.service", file)
	r.begin("/a.slice/b.slice/u.service")
	s.tick()
	drain()
	r.has("/a.slice/b.slice/u.service", "0-3", "100 150")
	// Removed, and made again elsewhere.
	r.end("/a.slice")
	r.load("/c.slice/u.service", file)
	r.begin("/c.slice/u.service")
	s.tick()
	drain()
	r.has("/c.slice/u.service", "0-3", "100 150")
	// CPUs go offline and come online, so the domain has other CPUs.
	for cpu := range 8 {
		for index := range 4 {
			f := filepath.Join(r.Sys, fmt.Sprintf("devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, index))
			if text, _ := os.ReadFile(f); index == 3 {
				coschedtest.Replace(t, f, strings.ReplaceAll(string(text), "0-3", "0-2"))
			}
		}
	}
	coschedtest.Replace(t, filepath.Join(r.Sys, "devices/system/cpu/online"), "0-2,4-7\n")
	s.tick()
	drain()
	r.has("/c.slice/u.service", "0-2", "100 150")
	r.end("/c.slice")
	s.tick()
	drain()
	if len(s.units) != 2 || record.units["u.service"] != (entry{}) { // user.slice and user@7.service of the machine
		t.Errorf("%d units are left, %v", len(s.units), record.units)
	}
}

func TestUnitOf(t *testing.T) {
	h := cosched.Host{Cgroup: "/cg"}
	for group, want := range map[string]string{
		"/cg/system.slice/a.service":               "a.service",
		"/cg/init.scope":                           "init.scope",
		"/cg/a.slice/a-b.slice":                    "a-b.slice",
		"/cg/system.slice/_cpu.service":            "cpu.service",
		"/cg":                                      "",
		"/cg/cosched":                              "",
		"/cg/system.slice/.service":                "",
		"/cg/system.slice/a.service/x.service":     "",
		"/cg/cosched/x.service":                    "",
		"/cgx/x.service":                           "",
		"/cg/../x.service":                         "",
		"/cg/user.slice/user@7.service/init.scope": "",
	} {
		if name, ok := UnitOf(h, cosched.Group(group)); ok != (want != "") || ok && name != want {
			t.Errorf("%s: %q, %v; want %q", group, name, ok, want)
		}
	}
}

func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r, err := OpenRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{r.Set("a.service", 5, Written{true, false}), r.Set("b.service", 6, Written{true, true}), r.Set("c.service", 7, Written{}), r.Forget("b.service"), r.Forget("b.service")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	coschedtest.Replace(t, filepath.Join(dir, "torn.service"), "8 tr")
	again, err := OpenRecord(dir)
	if err != nil || len(again.units) != 1 || again.Get("a.service", 5) != (Written{true, false}) || again.Get("a.service", 6) != (Written{}) {
		t.Errorf("%v: %+v", err, again)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	masked, fifo, large := filepath.Join(dir, "masked"), filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := errors.Join(os.Symlink("/dev/null", masked), syscall.Mkfifo(fifo, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, maxFile+1)); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(masked); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
	for _, file := range []string{fifo, large, dir, "/dev/zero"} {
		if _, err := ReadFile(file); err == nil {
			t.Errorf("%s was read", file)
		}
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	log := Journal(&b)
	log(journal.PriWarning, "u.service", Complaint{At: At{"/etc/u", 3}, Text: "no"})
	log(journal.PriErr, "", Complaint{Text: "of itself"})
	if b.String() != "coschedd: u.service: /etc/u:3: no\ncoschedd: of itself\n" {
		t.Errorf("%q", b.String())
	}
	f := fields("u.service", At{"/etc/u", 3})
	if f["OBJECT_SYSTEMD_UNIT"] != "u.service" || f["CONFIG_FILE"] != "/etc/u" || f["CONFIG_LINE"] != "3" {
		t.Errorf("%v", f)
	}
}

// FuzzBus tries arbitrary messages on the bus, and answers with arbitrary strings.
func FuzzBus(f *testing.F) {
	const owner = ":1.1"
	for _, body := range [][]any{
		{uint32(1), dbus.ObjectPath("/org/freedesktop/systemd1/job/1"), "u.service", "done"}, {true}, {busName, "", owner}, {"/../../etc", "a.service", []string{"/etc/passwd"}},
	} {
		for _, name := range []string{managerIface + ".JobRemoved", managerIface + ".Reloading", busItself + ".NameOwnerChanged"} {
			at := strings.LastIndexByte(name, '.')
			var b bytes.Buffer
			m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(managerPath)), dbus.FieldInterface: dbus.MakeVariant(name[:at]), dbus.FieldMember: dbus.MakeVariant(name[at+1:]),
				dbus.FieldSender: dbus.MakeVariant(owner), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
			}}
			if err := m.EncodeTo(&b, nativeOrder); err != nil {
				f.Fatal(err)
			}
			f.Add(b.Bytes())
		}
	}
	h := coschedtest.Host(f)
	service := func() *Service {
		record, _ := OpenRecord("")
		s := NewService(h, h, never{}, record, func(journal.Priority, string, Complaint) {})
		s.watcher = idleWatcher(f)
		return s
	}()
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := dbus.DecodeMessage(bytes.NewReader(data))
		if err != nil {
			return
		}
		sender, _ := m.Headers[dbus.FieldSender].Value().(string)
		iface, _ := m.Headers[dbus.FieldInterface].Value().(string)
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		signal := &dbus.Signal{Sender: sender, Name: iface + "." + member, Body: m.Body}
		e, restarted := decode(signal, owner)
		if sender != owner && (e.Unit != "" || e.Reloaded) || sender != busItself && restarted {
			t.Fatalf("%s was believed", sender)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		service.told(e)
		service.askWaiting(ctx)
		var texts []string
		for _, v := range m.Body {
			if text, ok := v.(string); ok {
				texts = append(texts, text)
			}
		}
		for _, name := range texts {
			for _, cgroup := range texts {
				service.answered(answer{name: name, Unit: Unit{Cgroup: cgroup}})
				if g := cosched.Group(h.Cgroup + cgroup); service.units[name] != nil && service.units[name].group == g {
					if of, ok := UnitOf(h, g); !ok || of != name || !strings.HasPrefix(filepath.Clean(string(g)), h.Cgroup+"/") {
						t.Fatalf("%q has %q", name, g)
					}
				}
			}
		}
	})
}

// never is a systemd that never answers.
type never struct{}

func (never) Unit(ctx context.Context, _ string) (Unit, error) {
	<-ctx.Done()
	return Unit{}, ctx.Err()
}
