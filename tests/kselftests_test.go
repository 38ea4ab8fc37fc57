package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// kernelTests are the C programs of the kernel's own tools/testing/selftests that
// this project must not break. The shell scripts beside them are left out: they
// need bash and the tools of a whole system.
var kernelTests = []struct {
	dir, program string
	preset       string
	timeout      time.Duration
	mustPass     string // a test that must pass on the unmodified kernel, so that there is something to compare
}{
	{"cgroup", "test_core", "paper", 2 * time.Minute, "test_cgcore_populated"},
	{"cgroup", "test_cpu", "paper", 8 * time.Minute, "test_cpucg_subtree_control"},
	{"cgroup", "test_cpuset", "paper", 2 * time.Minute, "test_cpuset_perms_object_allow"},
	{"cgroup", "test_freezer", "paper", 3 * time.Minute, "test_cgfreezer_simple"},
	{"cgroup", "test_hugetlb_memcg", "paper", 2 * time.Minute, ""},
	{"cgroup", "test_kill", "paper", 2 * time.Minute, "test_cgkill_simple"},
	{"cgroup", "test_kmem", "paper", 5 * time.Minute, "test_kmem_dead_cgroups"},
	{"cgroup", "test_memcontrol", "paper", 5 * time.Minute, "test_memcg_subtree_control"},
	{"cgroup", "test_pids", "paper", 2 * time.Minute, "test_pids_max"},
	{"cgroup", "test_zswap", "paper", 2 * time.Minute, ""},
	// Core scheduling needs SMT siblings.
	{"sched", "cs_prctl_test", "smt8", 2 * time.Minute, "exit status 0"},
}

// outcomes has the outcomes of each test of a program, in one or more runs.
type outcomes map[string]map[outcome]bool

func (o outcomes) add(results []ktapResult) {
	for _, r := range results {
		if o[r.Name] == nil {
			o[r.Name] = map[outcome]bool{}
		}
		o[r.Name][r.Outcome] = true
	}
}

// worse lists the tests that passed in no run on this kernel, and that either passed in
// a run on the unmodified kernel or have no outcome in common with it.
func (o outcomes) worse(unmodified outcomes) []string {
	var list []string
	for name, before := range unmodified {
		ours := o[name]
		if ours[passed] {
			continue
		}
		same := false
		for have := range ours {
			same = same || before[have]
		}
		// A test that ever passed there has to pass here.
		if !same || before[passed] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func (o outcomes) show(name string) string {
	var s []string
	for _, k := range []outcome{passed, failed, skipped} {
		if o[name][k] {
			s = append(s, k.String())
		}
	}
	if len(s) == 0 {
		return "no result"
	}
	return strings.Join(s, " or ")
}

func TestWorse(t *testing.T) {
	run := func(s string) outcomes {
		o := outcomes{}
		for _, f := range strings.Fields(s) {
			name, what, _ := strings.Cut(f, "=")
			o.add([]ktapResult{{Name: name, Outcome: map[string]outcome{"pass": passed, "fail": failed, "skip": skipped}[what]}})
		}
		return o
	}
	tests := []struct{ unmodified, ours, worse string }{
		{"a=pass b=fail c=skip", "a=pass b=fail c=skip", ""},
		{"a=pass", "a=fail", "a"},
		{"a=pass", "a=skip", "a"},
		{"a=pass", "", "a"},
		{"a=fail", "a=pass", ""},
		{"a=skip", "a=fail", "a"},
		{"a=fail", "a=skip", "a"},
		{"a=pass a=fail", "a=fail", "a"},
		{"a=pass", "a=fail a=pass", ""},
		{"a=fail a=skip", "a=skip", ""},
	}
	for _, test := range tests {
		if got := strings.Join(run(test.ours).worse(run(test.unmodified)), " "); got != test.worse {
			t.Errorf("%q after %q: worse are %q, expected %q", test.ours, test.unmodified, got, test.worse)
		}
	}
}

// kernelSelftests builds the programs from the source package, once per version
// of it, and returns the directory with them.
func kernelSelftests(t *testing.T) string {
	t.Helper()
	vanilla := kernel(t, "vanilla")
	out := filepath.Join(filepath.Dir(vanilla.BuildDir), "kselftests-"+vanilla.Version)
	for _, dir := range []string{"cgroup", "sched"} {
		to := filepath.Join(out, dir)
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		// make itself finds out that nothing changed.
		cmd := exec.CommandContext(t.Context(), "make", "-s",
			"-C", filepath.Join(vanilla.SourceDir, "tools/testing/selftests", dir), "OUTPUT="+to, "LDFLAGS=-static")
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building the kernel's selftests/%s: %v\n%s", dir, err, text)
		}
	}
	return out
}

// checkLine is how cs_prctl_test, which prints no KTAP, reports each check.
var checkLine = regexp.MustCompile(`^\((\d+)\) (PASSED|FAILED): `)

const nextRun = "--- next run ---"

// runKernelTest adds the results of some runs of a program in one guest.
func (o outcomes) runKernelTest(t *testing.T, image, name, program, preset string, runs int, timeout time.Duration) {
	t.Helper()
	c := vm.Config{
		Name: name, Kernel: image, Topology: topology(t, preset),
		Programs: []string{program},
		// In a file system that charges its memory, and not as leader of a session,
		// as a leader cannot change its process group.
		Command: []string{"sh", "-c", "cd /tmp; for i in $(seq " + strconv.Itoa(runs) + "); do " +
			filepath.Base(program) + "; status=$?; echo; echo '" + nextRun + "'; done; exit $status"},
		Timeout: time.Duration(runs) * timeout,
	}
	exact(&c)
	c.Virtual.Shift = 4 // their loads never pause
	res, err := vm.Run(t.Context(), c)
	if res == nil {
		t.Fatal(err)
	}
	if t.Context().Err() != nil || vm.IsReport(err) {
		t.Fatal(err)
	}
	found := false
	for run := range strings.SplitSeq(string(res.Stdout), nextRun) {
		results := parseKTAP(run).Results
		found = found || len(results) > 0
		for line := range strings.Lines(run) {
			if m := checkLine.FindStringSubmatch(line); m != nil {
				r := ktapResult{Name: "line " + m[1]}
				if m[2] == "FAILED" {
					r.Outcome = failed
				}
				results = append(results, r)
			}
		}
		o.add(results)
	}
	end := ktapResult{Name: "comes to an end"}
	if err != nil {
		t.Log(err)
		end.Outcome = failed
	} else if !found {
		// The exit status of a program that prints results follows from them; of any other
		// program, the exit status is the result.
		o.add([]ktapResult{{Name: fmt.Sprintf("exit status %d", res.ExitStatus)}})
	}
	o.add([]ktapResult{end})
}

// The kernel's own tests give the same results on this kernel as on the unmodified
// one. They depend on timing (test_cgfreezer_ptrace checks at once something that another
// task has to do first, and fails on either kernel in half of the runs). Therefore, a
// program with other results is run again, and a result is worse only if no run gave what
// the unmodified kernel gave.
func TestKernelSelftests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	dir := kernelSelftests(t)
	vanilla, ours := kernel(t, "vanilla").Image, kernel(t, "test").Image
	for _, k := range kernelTests {
		t.Run(k.program, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(dir, k.dir, k.program)
			before, now := outcomes{}, outcomes{}
			before.runKernelTest(t, vanilla, k.program+"-vanilla", program, k.preset, 1, k.timeout)
			now.runKernelTest(t, ours, k.program, program, k.preset, 1, k.timeout)
			for range 3 {
				worse := now.worse(before)
				if len(worse) == 0 {
					break
				}
				t.Logf("other results for %s: three more runs", strings.Join(worse, ", "))
				now.runKernelTest(t, ours, k.program, program, k.preset, 3, k.timeout)
			}
			if k.mustPass != "" && !before[k.mustPass][passed] {
				t.Errorf("%s on the unmodified kernel: %s; nothing would be compared", k.mustPass, before.show(k.mustPass))
			}
			worse := now.worse(before)
			for name := range before {
				t.Run(name, func(t *testing.T) {
					t.Logf("unmodified: %s; with cosched: %s", before.show(name), now.show(name))
					if slices.Contains(worse, name) {
						t.Errorf("on the unmodified kernel: %s; with cosched: %s", before.show(name), now.show(name))
					}
				})
			}
		})
	}
}
