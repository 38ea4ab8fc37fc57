package tests

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// Automatic homes are where they should be, and stay there. What is checked is said in
// selftests/test_cosched_auto.c.
func TestAuto(t *testing.T) {
	const (
		isolated = "isolated" // has a guest of its own, below
		full     = "core_cookies_full"
		twice    = "core_cookies_twice" // need SMT
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
		// Of four LLC domains the second is half isolated, and the last one wholly.
		placement(t, "auto", 1, vm.Config{
			Topology: topology(t, "demo"),
			Cmdline:  []string{"isolcpus=domain,6-7,12-15"},
			Command:  []string{"-t", isolated},
		})
	})
}

// The kernel says why it chooses a home, and which.
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

// Automatic homes settle within half a second of a step of load and stay for a minute; and
// none goes to and fro in a hundred patterns made of random numbers, of 10 s each. A failure
// names the pattern; Documentation/testing.rst says how to run one alone, and
// selftests/test_cosched_steady.c what is checked.
func TestAutoSteady(t *testing.T) {
	if !long() {
		t.Skip("20 minutes of the guests' time: run by make test-long")
	}
	run := func(t *testing.T, preset string, args ...string) {
		t.Parallel()
		placement(t, "steady", 1, vm.Config{
			Topology: topology(t, preset),
			Command:  args,
			// Workers that look at the clock every 100 us, and so cost a tenth.
			Virtual: &vm.VirtualTime{Pause: 10 * time.Microsecond},
			Timeout: time.Hour,
		})
	}
	for _, preset := range []string{"demo", "uma8"} {
		t.Run("steady/"+preset, func(t *testing.T) { run(t, preset, "-t", "steady") })
	}
	// Of the smaller machine and of the one with four nodes there are fewer.
	const each = 10
	for i, preset := range []string{"demo", "demo", "demo", "demo", "demo", "demo", "uma8", "uma8", "cfs-talk", "cfs-talk"} {
		first := 1 + i*each
		t.Run(fmt.Sprintf("patterns/%s/%d-%d", preset, first, first+each-1), func(t *testing.T) {
			run(t, preset, "-t", "random_patterns", "--first", strconv.Itoa(first), "--patterns", strconv.Itoa(each))
		})
	}
}

// Automatic homes follow memory, as NUMA balancing knows of it; and that moves no task out of
// its home.
func TestNUMA(t *testing.T) {
	forSeeds(t, "cfs-talk", func(t *testing.T, seed uint64) {
		placement(t, "numa", seed, vm.Config{Topology: topology(t, "cfs-talk")})
	})
}

// With 1,000 clusters on 64 LLC domains, batch or not, automatic homes take less than a million
// instructions each 100 ms. Pressure stall information has kworkers of its own, for each cgroup.
func TestAutoCost(t *testing.T) {
	placement(t, "auto_cost", 1, vm.Config{
		Topology: vm.Topology{Sockets: 1, Dies: 64, Cores: 1, Threads: 1},
		Cmdline:  []string{"psi=0"},
		Timeout:  10 * time.Minute,
	})
}
