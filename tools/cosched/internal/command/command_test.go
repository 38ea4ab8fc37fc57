package command

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/sample"
)

// treeVariable names the environment variable with the directory of a machine for tests. If it is
// set, the test binary acts as the cosched command on that machine.
const treeVariable = "COSCHED_TEST_TREE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(treeVariable); dir != "" {
		os.Exit(Main(coschedtest.At(dir), os.Args[1:], os.Stdout, os.Stderr))
	}
	status := m.Run()
	os.RemoveAll(built)
	os.Exit(status)
}

// call runs the command on a machine.
func call(h cosched.Host, args ...string) (status int, stdout, stderr string) {
	var o, e bytes.Buffer
	status = Main(h, args, &o, &e)
	return status, o.String(), e.String()
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestList(t *testing.T) {
	h := coschedtest.Host(t)
	status, out, _ := call(h, "ls")
	if status != 0 || words(out) != "NAME HOME ASKED FOR WEIGHTS THREADS CPU TIME AT HOME % "+
		"night - - 100:150 0 0s - shop 0-3 0-3 4:1000 2 12.069s 99.7 shop/till 2-3 2-3,10 4:1000 1 0s -" {
		t.Errorf("ls: %d\n%s", status, out)
	}
	status, out, _ = call(h, "tree", "shop")
	if status != 0 || !strings.Contains(out, "\nshop ") || !strings.Contains(out, "\n└─ till ") || strings.Contains(out, "night") {
		t.Errorf("tree: %d\n%s", status, out)
	}
	var list, tree []map[string]any
	_, out, _ = call(h, "ls", "--json")
	_, out2, _ := call(h, "tree", "--json", h.Cgroup)
	if err := errors.Join(json.Unmarshal([]byte(out), &list), json.Unmarshal([]byte(out2), &tree)); err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[1]["home"] != "0-3" || list[1]["children"] != nil || list[1]["path"] != h.Cgroup+"/cosched/shop" {
		t.Errorf("ls --json: %s", out)
	}
	// The root's cgroups: only the base has the controller's files.
	if len(tree) != 1 || len(tree[0]["children"].([]any)) != 2 {
		t.Errorf("tree --json: %s", out2)
	}
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	if status, out, _ = call(h, "ls", "--json"); status != 0 || words(out) != "[]" {
		t.Errorf("no clusters: %d, %s", status, out)
	}
}

// A name cannot move the cursor or break a table.
func TestNames(t *testing.T) {
	h := coschedtest.Host(t)
	if err := os.Rename(filepath.Join(h.Cgroup, "cosched/shop"), filepath.Join(h.Cgroup, "cosched/s\x1b[2J\n\tp")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"tree"}, {"stat"}, {"stat", "s\x1b[2J\n\tp"}, {"stat", "\x1b[2J\n\t"}, {"set", h.Cgroup + "/cosched/s\x1b[2J\n\tp/till", "--home", "2-5"}} {
		_, out, errs := call(h, args...)
		if text := out + errs; strings.ContainsAny(text, "\x1b\t") || !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("%q: %q", args, text)
		}
	}
	var list []cosched.Cluster
	if _, out, _ := call(h, "ls", "--json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 3 || list[1].Name != "s\x1b[2J\n\tp" {
		t.Errorf("ls --json: %s", out)
	}
}

func TestStat(t *testing.T) {
	h := coschedtest.Host(t)
	status, out, _ := call(h, "stat", "shop")
	for _, line := range []string{
		"shop 0-3 2 12.07 99.7 48211 312 4 27 3 5 19 2",
		"LLC CPUS HOME RUNNING RUNNABLE 0 0-3 4 1.99 2.00 1 4-7 0 0.50 0.50",
	} {
		if status != 0 || !strings.Contains(words(out), line) {
			t.Errorf("stat: %d, no %q in\n%s", status, line, out)
		}
	}
	_, out, _ = call(h, "stat", "shop", "--json")
	var list []struct {
		Name string
		Stat cosched.Stat
		Load struct {
			LLCs []struct {
				CPUs string
				Util int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Stat.WakeupsSpilled != 312 || list[0].Load.LLCs[1].CPUs != "4-7" {
		t.Errorf("%v: %s", err, out)
	}
	if status, out, _ = call(h, "stat"); status != 0 || strings.Count(out, "\n") != 4 {
		t.Errorf("stat of all: %d\n%s", status, out)
	}
}

// The writer changes the counters after each table.
type onWrite struct {
	bytes.Buffer
	f func()
}

func (w *onWrite) Write(b []byte) (int, error) {
	w.f()
	return w.Buffer.Write(b)
}

func TestWatch(t *testing.T) {
	h := coschedtest.Host(t)
	dir := filepath.Join(h.Cgroup, "cosched/shop")
	text, err := os.ReadFile(filepath.Join(dir, "cosched.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	spilled := []string{"412", "7"} // the last value is that of a cluster that was removed and made again
	out := &onWrite{f: func() {
		if len(spilled) > 0 {
			coschedtest.Replace(t, filepath.Join(dir, "cosched.stat"), strings.Replace(string(text), "wakeups_spilled 312", "wakeups_spilled "+spilled[0], 1))
			spilled = spilled[1:]
		}
	}}
	if status := Main(h, []string{"stat", "shop", "--watch", "--json", "--count", "3", "--interval", "10ms"}, out, &errs); status != 0 {
		t.Fatalf("%d: %s", status, &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	for i, want := range []uint64{0, 100, 7} {
		var list []struct {
			Seconds float64
			Since   cosched.Stat
		}
		if err := json.Unmarshal([]byte(lines[i]), &list); err != nil || list[0].Since.WakeupsSpilled != want || list[0].Seconds < 0.01 {
			t.Errorf("line %d: %v, %+v", i, err, list)
		}
	}
	// Removed while shown.
	out.f = func() { os.RemoveAll(dir) }
	status := Main(h, []string{"stat", "shop", "--watch", "--interval", "10ms"}, out, &errs)
	if status != cosched.ExitNoInput || errs.String() != "cosched stat: "+dir+" was removed while it was shown\n" {
		t.Errorf("%d: %s", status, &errs)
	}
}

// A cluster that shows the counters of the one above is not said to have done all of that in the
// time since it was made, or since it had a home of its own.
func TestWatchInherited(t *testing.T) {
	h := coschedtest.Host(t)
	dir := filepath.Join(h.Cgroup, "cosched/shop")
	var errs bytes.Buffer
	out := &onWrite{f: func() {
		made := filepath.Join(dir, "new")
		if err := errors.Join(os.RemoveAll(made), os.CopyFS(made, os.DirFS(filepath.Join(dir, "till")))); err != nil {
			t.Error(err)
		}
		stat, err := os.ReadFile(filepath.Join(dir, cosched.FileStat))
		if err != nil {
			t.Error(err)
		}
		for _, part := range []string{"till", "new"} {
			coschedtest.Replace(t, filepath.Join(dir, part, cosched.FilePreferred), "\n")
			coschedtest.Replace(t, filepath.Join(dir, part, cosched.FileEffective), "0-3\n")
			coschedtest.Replace(t, filepath.Join(dir, part, cosched.FileStat), string(stat))
		}
	}}
	for _, name := range []string{"", "shop/till"} {
		out.Reset()
		if status := Main(h, append(strings.Fields("stat --watch --json --count 2 --interval 10ms"), strings.Fields(name)...), out, &errs); status != 0 {
			t.Fatalf("%s: %d: %s", name, status, &errs)
		}
		var list []shown
		if err := json.Unmarshal([]byte(strings.Split(out.String(), "\n")[1]), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if *c.Since != (cosched.Stat{}) {
				t.Errorf("%s: %s: %+v", name, c.Name, *c.Since)
			}
		}
		coschedtest.Replace(t, filepath.Join(dir, "till", cosched.FilePreferred), "2-3\n")
		coschedtest.Replace(t, filepath.Join(dir, "till", cosched.FileStat), "preferred_usec 0\noutside_usec 0\nwakeups_home 0\nwakeups_spilled 0\n"+
			"wakeups_overflowed 0\nstrays_returned 0\nstrays_swapped 0\ntasks_pushed 0\ntasks_pulled 0\nhome_changes 1\n")
	}
}

func TestDump(t *testing.T) {
	h := coschedtest.Host(t)
	status, out, _ := call(h, "dump")
	var now sample.Sample
	if err := json.Unmarshal([]byte(out), &now); status != 0 || err != nil || len(now.Clusters) != 3 || now.Clusters[1].Home.String() != "0-3" || now.Clusters[1].Stat.WakeupsSpilled != 312 {
		t.Errorf("%d, %v: %s", status, err, out)
	}
	if status, out, _ = call(h, "dump", "shop", "--json"); status != 0 || strings.Contains(out, "night") || !strings.Contains(out, "shop/till") {
		t.Errorf("of shop: %d: %s", status, out)
	}
	if status, out, _ = call(h, "dump", "--openmetrics"); status != 0 || !strings.HasSuffix(out, "\n# EOF\n") || !strings.Contains(out, `{cluster="shop",placed="spilled"} 312`) {
		t.Errorf("OpenMetrics: %d: %s", status, out)
	}
	status, out, _ = call(h, "dump", "--prometheus")
	if status != 0 || !strings.Contains(out, "\n# TYPE cosched_wakeups_total counter\n") || !strings.Contains(out, `{cluster="shop",placed="spilled"} 312`) {
		t.Errorf("Prometheus: %d: %s", status, out)
	}
}

func TestRecordAndReplay(t *testing.T) {
	h := coschedtest.Host(t)
	for _, file := range []string{filepath.Join(t.TempDir(), "r"), filepath.Join(t.TempDir(), "r.gz")} {
		if status, out, errs := call(h, "record", "-o", file, "--count", "3", "--interval", "10ms"); status != 0 || out != "" || errs != "" {
			t.Fatalf("record: %d, %s%s", status, out, errs)
		}
		status, out, errs := call(h, "replay", file, "--sort", "name")
		if status != 0 || errs != "" || strings.Count(out, "NAME ") != 2 || strings.Count(out, "3 clusters used 0.0 of 8 CPUs, - % at home") != 2 || !strings.Contains(words(out), " shop 0-3 2 0.00 - 0 0 0") {
			t.Errorf("replay: %d\n%s%s", status, out, errs)
		}
		status, _, errs = call(h, "record", "-o", file, "--count", "1")
		if status != cosched.ExitCantCreate || !strings.Contains(errs, file+" is there already: --append adds to it") {
			t.Errorf("again: %d, %s", status, errs)
		}
		other, _, _, err := sample.Append(file)
		if err != nil {
			t.Fatal(err)
		}
		status, _, errs = call(h, "record", "-o", file, "--append", "--count", "1")
		if other.Close(); status != cosched.ExitCantCreate || !strings.Contains(errs, file+" is being written by another cosched record") {
			t.Errorf("while another appends: %d, %s", status, errs)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		coschedtest.Replace(t, file, string(text[:len(text)-9]))
		if status, _, errs = call(h, "replay", file); status != 0 || errs != "cosched replay: note: "+file+": its last line is not complete and was left out\n" {
			t.Errorf("torn: %d, %s", status, errs)
		}
		if status, _, errs = call(h, "record", "-o", file, "--append", "--count", "2", "--interval", "1ms", "shop"); status != 0 || !strings.Contains(errs, "was cut off") {
			t.Errorf("append: %d, %s", status, errs)
		}
		// Two samples are left from the first recording, two are from the second.
		status, out, errs = call(h, "replay", file, "--json", "--filter", "TILL")
		if lines := strings.Split(strings.TrimSpace(out), "\n"); status != 0 || errs != "" || len(lines) != 2 {
			t.Fatalf("%d, %d lines, %s", status, len(lines), errs)
		}
		var v sample.Interval
		if err := json.Unmarshal([]byte(out[:strings.IndexByte(out, '\n')]), &v); err != nil || v.Seconds < 0.01 || len(v.Clusters) != 1 || v.Clusters[0].Name != "shop/till" {
			t.Errorf("%v: %s", err, out)
		}
		coschedtest.Append(t, file, "neither of them\n")
		if status, _, errs = call(h, "replay", file); status != cosched.ExitData || !strings.Contains(errs, file+":7: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("corrupt: %d, %s", status, errs)
		}
	}
	// The cluster is removed while it is recorded. The samples taken before that are in the file.
	file := filepath.Join(t.TempDir(), "r")
	out := &onWrite{f: func() { os.RemoveAll(filepath.Join(h.Cgroup, "cosched/shop")) }}
	var errs bytes.Buffer
	status := Main(h, []string{"record", "-o", "-", "shop", "--interval", "1ms"}, out, &errs)
	if status != cosched.ExitNoInput || errs.String() != "cosched record: "+h.Cgroup+"/cosched/shop was removed while it was shown\n" || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("removed: %d, %s", status, &errs)
	}
	coschedtest.Append(t, file, out.String()[:strings.IndexByte(out.String(), '\n')+1])
	if status, _, errs := call(h, "replay", file); status != cosched.ExitData || !strings.Contains(errs, "without samples") {
		t.Errorf("no samples: %d, %s", status, errs)
	}
	// A single sample shows what exists, but no rates.
	coschedtest.Replace(t, file, out.String())
	if status, text, errs := call(h, "replay", file); status != 0 || !strings.Contains(text, "2 clusters, 8 CPUs") {
		t.Errorf("one sample: %d, %s%s", status, text, errs)
	}
	if status, text, _ := call(h, "replay", file, "--filter", "none"); status != 0 || !strings.Contains(text, `none of 2 clusters has "none" in its name`) {
		t.Errorf("nothing to show: %d, %s", status, text)
	}
}

func TestPlot(t *testing.T) {
	h := coschedtest.Host(t)
	dir := t.TempDir()
	r, image := filepath.Join(dir, "r"), filepath.Join(dir, "a.svg")
	if status, _, errs := call(h, "record", "-o", r, "--count", "1"); status != 0 {
		t.Fatal(errs)
	}
	if status, _, errs := call(h, "plot", r, "-o", image); status != cosched.ExitData || !strings.Contains(errs, "nothing to draw") {
		t.Errorf("one sample: %d, %s", status, errs)
	}
	// A second recording in the file: its samples are not compared with those of the first.
	call(h, "record", "-o", r, "--append", "--count", "3", "--interval", "10ms")
	if status, out, errs := call(h, "plot", r, "-o", image); status != 0 || out+errs != "" {
		t.Errorf("%d, %s%s", status, out, errs)
	}
	if text, err := os.ReadFile(image); err != nil || !strings.Contains(string(text), ">shop/till<") || !strings.Contains(string(text), ">r<") {
		t.Errorf("%v: %s", err, text)
	}
	other := filepath.Join(dir, "b.svg")
	if status, _, errs := call(h, "plot", r, "-o", other, "--filter", "shpo"); status != cosched.ExitData || !strings.Contains(errs, `none of its clusters has "shpo" in its name`) {
		t.Errorf("nothing selected: %d, %s", status, errs)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("nothing selected, but it is drawn")
	}
	if status, _, errs := call(h, "plot", r, "-o", other, "--filter", "Till"); status != 0 {
		t.Errorf("one cluster: %d, %s", status, errs)
	}
	if status, _, errs := call(h, "plot", r, "-o", filepath.Join(dir, "none/a.png")); status != cosched.ExitCantCreate || !strings.Contains(errs, "none/a.png: no such file") {
		t.Errorf("%d, %s", status, errs)
	}
}

func TestTopology(t *testing.T) {
	h := coschedtest.Host(t)
	status, out, _ := call(h, "topology")
	want := "CPUs online: 0-7, possible: 0-11 LLC CPUS SOCKET NODE SMT SIBLINGS 0 0-3 0 0 0-1 2-3 1 4-7 1 1 4-5 6-7 " +
		"NODE CPUS DISTANCE TO 0 1 0 0-3 10 20 1 4-7 20 10"
	if status != 0 || words(out) != want {
		t.Errorf("%d\n%s", status, out)
	}
	_, out, _ = call(h, "topology", "--json")
	var m struct {
		LLCs []struct {
			CPUs  string
			Nodes []int
			Cores []string
		}
		Sockets map[string]string
		Nodes   []struct{ Distances map[string]int }
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.LLCs[1].CPUs != "4-7" || !slices.Equal(m.LLCs[1].Cores, []string{"4-5", "6-7"}) ||
		m.Sockets["1"] != "4-7" || m.Nodes[0].Distances["1"] != 20 {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Remove(filepath.Join(h.Sys, "devices/system/cpu/online")); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := call(h, "topology"); status != cosched.ExitUnavailable || !strings.Contains(errs, "cpu/online") {
		t.Errorf("%d: %s", status, errs)
	}
}

func TestChange(t *testing.T) {
	h := coschedtest.Host(t)
	read := func(file string) string {
		b, _ := os.ReadFile(filepath.Join(h.Cgroup, "cosched", file))
		return strings.TrimSpace(string(b))
	}
	if status, _, errs := call(h, "create", "day", "--home", "llc:1", "--weights", "4:1000"); status != 0 || errs != "" {
		t.Fatalf("%d: %s", status, errs)
	}
	if a, b := read("day/cosched.cpus_preferred"), read("day/cosched.weights"); a != "4-7" || b != "4 1000" {
		t.Errorf("home %q, weights %q", a, b)
	}
	if status, _, errs := call(h, "set", "shop", "--home", "6-9"); status != 0 || !strings.HasPrefix(errs, "cosched set: note: ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d: %s", status, errs)
	}
	if status, _, _ := call(h, "move", "night", "41", "50"); status != 0 || read("night/cgroup.procs") != "50" {
		t.Errorf("moved: %d, %s", status, read("night/cgroup.procs"))
	}
	// A process that has exited does not prevent the others from being moved.
	status, _, errs := call(h, "move", "shop", "98", "50", "99")
	if status != cosched.ExitNoInput || read("shop/cgroup.procs") != "50" || strings.Count(errs, "\n") != 2 || !strings.Contains(errs, "/98:") || !strings.Contains(errs, "/99:") {
		t.Errorf("%d: %s", status, errs)
	}
}

// A cluster that cannot be removed does not prevent the others from being removed.
func TestRemoveSeveral(t *testing.T) {
	h := coschedtest.Host(t)
	for _, name := range []string{"a", "b"} {
		if status, _, errs := call(h, "create", name); status != 0 {
			t.Fatal(errs)
		}
	}
	status, _, errs := call(h, "rm", "none", "a", "shop", "b")
	if status != cosched.ExitNoInput || strings.Count(errs, "\n") != 2 || !strings.Contains(errs, "cosched rm: "+h.Cgroup+"/cosched/shop has ") || !strings.Contains(errs, "cosched/none: no such cgroup") {
		t.Errorf("%d: %s", status, errs)
	}
	if _, out, _ := call(h, "ls"); !strings.Contains(out, "\nshop ") || strings.Contains(out, "\na ") || strings.Contains(out, "\nb ") {
		t.Error(out)
	}
}

// If several processes run commands in a new cluster at the same time, one of them has made it.
func TestRunGroup(t *testing.T) {
	h := coschedtest.Host(t)
	for _, tc := range []struct {
		name string
		host cosched.Host
		made bool
	}{{"ours", h, true}, {"ours", h, false}, {"theirs", coschedtest.Overtaken(h, "theirs"), false}} {
		if g, made, err := runGroup(tc.host, tc.name); filepath.Base(string(g)) != tc.name || (len(made) == 1) != tc.made || err != nil {
			t.Errorf("%s: %s, %v, %v", tc.name, g, made, err)
		}
	}
}

// Wrong usage and wrong values: one line each, and nothing is changed.
func TestErrors(t *testing.T) {
	h := coschedtest.Host(t)
	for _, tc := range []struct {
		args   string
		status int
		says   string
	}{
		{"nonsense", 64, `unknown command "nonsense"`},
		{"ls --nonsense", 64, "unknown flag: --nonsense (cosched ls --help says more)"},
		{"ls a b", 64, "accepts at most 1 arg"},
		{"create", 64, "accepts 1 arg"},
		{"create a --home nonsense", 64, `home "nonsense" is not a CPU list`},
		{"create a --home llc:7", 65, "no llc 7"},
		{"create b --home 10", 65, "bring one online"},
		{"create a --weights 5", 64, "--weights 5: want P:A"},
		{"create a --weights 0:1", 64, "--weights 0:1: want P:A"},
		{"create shop", 73, "cosched/shop is there already"},
		{"set shop", 64, "nothing to set"},
		{"set none --home 0", 66, "cosched/none: no such cgroup"},
		{"move shop x", 64, `"x" is not the number`},
		{"move shop 0", 64, `"0" is not the number`},
		{"move shop", 64, "requires at least 2 arg"},
		{"move none 41", 66, "no such cgroup"},
		{"rm none", 66, "no such cgroup"},
		{"ls none", 66, "no such cgroup"},
		{"tree /etc", 64, "is not below"},
		{"stat none", 66, "no such cgroup"},
		{"stat --count 2", 64, "are of --watch"},
		{"stat --watch --interval 0s", 64, "at least 1ms"},
		{"top none", 66, "no such cgroup"},
		{"top --interval 0s", 64, "at least 1ms"},
		{"top --sort size", 64, "--sort size: want name, cpu"},
		{"top --rows -1", 64, "--rows must be at least 0"},
		{"record", 64, "give --output FILE"},
		{"record -o x none", 66, "no such cgroup"},
		{"record -o /none/x --count 1", 73, "/none/x: no such file or directory"},
		{"record -o x --interval 0s", 64, "at least 1ms"},
		{"replay", 64, "accepts 1 arg"},
		{"replay none", 66, "none: no such file or directory: cosched record -o none makes one"},
		{"replay /etc/passwd", 65, "/etc/passwd:1: not a recording of cosched"},
		{"replay x --sort size", 64, "--sort size: want name, cpu"},
		{"plot x", 64, `--output "": want a file that ends in .png or .svg`},
		{"plot x -o x.gif", 64, "ends in .png or .svg"},
		{"plot none -o x.png", 66, "none: no such file"},
		{"dump none", 66, "no such cgroup"},
		{"dump --json --openmetrics", 64, "give one"},
		{"dump --json --prometheus", 64, "give one"},
		{"dump --openmetrics --prometheus", 64, "give one"},
		{"completion tcsh", 64, `invalid argument "tcsh"`},
		{"run true", 125, "give --home, --cluster or both"},
		{"run --soften --home 0 /no/such/program", 127, "/no/such/program: no such command"},
		{"run --home 0", 125, "requires at least 1 arg"},
		{"run --nonsense true", 125, "unknown flag"},
		{"run --home 0 /no/such/program", 127, "/no/such/program: no such command"},
		{"run --home 0 nosuchprogram", 127, "no such command in PATH"},
		{"run --home 0 /etc/passwd", 126, "cannot be executed: permission denied"},
		{"run --home 10 true", 125, "bring one online"},
	} {
		status, out, errs := call(h, strings.Fields(tc.args)...)
		if status != tc.status || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "cosched") || !strings.Contains(errs, tc.says) {
			t.Errorf("%s: status %d, want %d; says %q, want %q", tc.args, status, tc.status, errs, tc.says)
		}
	}
	for _, name := range []string{"a", "b", "none"} {
		if _, err := os.Stat(filepath.Join(h.Cgroup, "cosched", name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.controllers"), "cpu\n")
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"ls", "tree", "stat", "stat shop", "top", "dump", "record -o x", "create a", "set shop --home 0", "move shop 41"} {
		status, _, errs := call(h, strings.Fields(args)...)
		if status != 69 || !strings.Contains(errs, "CONFIG_CGROUP_COSCHED=y") {
			t.Errorf("%s without the controller: %d: %s", args, status, errs)
		}
	}
}

// A verb that fails has changed nothing, or says what it has changed.
func TestFailure(t *testing.T) {
	h := coschedtest.Host(t)
	cluster := func(name string) string { return filepath.Join(h.Cgroup, "cosched", name) }
	fails := func(h cosched.Host, status int, says, args string) string {
		t.Helper()
		got, _, errs := call(h, strings.Fields(args)...)
		if got != status || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: status %d, want %d; says %q, want %q", args, got, status, errs, says)
		}
		if home, _ := os.ReadFile(filepath.Join(cluster("shop"), cosched.FilePreferred)); string(home) != "0-3\n" {
			t.Errorf("%s: the home of shop is %q", args, home)
		}
		return errs
	}
	gone := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := os.Stat(cluster(name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s stays: %v", name, err)
			}
		}
	}
	own := strconv.Itoa(os.Getpid())
	// This process does not exist on the machine for tests, so it cannot be moved.
	for _, args := range []string{"run --cluster shop --home 4-5 true", "run --cluster a/b --home 0 true", "run --home 0 true"} {
		fails(h, notRun, "/"+own+": no such process", args)
	}
	fails(h, cosched.ExitData, "bring one online", "create a/b --home 10")
	gone("a/b", "a", "run-"+own)
	// A cgroup above that existed before is kept.
	fails(h, cosched.ExitData, "bring one online", "create shop/b --home 10")
	gone("shop/b")
	// A cgroup that cannot be removed is named.
	stuck := h
	stuck.Rmdir = func(path string) error {
		if path == cluster("a") {
			return syscall.EACCES
		}
		return h.Rmdir(path)
	}
	fails(stuck, cosched.ExitData, "or --force; and what was made stays: "+cluster("a")+": permission denied: be root", "create a/b --home 10")
	gone("a/b")
	if err := h.Rmdir(cluster("a")); err != nil {
		t.Fatal(err)
	}
	// Now this process exists there and can be moved.
	coschedtest.Append(t, filepath.Join(h.Proc, own, "cgroup"), "0::/user.slice/user@7.service\n")
	fails(h, notRun, "bring one online", "run --cluster shop --home 10 true")
	errs := fails(h, notRun, "bring one online", "run --cluster a/b --home 10 true")
	if strings.Contains(errs, "stays") {
		t.Error(errs)
	}
	gone("a/b", "a")
	// If the command cannot be executed, the process moves back from the cluster that was made for it.
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	user := filepath.Join(h.Cgroup, "user.slice/user@7.service/cgroup.procs")
	coschedtest.Append(t, user, "")
	for _, args := range []string{"run --cluster a/b --home 4 ", "run --home 4 "} {
		coschedtest.Replace(t, user, "")
		fails(h, notExecutable, script+": cannot be executed: no such file or directory", args+script)
		if now, err := os.ReadFile(user); err != nil || strings.TrimSpace(string(now)) != own {
			t.Errorf("%s: did not go back: %q, %v", args, now, err)
		}
	}
	gone("a/b", "a", "run-"+own)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestFullOutput(t *testing.T) {
	var errs bytes.Buffer
	if status := Main(coschedtest.Host(t), []string{"topology"}, full{}, &errs); status != cosched.ExitIO || !strings.Contains(errs.String(), "standard output") {
		t.Errorf("%d: %s", status, &errs)
	}
}

// Every verb has help with a synopsis, and all that print have --json.
func TestHelp(t *testing.T) {
	h := coschedtest.Host(t)
	verbs := []string{"run", "create", "set", "move", "ls", "tree", "stat", "top", "record", "replay", "plot", "dump", "rm", "topology", "completion", "schedstat", "detect", "unit", "libvirt-hook"}
	var have []string
	for _, c := range New(h).Commands() {
		if !c.Hidden { // a hidden verb is only for cosched itself
			have = append(have, c.Name())
		}
	}
	if slices.Sort(verbs); !slices.Equal(have, verbs) {
		t.Errorf("verbs are %v, want %v", have, verbs)
	}
	for _, v := range append(verbs, "schedstat record", "schedstat report", "schedstat diff", "unit set", "unit show", "unit edit") {
		status, out, errs := call(h, append(strings.Fields(v), "--help")...)
		if status != 0 || errs != "" || !strings.Contains(out, "Usage:\n  cosched "+v) {
			t.Errorf("%s --help: %d\n%s%s", v, status, out, errs)
		}
		for line := range strings.Lines(out) {
			if len(line) > 140 {
				t.Errorf("%s --help: a long line: %s", v, line)
			}
		}
		if prints := slices.Contains([]string{"ls", "tree", "stat", "top", "replay", "dump", "topology", "schedstat report", "schedstat diff", "detect", "unit show"}, v); prints != strings.Contains(out, "--json") {
			t.Errorf("%s --help: --json is not where something is printed", v)
		}
	}
}

func TestCompletion(t *testing.T) {
	h := coschedtest.Host(t)
	for args, want := range map[string][]string{
		"set|":                {"night", "shop", "shop/till"},
		"run|--cluster|":      {"shop"},
		"set|shop|--home|":    {"auto", "llc:1", "node:0", "socket:1", "dev:"},
		"create|a|--weights|": {"4:1000"},
		"completion|":         {"bash", "zsh", "fish"},
	} {
		_, out, _ := call(h, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(args, "|")...)...)
		for _, w := range want {
			if !slices.Contains(strings.Split(out, "\n"), w) {
				t.Errorf("%s: no %s in %q", args, w, out)
			}
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, errs := call(h, "completion", shell)
		if status != 0 || errs != "" || len(out) < 1000 {
			t.Fatalf("%s: %d, %d bytes, %s", shell, status, len(out), errs)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // bash is available wherever make is used
		}
		check := exec.Command(path, "-n")
		check.Stdin = strings.NewReader(out)
		if text, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, text)
		}
	}
}

// build builds one of the module's programs as make does.
func build(t *testing.T, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// No verb takes long before it begins its work. CPU time is measured, as it does not depend on
// other load on the machine.
func TestStart(t *testing.T) {
	const limit = 50 * time.Millisecond
	program := build(t, "cosched.io/cosched/cmd/cosched")
	for _, verb := range []string{"run", "create", "set", "move", "ls", "tree", "stat", "top", "record", "replay", "plot", "dump", "rm", "topology", "completion", "schedstat", "detect", "unit", "libvirt-hook"} {
		best := time.Hour
		for range 5 {
			c := exec.Command(program, verb, "--help")
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			best = min(best, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
		}
		t.Logf("%s: %v", verb, best)
		if best > limit {
			t.Errorf("%s takes %v of a CPU to start, want at most %v", verb, best, limit)
		}
	}
}

// The installed program is a single file that needs no other file.
func TestStatic(t *testing.T) {
	for _, name := range []string{"cosched", "coschedd", "cosched-nri"} {
		f, err := elf.Open(build(t, "cosched.io/cosched/cmd/"+name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		libraries, err := f.ImportedLibraries()
		if err != nil || len(libraries) > 0 {
			t.Errorf("%s needs %v, %v", name, libraries, err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s needs a loader", name)
			}
		}
	}
}

// There is a page for each command, each verb and the service. Each run makes the same pages.
func TestManPages(t *testing.T) {
	program := build(t, "cosched.io/cosched/internal/command/man")
	pages := func() map[string]string {
		dir := t.TempDir()
		cmd := exec.Command(program, dir)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all := map[string]string{}
		files, _ := filepath.Glob(filepath.Join(dir, "*.[18]"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(f)] = string(text)
		}
		return all
	}
	once, again := pages(), pages()
	if len(once) != 31 {
		t.Errorf("%d pages", len(once))
	}
	for name, text := range once {
		if text != again[name] {
			t.Errorf("%s differs from run to run", name)
		}
		if !strings.Contains(text, ".SH SYNOPSIS") || !strings.Contains(text, `"Sep 2001"`) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
