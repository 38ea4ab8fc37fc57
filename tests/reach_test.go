package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// What cosched must reach, on every preset: tasks keep their home, strays are back in
// time, there is no ping-pong, idle CPUs are used, and memory is limited. The program
// selftests/test_cosched_reach.c asserts the requirements, and prints the figures.
//
// Presets have eight LLC domains at most, which a waking task all looks at: hence the sixteen.
func TestReach(t *testing.T) {
	t.Parallel()
	machines := map[string]vm.Topology{"sixteen": {Sockets: 1, Dies: 16, Cores: 2, Threads: 1}}
	for _, p := range vm.Presets {
		machines[p.Name] = p.Topology
	}
	for name, topology := range machines {
		forSeeds(t, name, func(t *testing.T, seed uint64) {
			placement(t, "reach", seed, vm.Config{Topology: topology})
		})
	}
}

// Idle time that a preference may add to the unmodified kernel's, in percent of all
// CPU time.
const idleAllowed = 0.5

// The home is one LLC domain, and there are as many runnable threads as the machine has
// CPUs, and nothing else: 4 CPUs in the domain and 16 or 32 in all, or 22 and 44. The CPUs
// outside are as busy as on the unmodified kernel. The program itself asserts that they are
// busy within 100 ms.
func TestWorkConserving(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"demo", "epyc", "softaffinity"} {
		forSeeds(t, preset, func(t *testing.T, seed uint64) {
			run := func(variant string) figures {
				return placement(t, "reach", seed, vm.Config{
					Kernel:   kernel(t, variant).Image,
					Topology: topology(t, preset),
					Command:  []string{"-t", "work_", "--starts", "5"},
				})
			}
			ours, vanilla := run("test"), run("vanilla")
			for _, start := range []string{"forked", "woken", "packed"} {
				idle, busy := "work."+start+".idle", "work."+start+".all_busy_after"
				t.Logf("%s: idle %.2f %%, unmodified %.2f %%; all busy after %.1f ms, unmodified %.1f ms",
					start, ours[idle], vanilla[idle], ours[busy], vanilla[busy])
				if _, ok := vanilla[idle]; !ok {
					t.Errorf("%s was not measured on the unmodified kernel", start)
				}
				if ours[idle] > vanilla[idle]+idleAllowed {
					t.Errorf("%s: %.2f %% idle, the unmodified kernel has %.2f %%; %.1f points more are allowed",
						start, ours[idle], vanilla[idle], idleAllowed)
				}
			}
		})
	}
}

// What a kernel with cosched may cost more while nobody uses cosched, as a fraction of
// the cost of the same kernel without it.
const unusedAllowed = 0.001

// wakebench counts the instructions of a wakeup and of a tick. In the guest, one CPU is
// online, so that nothing but the path itself is counted, and two CPUs are possible, so that
// a wakeup has to look for a CPU. The figure of a run is the mean of the whole run, including
// the ticks in it, and the result is the median of three seeds. The median of a run's windows
// is no better: it jumps between two values, 7 instructions apart, depending on where things
// are in memory.
func wakebench(t *testing.T, variant string) map[string]float64 {
	t.Helper()
	all := map[string][]float64{}
	for _, seed := range []uint64{1, 2, 3} {
		for mode, cost := range wakebenchOnce(t, variant, seed) {
			all[mode] = append(all[mode], cost)
		}
	}
	median := map[string]float64{}
	for mode, costs := range all {
		slices.Sort(costs)
		median[mode] = costs[len(costs)/2]
	}
	return median
}

func wakebenchOnce(t *testing.T, variant string, seed uint64) map[string]float64 {
	t.Helper()
	c := vm.Config{
		Name:     t.Name() + "-" + variant,
		Kernel:   kernel(t, variant).Image,
		Topology: vm.Topology{Sockets: 1, Dies: 1, Cores: 2, Threads: 1},
		Online:   1,
		Programs: []string{filepath.Join(programs(t, "workloads"), "wakebench")},
		Command:  []string{"sh", "-euc", "for mode in pipe futex timer tick; do wakebench -w 1000 $mode; done"},
	}
	exact(&c)
	c.Virtual.Seed = seed
	res := guest(t, c)
	if res.ExitStatus != 0 {
		t.Fatalf("wakebench exits with %d: %s", res.ExitStatus, res.Stderr)
	}
	cost := map[string]float64{}
	for line := range strings.Lines(string(res.Stdout)) {
		r := parseWakebench(t, line)
		cost[r.mode] = r.mean
	}
	return cost
}

// Compiled in and unused, cosched costs no instructions.
func TestUnusedIsFree(t *testing.T) {
	t.Parallel()
	ours, vanilla := wakebench(t, "test"), wakebench(t, "vanilla")
	for _, mode := range []string{"pipe", "futex", "timer", "tick"} {
		more := ours[mode]/vanilla[mode] - 1
		t.Logf("%s: %.2f instructions, unmodified kernel %.2f: %+.3f %%", mode, ours[mode], vanilla[mode], 100*more)
		if !(more <= unusedAllowed) {
			t.Errorf("%s costs %+.3f %%; %.1f %% is allowed", mode, 100*more, 100*unusedAllowed)
		}
	}
}
