package tests

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// selftest is a run of one of the C programs of selftests/ in a guest. The source of
// the program says what its tests check.
type selftest struct {
	name    string // of the Go test; the program's when empty
	program string // without test_cosched_
	args    []string
	variant string // of the kernel; test when empty
	preset  string // paper when empty: four CPUs, which all of the programs need
	cmdline []string
	online  int
	maySkip []string
	timeout time.Duration // 5 minutes when 0
	shift   int           // how slow the guest's CPUs are: vm.VirtualTime
	// parallel runs the guest's CPUs in parallel on the host, not in virtual time, for
	// races finer than a translation block.
	parallel bool
}

func (s selftest) String() string {
	if s.name != "" {
		return s.name
	}
	return s.program
}

// run boots the guest and makes each of the program's tests a subtest. It returns
// the kernel's console output.
func (s selftest) run(t *testing.T) (console string) {
	t.Helper()
	if s.variant == "" {
		s.variant = "test"
	}
	if s.preset == "" {
		s.preset = "paper"
	}
	if s.timeout == 0 {
		s.timeout = 5 * time.Minute
	}
	program := filepath.Join(programs(t, "selftests"), "test_cosched_"+s.program)
	c := vm.Config{
		Name:     t.Name(),
		Kernel:   kernel(t, s.variant).Image,
		Topology: topology(t, s.preset),
		Online:   s.online,
		Cmdline:  s.cmdline,
		Command:  append([]string{program}, s.args...),
		Timeout:  s.timeout,
		// A warning of the kernel is a failure, whatever the program's results are.
		FailOnReport: true,
	}
	if !s.parallel {
		exact(&c)
		c.Virtual.Shift = s.shift
	}
	res, err := vm.Run(t.Context(), c)
	if res == nil {
		t.Fatal(err)
	}
	// Also if the guest did not come to its end: the results so far show how far it got.
	report := parseKTAP(string(res.Stdout))
	report.each(t, s.maySkip...)
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitStatus != 0 && !t.Failed() {
		t.Errorf("the program exits with %d", res.ExitStatus)
	}
	if len(res.Stderr) > 0 {
		t.Errorf("standard error:\n%s", res.Stderr)
	}
	return res.Console
}

func runSelftests(t *testing.T, list []selftest) {
	t.Helper()
	for _, s := range list {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

// hotplugSkips are the tests that cannot run here. A guest with all of its CPUs online has no
// absent CPU; the guest of TestAbsentCPU has. Suspend is tested with the debug kernel, which has
// the options for it.
var hotplugSkips = []string{"absent_cpu_named", "suspended"}

// The files hold, refuse, inherit and count what the documentation says.
func TestFiles(t *testing.T) {
	t.Parallel()
	runSelftests(t, []selftest{
		{program: "files"},
		{program: "tree"},
		{program: "figures"},
		{program: "hotplug", maySkip: hotplugSkips},
		{program: "delegation"},
		{program: "modes", args: []string{"-t", "ordinary_"}},
		// smt8 has SMT siblings and two nodes; epyc has 32 CPUs, every four with an LLC domain
		// of their own.
		{name: "figures/smt8", program: "figures", preset: "smt8"},
		{name: "load/epyc", program: "figures", preset: "epyc", args: []string{"-t", "load_format"}},
		{name: "model/demo", program: "tree", preset: "demo", args: []string{"-t", "inheritance_model", "--seed", "2"}},
	})
}

// A preference may name a CPU that the machine could have but does not have.
func TestAbsentCPU(t *testing.T) {
	t.Parallel()
	selftest{program: "hotplug", preset: "demo", online: 4, args: []string{"-t", "absent_cpu_named"}}.run(t)
}

// With cgroup.cosched=implicit, the files are in every cgroup and do the same.
func TestImplicit(t *testing.T) {
	t.Parallel()
	implicit := []string{"cgroup.cosched=implicit"}
	runSelftests(t, []selftest{
		{program: "modes", args: []string{"-t", "implicit_"}, cmdline: implicit},
		{program: "files", cmdline: implicit},
		// Nobody can disable an implicit controller.
		{program: "tree", cmdline: implicit, maySkip: []string{"disabled_and_enabled", "disabled_under_forks"}},
		{program: "figures", cmdline: implicit},
		{program: "hotplug", cmdline: implicit, maySkip: hotplugSkips},
		{program: "delegation", cmdline: implicit},
		{program: "churn", cmdline: implicit, args: []string{"-t", "churn_plain", "--seconds", "10"}, shift: 3},
	})
}

// cgroup_disable= works as for any controller.
func TestDisabledAtBoot(t *testing.T) {
	t.Parallel()
	selftest{program: "modes", args: []string{"-t", "absent_"}, cmdline: []string{"cgroup_disable=cosched"}}.run(t)
}

// A mode that does not exist is reported and leaves the default in force.
func TestUnknownMode(t *testing.T) {
	t.Parallel()
	const word = "telepathic"
	console := selftest{program: "modes", args: []string{"-t", "ordinary_"}, cmdline: []string{"cgroup.cosched=" + word, "loglevel=7"}}.run(t)
	reported := false
	for line := range strings.Lines(console) {
		// The kernel prints its command line in any case.
		if strings.Contains(line, word) && !regexp.MustCompile(`(?i)command line:`).MatchString(line) {
			reported = true
		}
	}
	if !reported {
		t.Errorf("the kernel says nothing of the unknown value of cgroup.cosched; it said:\n%s", console)
	}
}

func churnSeconds() string {
	if long() {
		return "30"
	}
	return "8"
}

// A thousand clusters are created and removed while their tasks are active, and leave nothing
// behind.
func TestChurn(t *testing.T) {
	t.Parallel()
	runSelftests(t, []selftest{{program: "churn", args: []string{"--seconds", churnSeconds()}, shift: 3, timeout: 20 * time.Minute}})
}
