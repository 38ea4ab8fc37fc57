package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/schedstat/schedstattest"
)

// counting makes the machine count, as Debian's Linux 7.3.4 did.
func counting(t *testing.T, h cosched.Host) {
	t.Helper()
	for file, text := range map[string]string{
		"schedstat":                   schedstattest.File(t, "v17-before"),
		"sys/kernel/sched_schedstats": "1\n",
		"sys/kernel/osrelease":        "7.3.4\n",
		"sys/kernel/hostname":         "till\n",
	} {
		coschedtest.Append(t, filepath.Join(h.Proc, file), text)
	}
}

// files writes files into a new directory.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		coschedtest.Append(t, filepath.Join(dir, name), text)
	}
	return dir
}

// mail is a recording with one of the mail's reports.
func mail(t *testing.T, name string) string {
	m := schedstattest.ReadMail(t, name)
	before, after := m.Counters(t, 16)
	lines := func(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
	text, err := json.Marshal(map[string]any{
		"schedstat_recording": 1, "kernel": "2.6.13", "seconds": m.Seconds, "command": []string{"oltp", name}, "before": lines(before), "after": lines(after),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSchedstatRecord(t *testing.T) {
	h := coschedtest.Host(t)
	counting(t, h)
	dir := files(t, map[string]string{"after": schedstattest.File(t, "v17-after")})
	file := filepath.Join(dir, "r.json")
	record := func(args ...string) (int, string, string) {
		return call(h, append([]string{"schedstat", "record", "-o", file}, args...)...)
	}
	read := func() (r struct {
		Recording              int `json:"schedstat_recording"`
		Kernel, Hostname       string
		Command, Before, After []string
		ExitStatus             *int `json:"exit_status"`
		Started                time.Time
		Seconds                float64
	}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	// The command's output and status, and what it made the kernel count. What follows it is its own.
	script := fmt.Sprintf("echo hello; cp %s/after %s/schedstat; exit 3", dir, h.Proc)
	status, out, errs := record("sh", "-c", script)
	if status != 3 || out != "hello\n" || errs != "" {
		t.Fatalf("%d, %q, %q", status, out, errs)
	}
	r := read()
	if r.Recording != 1 || r.Kernel != "7.3.4" || r.Hostname != "" || strings.Join(r.Command, "|") != "sh|-c|"+script || r.ExitStatus == nil || *r.ExitStatus != 3 ||
		r.Started.IsZero() || r.Seconds <= 0 || r.Before[1] != "timestamp 4294893754" || r.After[1] != "timestamp 4294923565" {
		r.Before, r.After = r.Before[:2], r.After[:2]
		t.Errorf("%+v", r)
	}
	// A second recording replaces it.
	if status, _, errs := record("--hostname", "--", "sh", "-c", "kill -KILL $$"); status != 128+9 || errs != "" || *read().ExitStatus != 137 || read().Hostname != "till" {
		t.Errorf("killed: %d, %s, %+v", status, errs, read())
	}
	noInterpreter := filepath.Join(dir, "script")
	if err := os.WriteFile(noInterpreter, []byte("echo $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := record(noInterpreter, "word"); status != 0 || out != "word\n" || errs != "" {
		t.Errorf("a script: %d, %q, %q", status, out, errs)
	}
	if status, out, errs := record("--for", "1ms"); status != 0 || out+errs != "" || read().Command != nil || read().ExitStatus != nil || read().Seconds < 0.001 {
		t.Errorf("%d, %s%s, %+v", status, out, errs, read())
	}
}

// An existing file is kept until the new recording is complete, and no other file is left behind.
func TestSchedstatReplace(t *testing.T) {
	h := coschedtest.Host(t)
	counting(t, h)
	dir := files(t, map[string]string{"r.json": "old\n", "target": "old\n"})
	file, link := filepath.Join(dir, "r.json"), filepath.Join(dir, "link")
	if err := errors.Join(os.Chmod(file, 0o640), os.Symlink("target", link)); err != nil {
		t.Fatal(err)
	}
	record := func(name string, command ...string) (int, string) {
		t.Helper()
		status, out, errs := call(h, append([]string{"schedstat", "record", "-o", name}, command...)...)
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("%q leaves %q", command, left)
		}
		return status, out + errs
	}
	whole := func(name string) {
		t.Helper()
		if status, _, errs := call(h, "schedstat", "report", name); status != 0 {
			t.Errorf("%d: %s", status, errs)
		}
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	counters := filepath.Join(h.Proc, "schedstat")
	for _, name := range []string{file, link} {
		if status, says := record(name, broken); status != 126 || !strings.Contains(says, broken) {
			t.Errorf("not started: %d, %s", status, says)
		}
		if status, says := record(name, "sh", "-c", "mv "+counters+" "+counters+".gone"); status != 125 || !strings.Contains(says, counters) {
			t.Errorf("no counters at the end: %d, %s", status, says)
		}
		if err := os.Rename(counters+".gone", counters); err != nil {
			t.Fatal(err)
		}
		if status, says := record(name, "cat", name); status != 0 || says != "old\n" {
			t.Errorf("meanwhile: %d, %s", status, says)
		}
		whole(name)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if to, err := os.Readlink(link); to != "target" {
		t.Errorf("the link is no more: %v", err)
	}
	// The mode of a new file follows the umask.
	defer syscall.Umask(syscall.Umask(0o027))
	status, says := record(filepath.Join(dir, "new"), "true")
	if info, err := os.Stat(filepath.Join(dir, "new")); status != 0 || err != nil || info.Mode() != 0o640 {
		t.Errorf("%d, %s: %v, %v", status, says, info, err)
	}
	// The folder is gone when the recording is complete.
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	if status, says := record(filepath.Join(gone, "r"), "rm", "-r", gone); status != 125 || !strings.Contains(says, filepath.Join(gone, "r")+": ") {
		t.Errorf("%d, %s", status, says)
	}
	// Standard output, a pipe.
	cmd := exec.Command(os.Args[0], "schedstat", "record", "-o", "/dev/stdout", "true")
	cmd.Env = append(os.Environ(), treeVariable+"="+filepath.Dir(h.Proc))
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	coschedtest.Append(t, filepath.Join(dir, "piped"), string(text))
	whole(filepath.Join(dir, "piped"))
}

// interrupt sends a signal to this process once a file is in a folder.
func interrupt(t *testing.T, s syscall.Signal, dir string) {
	go func() {
		for range 1000 {
			if files, err := os.ReadDir(dir); err == nil && len(files) > 0 {
				_ = syscall.Kill(os.Getpid(), s)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

// A signal ends a recording early, and is passed on to a command. What was counted until then is in
// the file.
func TestSchedstatInterrupt(t *testing.T) {
	h := coschedtest.Host(t)
	counting(t, h)
	for _, tc := range []struct {
		signal syscall.Signal
		args   []string
		status int
	}{
		{syscall.SIGINT, []string{"--for", "1h"}, 0},
		{syscall.SIGTERM, []string{"sleep", "3600"}, 128 + 15},
	} {
		file := filepath.Join(t.TempDir(), "r.json")
		// When the new file exists, the command already handles signals.
		interrupt(t, tc.signal, filepath.Dir(file))
		status, _, errs := call(h, append([]string{"schedstat", "record", "-o", file}, tc.args...)...)
		if status != tc.status || errs != "" {
			t.Errorf("%v: %d: %s", tc.args, status, errs)
		}
		if status, _, errs := call(h, "schedstat", "report", file); status != 0 {
			t.Errorf("%v: %s", tc.args, errs)
		}
	}
}

// The mail's tables.
func TestSchedstatReport(t *testing.T) {
	h := coschedtest.Host(t)
	dir := files(t, map[string]string{"numa": mail(t, "numa"), "before": schedstattest.File(t, "v17-before"), "after": schedstattest.File(t, "v17-after")})
	status, out, errs := call(h, "schedstat", "report", filepath.Join(dir, "numa"))
	if status != 0 || errs != "" {
		t.Fatalf("%d: %s", status, errs)
	}
	for _, line := range []string{
		"oltp numa, 545.000 s, Linux 2.6.13",
		"all 4424.56 0.19 1.17 23287180 23287180 0.00 0 - 2845",
		"domain 0: CPU 0-7 in 4 domains of 2 CPUs",
		"calls, of all 112240 7.91 316022 22.27 990681 69.82",
		"failed 499 0.44 21 0.01 533 0.05",
		"no busier group 80433 71.66 220440 69.75 808816 81.64",
		"moved a task 31308 27.89 95561 30.24 181332 18.30",
		"average imbalance 1.549 1.727 1.500",
		"domain 2: CPU 0-7 in 1 domain of 8 CPUs",
		"failed 17791 34.16 1072 11.26 262831 34.40",
	} {
		if !strings.Contains(words(out), line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	// A command of several lines, as sh -c takes it, is one line here.
	script := filepath.Join(files(t, map[string]string{"script": strings.Replace(mail(t, "numa"), `"oltp"`, `"sh","-c","a\n\tb\u001b[2J"`, 1)}), "script")
	if status, out, errs := call(h, "schedstat", "report", script); status != 0 || !strings.HasPrefix(out, `sh -c a\n\tb\x1b[2J numa, 545.000 s`) {
		t.Errorf("%d: %s%s", status, errs, out)
	}
	// Two copies of the file, and one, which is the time since boot, as is the machine's own.
	status, out, _ = call(h, "schedstat", "report", filepath.Join(dir, "before"), filepath.Join(dir, "after"))
	if status != 0 || !strings.Contains(words(out), "SMT: CPU 0-7 in 4 domains of 2 CPUs") || !strings.Contains(words(out), "average imbalance, load 62.578 487.658 0.000") ||
		strings.Contains(out, "misfit") || strings.Contains(out, "boot") {
		t.Errorf("%d\n%s", status, out)
	}
	counting(t, h)
	_, one, _ := call(h, "schedstat", "report", filepath.Join(dir, "before"))
	_, now, _ := call(h, "schedstat", "report")
	if !strings.HasPrefix(one, "since boot") || strings.Replace(now, "\nLinux 7.3.4\n", "\n", 1) != one {
		t.Errorf("%s\nnow\n%s", one, now)
	}
	for boot, args := range map[bool][]string{true: {filepath.Join(dir, "before")}, false: {filepath.Join(dir, "before"), filepath.Join(dir, "after")}} {
		if _, out, _ := call(h, append([]string{"schedstat", "report", "--json"}, args...)...); strings.Contains(out, `"since_boot": true`) != boot {
			t.Errorf("%v: %.200s", args, out)
		}
	}
	var r struct {
		Version int
		Seconds float64
		CPUs    []struct{ CPU int }
		All     struct {
			AverageWait float64 `json:"average_wait_ms"`
		}
		Levels []struct {
			Name string
			Idle struct {
				NoGroup    int `json:"no_busier_group"`
				Imbalances []struct{ Average *float64 }
			}
		}
	}
	_, out, _ = call(h, "schedstat", "report", "--json", filepath.Join(dir, "numa"))
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Version != 16 || r.Seconds != 545 || r.CPUs[7].CPU != 7 || r.All.AverageWait != 1.17 ||
		len(r.Levels) != 3 || r.Levels[1].Name != "domain 1" || r.Levels[1].Idle.NoGroup != 70982 || fmt.Sprintf("%.3f", *r.Levels[1].Idle.Imbalances[0].Average) != "1.348" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSchedstatDiff(t *testing.T) {
	h := coschedtest.Host(t)
	dir := files(t, map[string]string{"a": mail(t, "numa"), "b": mail(t, "no-numa")})
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	status, out, errs := call(h, "schedstat", "diff", "-n", "3", a, b)
	_, changes, _ := strings.Cut(out, "CHANGE")
	lines := strings.Split(changes, "\n")
	if status != 0 || errs != "" || !strings.Contains(words(out), "oltp numa, 545.000 s, Linux 2.6.13 B ") || !strings.Contains(out, "\ndomain 2 is in A only, with 825662 calls of the balancer\n") ||
		len(lines) != 7 || words(lines[1]) != "from 0 0 4.686 all CPUs schedule() goes idle, %" || words(lines[2]) != "x 2.37 5.595 13.29 domain 1, newly idle moved a task, % of calls" {
		t.Errorf("%d: %s\n%s", status, errs, out)
	}
	if _, all, _ := call(h, "schedstat", "diff", "-n", "0", a, b); !strings.Contains(words(all), "-6.0 % 1.17 1.1 all CPUs average wait, ms") || !strings.Contains(all, "\n0 more changed; ") {
		t.Errorf("%s", all)
	}
	if _, back, _ := call(h, "schedstat", "diff", b, a); !strings.Contains(words(back), "to 0 4.686 0 all CPUs") || !strings.Contains(words(back), "/ 2.37 13.29 5.595") || !strings.Contains(back, "domain 2 is in B only") {
		t.Errorf("%s", back)
	}
	var d struct {
		A       struct{ Name string }
		Only    []struct{ In, Level string }
		Changes []struct {
			Level, Kind, What string
			A, B              float64
			Factor            *float64
			AtLeast           float64 `json:"at_least"`
		}
	}
	_, out, _ = call(h, "schedstat", "diff", "--json", a, b)
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.A.Name != a || len(d.Only) != 1 || d.Only[0].In != "A" || d.Changes[0].Factor != nil ||
		d.Changes[1].Kind != "newly idle" || *d.Changes[1].Factor < d.Changes[1].AtLeast || d.Changes[len(d.Changes)-1].AtLeast != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSchedstatErrors(t *testing.T) {
	h := coschedtest.Host(t)
	counting(t, h)
	dir := files(t, map[string]string{"numa": mail(t, "numa"), "damaged": mail(t, "numa")[:5000], "v15": schedstattest.File(t, "v15-after"), "v17": schedstattest.File(t, "v17-after")})
	if err := os.WriteFile(filepath.Join(dir, "secret"), nil, 0); err != nil {
		t.Fatal(err)
	}
	check := func(args string, status int, says string) {
		t.Helper()
		got, out, errs := call(h, strings.Fields("schedstat "+strings.ReplaceAll(args, "DIR", dir))...)
		if got != status || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "cosched schedstat") || !strings.Contains(errs, says) {
			t.Errorf("%s: status %d, want %d; says %q, want %q", args, got, status, errs, says)
		}
	}
	for _, tc := range []struct {
		args   string
		status int
		says   string
	}{
		{"nonsense", 64, `unknown command "nonsense"`},
		{"report DIR/none", 66, "DIR/none: no such file"},
		{"report DIR", 74, "is a directory"},
		{"report DIR/damaged", 65, "DIR/damaged: neither a recording"},
		{"report DIR/v15 DIR/v17", 65, "DIR/v15, DIR/v17: version 15, then 17: snapshots of two kernels"},
		{"report DIR/v17 DIR/numa", 64, "DIR/numa is a recording, which has its two snapshots"},
		{"report a b c", 64, "accepts at most 2 arg"},
		{"diff DIR/numa", 64, "accepts 2 arg"},
		{"diff DIR/numa DIR/none", 66, "no such file"},
		{"diff DIR/numa DIR/numa --top -1", 64, "--top -1: want 0"},
		{"record", 125, "want either a command or --for"},
		{"record --for 1s true", 125, "want either a command or --for"},
		{"record --for 0s", 125, "--for 0s: want a time above 0"},
		{"record --for nonsense", 125, "invalid argument"},
		{"record --nonsense", 125, "unknown flag"},
		{"record --output= true", 125, "no file to write to"},
		{"record -o DIR true", 125, "DIR: is a directory"},
		{"record -o DIR/none/file true", 125, "DIR/none/file: no such file"},
		{"record -o DIR/r nosuchprogram", 127, "nosuchprogram: no such command in PATH"},
		{"record -o DIR/r /etc/passwd", 126, "cannot be executed: permission denied"},
	} {
		check(tc.args, tc.status, strings.ReplaceAll(tc.says, "DIR", dir))
	}
	if os.Geteuid() != 0 {
		check("report DIR/secret", 77, "permission denied")
	}
	// With a full disk, cosched does not report the success of the command.
	if status, _, errs := call(h, "schedstat", "record", "-o", "/dev/full", "true"); status != 125 || !strings.Contains(errs, "/dev/full: no space left") {
		t.Errorf("%d: %s", status, errs)
	}
	// If nothing can be recorded, the existing file is not replaced.
	out := filepath.Join(dir, "v15")
	none := func(says string) {
		t.Helper()
		check("report", 69, says)
		check("record -o "+out+" true", 125, says)
		if text, err := os.ReadFile(out); err != nil || string(text) != schedstattest.File(t, "v15-after") {
			t.Errorf("%v: %.20s", err, text)
		}
	}
	coschedtest.Replace(t, filepath.Join(h.Proc, "sys/kernel/sched_schedstats"), "0\n")
	none("/sys/kernel/sched_schedstats: 0: the kernel does not count: as root, sysctl kernel.sched_schedstats=1, or boot with schedstats=enable")
	if err := os.Remove(filepath.Join(h.Proc, "schedstat")); err != nil {
		t.Fatal(err)
	}
	none("/schedstat: not there: boot a kernel with CONFIG_SCHEDSTATS=y")
}
