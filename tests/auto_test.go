package tests

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// Automatic homes are where they should be, and stay there. selftests/test_cosched_auto.c
// says what is checked.
func TestAuto(t *testing.T) {
	t.Parallel()
	const (
		isolated = "isolated" // tested in a guest of its own, below
		full     = "core_cookies_full"
		twice    = "core_cookies_twice" // both need SMT
	)
	for preset, maySkip := range map[string][]string{
		"uma8": {"grows_and_shrinks", "bandwidth", "bandwidth_above", "partition_shared", isolated, full, twice}, // need four LLC domains
		"smt8": {"grows_and_shrinks", "bandwidth", "bandwidth_above", "partition_shared", isolated},
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

// The kernel traces which home it chooses, and why: the first one of a cluster; a larger one when it has
// more tasks, and a smaller one when these end; another one when others come; and one without a CPU
// that goes offline, which is no choice and has no costs.
func TestAutoTraced(t *testing.T) {
	t.Parallel()
	out := workload(t, vm.Config{Topology: topology(t, "demo"), Virtual: &vm.VirtualTime{Seed: 1, Pause: 10 * time.Microsecond}}, "spin", `
		cd /sys/kernel/tracing
		echo 1 >events/cosched/cosched_home_auto/enable
		echo +cosched >/sys/fs/cgroup/cgroup.subtree_control
		cg=/sys/fs/cgroup/busy
		mkdir $cg
		spin -q -g $cg -t 0 -n 2 & few=$!
		sleep 1
		echo auto >$cg/cosched.cpus_preferred
		sleep 1
		spin -q -g $cg -t 0 -n 5 & more=$!
		sleep 1
		kill $more
		sleep 2
		home=$(cat $cg/cosched.cpus_preferred.effective)
		spin -q -t 0 -n 12 --cpus $home & others=$!
		sleep 1
		kill $others
		sleep 1
		home=$(cat $cg/cosched.cpus_preferred.effective)
		echo 0 >/sys/devices/system/cpu/cpu${home##*-}/online
		kill $few
		cat trace`)
	const line = `cosched_home_auto: cgroup=\d+ before=([0-9a-f,]+) home=([0-9a-f,]+) reason=(\w+) cost_before=(\d+) cost=(\d+) batch=0 demand=\d+ capacity=(\d+) load=\d+`
	var reasons []string
	last := "00000000,00000000" // none, of 64 possible CPUs
	for _, m := range regexp.MustCompile(line).FindAllStringSubmatch(out, -1) {
		if m[1] != last {
			t.Errorf("home %s is before %s, where it was %s", m[1], m[2], last)
		}
		last = m[2]
		reasons = append(reasons, m[3]+" "+m[6])
		before, _ := strconv.Atoi(m[4])
		after, _ := strconv.Atoi(m[5])
		if m[3] == "load" && before <= after || m[3] == "cpus" && (before != 0 || after != 0) {
			t.Errorf("a home with reason %s cost %d before and %d now", m[3], before, after)
		}
	}
	if got, want := strings.Join(reasons, ", "), "new 4096, grown 8192, shrunk 4096, load 4096, cpus 3072"; got != want {
		t.Errorf("homes change because of\n%s, expected\n%s:\n%s", got, want, out)
	}
}

// Automatic homes settle within half a second after a step of load, and then stay for a
// minute. No home goes to and fro in a hundred patterns of load made of random numbers, of
// 10 s each. A failure names the pattern; Documentation/testing.rst says how to run one
// pattern alone, and selftests/test_cosched_steady.c says what is checked.
func TestAutoSteady(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	forSeeds(t, "cfs-talk", func(t *testing.T, seed uint64) {
		placement(t, "numa", seed, vm.Config{Topology: topology(t, "cfs-talk")})
	})
}

// In a kernel without NUMA balancing, homes are chosen without it, also on several nodes: by load and
// by where files are.
func TestWithoutNUMABalancing(t *testing.T) {
	t.Parallel()
	if !long() {
		t.Skip("boots a kernel of its own: run by make test-long")
	}
	for program, run := range map[string]struct {
		preset  string
		maySkip []string
	}{
		"numa": {"cfs-talk", []string{"home_follows_memory", "running_ones_near_memory", "balancing_off", "home_wins",
			"memory_comes", "no_swap_out_of_home", "shared_memory_is_spread"}},
		"auto": {"smt8", []string{"grows_and_shrinks", "bandwidth", "bandwidth_above", "partition_shared", "isolated"}},
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			placement(t, program, 1, vm.Config{
				Kernel:   kernel(t, "nonumab").Image,
				Topology: topology(t, run.preset),
			}, run.maySkip...)
		})
	}
}

// With 1,000 clusters on 64 LLC domains, batch or not, automatic homes take less than a million
// instructions every 100 ms. Pressure stall information is off, as it has kworkers of its own
// for each cgroup.
func TestAutoCost(t *testing.T) {
	t.Parallel()
	placement(t, "auto_cost", 1, vm.Config{
		Topology: vm.Topology{Sockets: 1, Dies: 64, Cores: 1, Threads: 1},
		Cmdline:  []string{"psi=0"},
		Command:  []string{"-t", "thousand_clusters"},
		Timeout:  10 * time.Minute,
	}, "nodes_thousand_clusters")
}

// The same on four nodes, where the kernel knows the memory of each cluster.
func TestAutoCostOnNodes(t *testing.T) {
	t.Parallel()
	if !long() {
		t.Skip("takes ten minutes: run by make test-long")
	}
	placement(t, "auto_cost", 1, vm.Config{
		Topology: vm.Topology{Sockets: 4, Dies: 16, Cores: 1, Threads: 1, Nodes: 4},
		MemoryMB: 4096,
		Cmdline:  []string{"psi=0"},
		Command:  []string{"-t", "nodes_thousand_clusters"},
		// The workers then look at the clock every 100 us only, which costs a tenth.
		Virtual: &vm.VirtualTime{Pause: 10 * time.Microsecond},
		Timeout: 30 * time.Minute,
	})
}
