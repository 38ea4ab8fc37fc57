package tests

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// exact makes a guest's time a count of the instructions that its CPUs execute, so that
// what a test of placement states in milliseconds does not depend on how busy the host is.
func exact(c *vm.Config) {
	v := vm.VirtualTime{
		Seed: 1,
		// The workers spin with PAUSE: see selftests/rules_util.h.
		Pause: time.Microsecond,
		// What is measured here takes milliseconds.
		Quantum: 50 * time.Microsecond,
	}
	if c.Virtual != nil && c.Virtual.Pause != 0 {
		v.Pause = c.Virtual.Pause
	}
	c.Virtual = &v
	// A console is slow, and the CPU that has a message writes it to the console itself.
	c.Cmdline = append([]string{"quiet"}, c.Cmdline...)
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
}

// figures are what a program measured: lines "figure NAME VALUE UNIT" among its comments.
type figures map[string]float64

func parseFigures(out []byte) figures {
	f := figures{}
	for line := range strings.Lines(string(out)) {
		w := strings.Fields(line)
		if len(w) == 5 && w[0] == "#" && w[1] == "figure" {
			if v, err := strconv.ParseFloat(w[3], 64); err == nil {
				f[w[2]] = v
			}
		}
	}
	return f
}

// placement runs a C program of placement tests in an exact guest, makes each of
// its tests a subtest, and returns its figures.
func placement(t *testing.T, program string, seed uint64, c vm.Config, maySkip ...string) figures {
	t.Helper()
	path := filepath.Join(programs(t, "selftests"), "test_cosched_"+program)
	c.Command = append([]string{path}, c.Command...)
	c.Name = t.Name()
	c.FailOnReport = true
	if c.Kernel == "" {
		c.Kernel = kernel(t, "test").Image
	}
	exact(&c)
	c.Virtual.Seed = seed
	res, err := vm.Run(t.Context(), c)
	if res == nil {
		t.Fatal(err)
	}
	// Also if the guest did not come to its end: the results so far show how far it got.
	report := parseKTAP(string(res.Stdout))
	report.each(t, maySkip...)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Stderr) > 0 {
		t.Errorf("standard error:\n%s", res.Stderr)
	}
	return parseFigures(res.Stdout)
}

// forSeeds runs a test of placement with each of the seeds. The subtest is called NAME if
// there is one seed, and NAME/seed=N if there are several.
func forSeeds(t *testing.T, name string, f func(t *testing.T, seed uint64)) {
	for _, seed := range seeds() {
		sub := name
		if len(seeds()) > 1 {
			sub += "/seed=" + strconv.FormatUint(seed, 10)
		}
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			f(t, seed)
		})
	}
}

// Rules 1 to 8 and 10 hold. Each rule has one or more tests in
// selftests/test_cosched_rules.c, which says what they check.
func TestRules(t *testing.T) {
	t.Parallel()
	const (
		neighbours = "rule1_neighbours_first"         // needs a home of two LLC domains, and one outside
		cores      = "rule1_idle_core_before_sibling" // needs SMT
		coresFar   = "rule1_brief_to_idle_core"       // likewise
		own        = "rule3_woken_by_own"             // needs three CPUs in an LLC domain
		ownOut     = "rule4_woken_by_own"             // likewise
		cookies    = "rule8_core_cookies"             // needs SMT
		isolated   = "rule8_isolated_cpus"            // has a guest of its own, below
		inHome     = "rule8_isolated_in_home"         // likewise
		noSwap     = "rule8_isolated_no_swap"         // likewise
		bursts     = "rule3_overrun_bursts"           // needs a machine of eight CPUs at most
	)
	for preset, maySkip := range map[string][]string{
		"paper":    {neighbours, cores, coresFar, own, ownOut, cookies, isolated, inHome, noSwap},
		"demo":     {cores, coresFar, cookies, isolated, inHome, noSwap, bursts},
		"smt8":     {neighbours, isolated, inHome, noSwap},
		"cfs-talk": {cores, coresFar, cookies, isolated, inHome, noSwap, bursts},
	} {
		forSeeds(t, preset, func(t *testing.T, seed uint64) {
			placement(t, "rules", seed, vm.Config{Topology: topology(t, preset)}, maySkip...)
		})
	}
	t.Run("isolcpus", func(t *testing.T) {
		t.Parallel()
		placement(t, "rules", 1, vm.Config{
			Topology: topology(t, "paper"),
			Cmdline:  []string{"isolcpus=domain,3"},
			Command:  []string{"-t", "rule8_isolated"},
		})
	})
}

// Rule 5 for the idle class: soakers use all CPUs of two domains, one of which is the home of a
// cluster that sleeps and runs briefly. Homes of two CPUs, as on paper, are too small to show
// this.
func TestIdleClassSoaks(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"demo", "smt8", "cfs-talk"} {
		forSeeds(t, preset, func(t *testing.T, seed uint64) {
			placement(t, "soak", seed, vm.Config{Topology: topology(t, preset)})
		})
	}
}
