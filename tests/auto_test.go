package tests

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// Automatic homes are where they should be, and stay there. selftests/test_cosched_auto.c
// says what is checked.
func TestAuto(t *testing.T) {
	const (
		isolated = "isolated" // tested in a guest of its own, below
		full     = "core_cookies_full"
		twice    = "core_cookies_twice" // both need SMT
	)
	for preset, maySkip := range map[string][]string{
		"uma8": {"grows_and_shrinks", "bandwidth", isolated, full, twice}, // need four LLC domains
		"smt8": {"grows_and_shrinks", "bandwidth", isolated},
		"demo": {isolated, full, twice},
	} {
		forSeeds(t, preset, func(t *testing.T, seed uint64) {
			placement(t, "auto", seed, vm.Config{Topology: topology(t, preset)}, maySkip...)
		})
	}
	t.Run("isolcpus", func(t *testing.T) {
		t.Parallel()
		// Of the four LLC domains, half of the second and all of the last one are isolated.
		placement(t, "auto", 1, vm.Config{
			Topology: topology(t, "demo"),
			Cmdline:  []string{"isolcpus=domain,6-7,12-15"},
			Command:  []string{"-t", isolated},
		})
	})
}

// The kernel traces which home it chooses, and why.
func TestAutoTraced(t *testing.T) {
	out := sh(t, "paper", `
		cd /sys/kernel/tracing
		echo 1 >events/cosched/cosched_home_auto/enable
		echo +cosched >/sys/fs/cgroup/cgroup.subtree_control
		mkdir /sys/fs/cgroup/busy
		sh -c 'echo 0 >/sys/fs/cgroup/busy/cgroup.procs; while :; do :; done' & busy=$!
		sleep 1
		echo auto >/sys/fs/cgroup/busy/cosched.cpus_preferred
		sleep 1
		kill $busy
		cat trace`, exact)
	if want := regexp.MustCompile(`cosched_home_auto: cgroup=\d+ home=[0,]*[3c] reason=new batch=0 demand=\d+ capacity=2048 load=\d+`); !want.MatchString(out) {
		t.Errorf("no line matches %s:\n%s", want, out)
	}
}

// Automatic homes settle within half a second after a step of load, and then stay for a
// minute. No home goes to and fro in a hundred patterns of load made of random numbers, of
// 10 s each. A failure names the pattern; Documentation/testing.rst says how to run one
// pattern alone, and selftests/test_cosched_steady.c says what is checked.
func TestAutoSteady(t *testing.T) {
	if !long() {
		t.Skip("20 minutes of the guests' time: run by make test-long")
	}
	run := func(t *testing.T, preset string, args ...string) {
		t.Parallel()
		placement(t, "steady", 1, vm.Config{
			Topology: topology(t, preset),
			Command:  args,
			// The workers then look at the clock every 100 us only, which costs a tenth.
			Virtual: &vm.VirtualTime{Pause: 10 * time.Microsecond},
			Timeout: time.Hour,
		})
	}
	for _, preset := range []string{"demo", "uma8"} {
		t.Run("steady/"+preset, func(t *testing.T) { run(t, preset, "-t", "steady") })
	}
	// Fewer patterns run on the smaller machine and on the one with four nodes.
	const each = 10
	for i, preset := range []string{"demo", "demo", "demo", "demo", "demo", "demo", "uma8", "uma8", "cfs-talk", "cfs-talk"} {
		first := 1 + i*each
		t.Run(fmt.Sprintf("patterns/%s/%d-%d", preset, first, first+each-1), func(t *testing.T) {
			run(t, preset, "-t", "random_patterns", "--first", strconv.Itoa(first), "--patterns", strconv.Itoa(each))
		})
	}
}

// Automatic homes follow memory, as far as NUMA balancing knows where it is, and NUMA
// balancing moves no task out of its home.
func TestNUMA(t *testing.T) {
	forSeeds(t, "cfs-talk", func(t *testing.T, seed uint64) {
		placement(t, "numa", seed, vm.Config{Topology: topology(t, "cfs-talk")})
	})
}

// With 1,000 clusters on 64 LLC domains, batch or not, automatic homes take less than a million
// instructions every 100 ms. Pressure stall information is off, as it has kworkers of its own
// for each cgroup.
func TestAutoCost(t *testing.T) {
	placement(t, "auto_cost", 1, vm.Config{
		Topology: vm.Topology{Sockets: 1, Dies: 64, Cores: 1, Threads: 1},
		Cmdline:  []string{"psi=0"},
		Timeout:  10 * time.Minute,
	})
}
