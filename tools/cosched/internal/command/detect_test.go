package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/floats"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/detect"
)

// seen is the JSON of detect.
type seen struct {
	Groups []struct {
		Threads []detect.Thread
		Inside  float64
	}
	Why     string
	Alone   []detect.Thread
	Threads []detect.Thread
	Shared  [][]float64
	Lost    detect.Lost

	Overhead detect.Overhead
	Share    float64 `json:"overhead_share"`
}

// runCosched runs the command as users do; what it observes must not be this process.
func runCosched(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var o, e strings.Builder
	// No test here takes half of that time.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v: %v", args, errors.Join(err, ctx.Err()))
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// built is the directory of the programs that these tests run. TestMain removes it.
var built string

// makeOnce makes a file once.
func makeOnce(t *testing.T, name string, argv ...string) string {
	t.Helper()
	if built == "" {
		dir, err := os.MkdirTemp("", "cosched")
		if err != nil {
			t.Fatal(err)
		}
		built = dir
	}
	file := filepath.Join(built, name)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	out, err := exec.Command(argv[0], append([]string{argv[1], "-o", file}, argv[2:]...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return file
}

func binary(t *testing.T) string {
	return makeOnce(t, "cosched", "go", "build", "../../cmd/cosched")
}

// share is the program in testdata.
func share(t *testing.T) string {
	return makeOnce(t, "share", "gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "testdata/share.c")
}

// needBPF skips a test if this machine cannot observe threads.
func needBPF(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	status, _, stderr := runCosched(t, "detect", "--", "true")
	switch status {
	case 0:
	case cosched.ExitNoPerm, cosched.ExitUnavailable:
		t.Skipf("this machine cannot observe: %s", stderr)
	default:
		t.Fatalf("exit status %d: %s", status, stderr)
	}
}

// detectJSON sets a high limit, as a busy machine leaves little to observe otherwise. Wakeups get
// half of the limit. They cost a tenth here, and if they were not observed all the time, too few of
// them might be seen.
func detectJSON(t *testing.T, args ...string) (s seen) {
	t.Helper()
	status, out, stderr := runCosched(t, append([]string{"detect", "--json", "--limit", "50"}, args...)...)
	if err := json.Unmarshal([]byte(out), &s); status != 0 || err != nil {
		t.Fatalf("exit status %d, %v: %s%s", status, err, out, stderr)
	}
	t.Logf("overhead %.1f %% of %v, watched calls for %v, events for %v", 100*s.Share, s.Overhead.CPU, s.Overhead.CallsOpen, s.Overhead.EventsOpen)
	if s.Lost != (detect.Lost{}) {
		t.Errorf("lost %+v", s.Lost)
	}
	return s
}

// agreement compares the groups with the true groups, for all threads that are in a group.
func (s seen) agreement(truth func(detect.Thread) string) (index float64, threads int) {
	found, true_, number := map[int]int{}, map[int]int{}, map[string]int{}
	add := func(t detect.Thread, group int) {
		g := truth(t)
		if g == "" {
			return
		}
		if _, ok := number[g]; !ok {
			number[g] = len(number)
		}
		found[t.TID], true_[t.TID] = group, number[g]
	}
	for i, g := range s.Groups {
		for _, t := range g.Threads {
			add(t, i)
		}
	}
	for i, t := range s.Alone {
		add(t, -1-i)
	}
	return detect.RandIndex(found, true_), len(found)
}

// byName is true where threads are named after their group.
func byName(t detect.Thread) string {
	if len(t.Name) == 2 && strings.Contains("wpt", t.Name[:1]) {
		return t.Name
	}
	return ""
}

func TestDetectTruth(t *testing.T) {
	needBPF(t)
	for _, c := range []struct {
		mode    string
		groups  int
		threads int
	}{{"threads", 8, 32}, {"processes", 8, 32}, {"pipelines", 3, 12}} {
		t.Run(c.mode, func(t *testing.T) {
			s := detectJSON(t, "--", share(t), c.mode, "12000")
			index, threads := s.agreement(byName)
			if index != 1 || threads != c.threads || len(s.Groups) != c.groups {
				t.Errorf("index %v of %d threads in %d groups: %+v, alone %+v, %s", index, threads, len(s.Groups), s.Groups, s.Alone, s.Why)
			}
			// Those of all processes are watched in turn, also where that costs so little
			// that it need not end. They do the same; watched or not makes 20 times as much.
			if c.mode != "processes" || len(s.Shared) == 0 {
				return
			}
			var each []float64
			for _, row := range s.Shared {
				each = append(each, floats.Sum(row))
			}
			if least, most := slices.Min(each), slices.Max(each); least < most/5 {
				t.Errorf("%.0f events of a process were counted, %.0f of another: %.0f", least, most, each)
			}
		})
	}
}

// Threads that share memory without locks are found by page faults, and only by them.
func TestDetectFaults(t *testing.T) {
	needBPF(t)
	for _, c := range []struct {
		mode   string
		faults bool
		groups int
	}{{"memory", true, 8}, {"memory", false, 0}, {"memory-alike", true, 0}} {
		t.Run(fmt.Sprintf("%s,faults=%v", c.mode, c.faults), func(t *testing.T) {
			s := detectJSON(t, fmt.Sprintf("--faults=%v", c.faults), "--", share(t), c.mode, "6000")
			index, threads := s.agreement(byName)
			if len(s.Groups) != c.groups || c.groups > 0 && (index != 1 || threads != 32) || c.faults && len(s.Threads) != 32 || (s.Why == "") != (c.groups > 0) {
				t.Errorf("index %v of %d threads in %d groups of %d: %+v, alone %+v, %s", index, threads, len(s.Groups), len(s.Threads), s.Groups, s.Alone, s.Why)
			}
			for _, g := range s.Groups {
				// Memory that all threads only read does not count as shared.
				if g.Inside < 0.9 {
					t.Errorf("%v share with others, inside %.2f", g.Threads, g.Inside)
				}
			}
			if (s.Overhead.Faults > 0) != c.faults {
				t.Errorf("%d page faults are said to be watched", s.Overhead.Faults)
			}
		})
	}
}

func TestDetectNoStructure(t *testing.T) {
	needBPF(t)
	s := detectJSON(t, "--", share(t), "alike", "6000")
	if len(s.Groups) != 0 || s.Why == "" || len(s.Threads) != 32 {
		t.Errorf("groups %+v of %d threads, %q", s.Groups, len(s.Threads), s.Why)
	}
}

func TestDetectJava(t *testing.T) {
	needBPF(t)
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("no javac: install default-jdk-headless")
	}
	classes := t.TempDir()
	if out, err := exec.Command("javac", "-d", classes, "testdata/Warehouses.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	s := detectJSON(t, "--", "java", "-cp", classes, "Warehouses", "8000")
	index, threads := s.agreement(byName)
	if index < 0.9 || threads != 32 {
		t.Errorf("index %v of %d threads: %+v", index, threads, s.Groups)
	}
}

// Two databases on one server, in which each client has a server process.
func TestDetectPostgreSQL(t *testing.T) {
	needBPF(t)
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	owner, err := user.Lookup("postgres")
	if len(dirs) == 0 || err != nil {
		t.Skip("no PostgreSQL: install postgresql")
	}
	slices.Sort(dirs)
	bin := filepath.Dir(dirs[len(dirs)-1])
	// The path of the server's socket must be short.
	dir, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	must := func(cmd *exec.Cmd) string {
		t.Helper()
		// Standard output is not captured, as the server would keep that of pg_ctl open.
		out, err := os.CreateTemp(built, "out")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		err = cmd.Run()
		text, _ := os.ReadFile(out.Name())
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
		return string(text)
	}
	data := filepath.Join(dir, "data")
	must(command("initdb", "-D", data, "-A", "trust", "--no-sync"))
	// The server does not wait for the disk, as the disk of this machine is not under test.
	must(command("pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o",
		"-c listen_addresses= -c fsync=off -c synchronous_commit=off -c autovacuum=off -c unix_socket_directories="+dir, "start"))
	defer func() { _ = command("pg_ctl", "-D", data, "-m", "immediate", "stop").Run() }()
	var clients []*exec.Cmd
	defer func() {
		for _, c := range clients {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for _, db := range []string{"one", "two"} {
		must(command("createdb", "-h", dir, db))
		must(command("pgbench", "-h", dir, "-i", "-q", db))
	}
	for _, db := range []string{"one", "two"} {
		// At scale 1 all transactions of a database update one row.
		c := command("pgbench", "-h", dir, "-n", "-c", "6", "-T", "60", db)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	query := func() string {
		return must(command("psql", "-h", dir, "-At", "-F", " ", "-c", "select pid, datname from pg_stat_activity where application_name = 'pgbench'", "one"))
	}
	for strings.Count(query(), "\n") < 12 {
		if ctx.Err() != nil {
			t.Fatal("the clients do not connect")
		}
		time.Sleep(100 * time.Millisecond)
	}
	database := map[int]string{}
	for line := range strings.Lines(query()) {
		var pid int
		var name string
		if _, err := fmt.Sscan(line, &pid, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		database[pid] = name
	}
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pid), "\n")
	s := detectJSON(t, "--pid", first, "--for", "10s")
	index, threads := s.agreement(func(t detect.Thread) string { return database[t.PID] })
	if index < 0.9 || threads != 12 {
		t.Errorf("index %v of %d server processes: %+v", index, threads, s.Groups)
	}
}

// What took long to observe is not lost because the plot cannot be written.
func TestDetectNoPlot(t *testing.T) {
	s := detect.NewSample()
	s.Threads[7], s.Threads[8] = detect.Thread{TID: 7, PID: 7, Name: "a"}, detect.Thread{TID: 8, PID: 7, Name: "b"}
	s.Wakes[detect.Pair{Waker: 7, Wakee: 8}] = 100
	for _, asJSON := range []bool{false, true} {
		cmd := &cobra.Command{Use: "detect"}
		var out bytes.Buffer
		cmd.SetOut(&out)
		plot := filepath.Join(t.TempDir(), "none/a.svg")
		l := &looks{d: &detection{plot: plot, asJSON: asJSON}, h: coschedtest.Host(t), cmd: cmd, tracker: detect.NewTracker()}
		err := l.look(s, [2]*detect.Sample{s, s}, detect.Overhead{})
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitCantCreate || !strings.Contains(err.Error(), plot) || !strings.Contains(out.String(), "threads share hardly more inside of any groups") {
			t.Errorf("%v: %s", err, &out)
		}
	}
}

func TestDetectUsage(t *testing.T) {
	h := coschedtest.Host(t)
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"detect", cosched.ExitUsage, "give what to observe"},
		{"detect --pid 1 -- true", cosched.ExitUsage, "give what to observe"},
		{"detect --pid 0", cosched.ExitUsage, "--pid 0"},
		{"detect --pid x", cosched.ExitUsage, "--pid"},
		{"detect --pid 1 --for 10ms", cosched.ExitUsage, "at least 1s"},
		{"detect --pid 1 --limit 0", cosched.ExitUsage, "--limit 0"},
		{"detect --pid 1 --limit 101", cosched.ExitUsage, "--limit 101"},
		{"detect --pid 1 --plot a.gif", cosched.ExitUsage, ".png or .svg"},
		{"detect --pid 1 --apply ../x", cosched.ExitUsage, "is not the name of a cluster"},
	} {
		status, out, stderr := call(h, strings.Fields(c.args)...)
		if status != c.status || out != "" || !strings.Contains(stderr, c.text) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: %d, %q, %q", c.args, status, out, stderr)
		}
	}
}

func TestDetectNobody(t *testing.T) {
	needBPF(t)
	for _, c := range []struct {
		args   []string
		status int
		text   string
	}{
		// Above the greatest PID that Linux has.
		{[]string{"--pid", "99999999"}, cosched.ExitNoInput, "no such process"},
		{[]string{"--cgroup", "/sys/fs/cgroup/nowhere"}, cosched.ExitNoInput, "no such cgroup"},
		{[]string{"--", "/nowhere"}, notFound, "no such command"},
	} {
		status, out, stderr := runCosched(t, append([]string{"detect"}, c.args...)...)
		if status != c.status || out != "" || !strings.Contains(stderr, c.text) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d, %q, %q", c.args, status, out, stderr)
		}
	}
	// A process that ends while it is observed is not an error.
	sleep := exec.Command("sleep", "1")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	go sleep.Wait()
	status, out, stderr := runCosched(t, "detect", "--pid", strconv.Itoa(sleep.Process.Pid), "--for", "60s")
	if status != 0 || !strings.Contains(out, "No groups") {
		t.Errorf("ended: %d, %q, %q", status, out, stderr)
	}
}

// A script without #! is run by sh, as with run and schedstat record.
func TestDetectScript(t *testing.T) {
	needBPF(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := runCosched(t, "detect", "--", script, "hello"); status != 0 || !strings.HasPrefix(out, "hello\nNo groups") {
		t.Errorf("%d, %s%s", status, out, errs)
	}
}

// When observing has ended, a command that ignores signals does not keep others from ending cosched.
func TestDetectWaiting(t *testing.T) {
	needBPF(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), "detect", "--for", "1s", "--", "sh", "-c", "trap '' TERM; exec sleep 60")
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	pid := 0
	for pid == 0 && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "cosched detect: note: observing has ended; waiting for sh (PID %d)", &pid)
	}
	if pid == 0 {
		t.Fatal("no note")
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if _ = cmd.Wait(); ctx.Err() != nil {
		t.Error("it still waits")
	}
}

// A command is observed to its end, unless its threads are to be moved.
func TestDetectCommandTime(t *testing.T) {
	const given = 10 * time.Second
	for _, c := range []struct {
		apply  string
		follow bool
		timed  bool
		want   time.Duration
	}{
		{"", false, false, 0},
		{"", false, true, given},
		{"", true, false, given},
		{"shop", false, false, given},
	} {
		d := detection{lasting: given, limit: 5, apply: c.apply, follow: c.follow}
		if err := d.check([]string{"true"}, c.timed); err != nil || d.lasting != c.want {
			t.Errorf("%+v: %v, %v", c, d.lasting, err)
		}
	}
}
