package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// wakebenchResult is a line of the program's output: instructions per wakeup or tick.
type wakebenchResult struct {
	mode                string
	least, median, mean float64
}

func parseWakebench(t *testing.T, line string) (r wakebenchResult) {
	t.Helper()
	var windows int
	if _, err := fmt.Sscanf(line, "%s windows %d least %f median %f mean %f", &r.mode, &windows, &r.least, &r.median, &r.mean); err != nil {
		t.Fatalf("wakebench prints %q: %v", line, err)
	}
	return r
}

// wakeups runs a script that prints lines "WHAT RESULT", where RESULT is what wakebench prints,
// and returns the medians of "WHAT MODE". A median has no ticks in it, and no other work that
// comes between wakeups.
func wakeups(t *testing.T, variant string, topology vm.Topology, script string) map[string]float64 {
	t.Helper()
	c := vm.Config{
		Name:     t.Name() + "-" + variant,
		Kernel:   kernel(t, variant).Image,
		Topology: topology,
		Programs: []string{filepath.Join(programs(t, "workloads"), "wakebench")},
		Command:  []string{"sh", "-euc", script},
		Virtual:  &vm.VirtualTime{Pause: 10 * time.Microsecond},
	}
	exact(&c)
	res := guest(t, c)
	if res.ExitStatus != 0 {
		t.Fatalf("the script exits with %d: %s", res.ExitStatus, res.Stderr)
	}
	median := map[string]float64{}
	for line := range strings.Lines(string(res.Stdout)) {
		what, result, _ := strings.Cut(line, " ")
		r := parseWakebench(t, result)
		median[what+" "+r.mode] = r.median
	}
	return median
}

// What a wakeup may cost more with more clusters, and on more CPUs besides what it costs more on the
// unmodified kernel, in instructions: 0.3 % of one through a pipe, and 1.5 %. A wakeup by a timer
// takes 400 more in some guests than in others, and at times in the same one, on either kernel and
// whatever the machine is.
const (
	clustersAllowed  = 20
	cpusAllowed      = 100
	timerAllowedMore = 450
)

// To look at one more LLC domain, of which a waking task looks at eight at most (COSCHED_WAKE_LLCS of
// kernel/sched/cosched.c).
const (
	domainAllowed = 450
	domainsAtMost = 8
)

func allowedMore(what string, allowed float64) float64 {
	if strings.HasSuffix(what, "timer") {
		allowed += timerAllowedMore
	}
	return allowed
}

// A wakeup in a cluster takes as many instructions with 1,000 clusters as with one, whether homes
// are set by hand or automatic. All homes by hand are the same; the other clusters are idle.
func TestWakeupCostOfClusters(t *testing.T) {
	t.Parallel()
	modes := []string{"pipe", "futex", "timer", "wake"}
	cost := wakeups(t, "test", topology(t, "demo"), `
		cd /sys/fs/cgroup
		echo +cosched >cgroup.subtree_control
		measure() {
			sleep 0.5
			for mode in pipe futex timer wake; do
				echo "$1 $(wakebench -g /sys/fs/cgroup/c0 -w 400 -r 4 $mode)"
			done
		}
		have=0
		for n in 1 10 100 1000; do
			while [ $have -lt $n ]; do
				mkdir c$have
				echo 0-3 >c$have/cosched.cpus_preferred
				have=$((have + 1))
			done
			measure $n
		done
		for c in c[0-9]*; do
			echo auto >$c/cosched.cpus_preferred
		done
		measure auto`)
	for _, mode := range modes {
		one := cost["1 "+mode]
		if one == 0 {
			t.Fatalf("%s was not measured", mode)
		}
		for _, n := range []string{"10", "100", "1000", "auto"} {
			now := cost[n+" "+mode]
			t.Logf("%s, %s: %.2f instructions, with one cluster %.2f", mode, n, now, one)
			if allowed := allowedMore(mode, clustersAllowed); !(now <= one+allowed) || now == 0 {
				t.Errorf("%s, %s: %.2f instructions, with one cluster %.2f; %.0f more are allowed", mode, n, now, one, allowed)
			}
		}
	}
}

// The machines have LLC domains of two CPUs: the more CPUs, the more domains are there to choose from
// when home is full.
func wakeupsOnCPUs(t *testing.T, variant string, cpus int, cases string) map[string]float64 {
	t.Helper()
	return wakeups(t, variant, vm.Topology{Sockets: 1, Dies: cpus / 2, Cores: 2, Threads: 1}, fmt.Sprintf(`
		all=0-%d home=0-1 half=0-%d cg=/sys/fs/cgroup/a
		mkdir $cg
		if grep -qw cosched /sys/fs/cgroup/cgroup.controllers; then
			echo +cosched >/sys/fs/cgroup/cgroup.subtree_control
			echo $home >$cg/cosched.cpus_preferred
		fi
		set_home() {
			[ ! -e $cg/cosched.cpus_preferred ] || echo $1 >$cg/cosched.cpus_preferred
		}
		%s`, cpus-1, cpus/2-1, cases))
}

// wakeupCostOfCPUs fails if a wakeup costs more on a larger machine, other than by looks at each of
// the domains that there are more of, if looks is true, up to the most that a wakeup looks at.
func wakeupCostOfCPUs(t *testing.T, looks bool, cases string) {
	machines := []int{4, 16, 64}
	domains := func(cpus int) float64 { return float64(min(cpus/2-1, domainsAtMost)) }
	cost := map[string]map[int]map[string]float64{}
	for _, variant := range []string{"vanilla", "test"} {
		cost[variant] = map[int]map[string]float64{}
		for _, n := range machines {
			cost[variant][n] = wakeupsOnCPUs(t, variant, n, cases)
		}
	}
	ours, vanilla := cost["test"], cost["vanilla"]
	for what := range vanilla[4] {
		t.Logf("%s on 4, 16 and 64 CPUs: %.0f, %.0f and %.0f instructions, unmodified kernel %.0f, %.0f and %.0f", what,
			ours[4][what], ours[16][what], ours[64][what], vanilla[4][what], vanilla[16][what], vanilla[64][what])
		for _, n := range machines[1:] {
			// Where the unmodified kernel finds a better place on a larger machine, it does not count.
			allowed := max(vanilla[n][what]-vanilla[4][what], 0) + allowedMore(what, cpusAllowed)
			if looks {
				allowed += domainAllowed * (domains(n) - domains(4))
			}
			if more := ours[n][what] - ours[4][what]; !(more <= allowed) || ours[n][what] == 0 {
				t.Errorf("%s costs %.0f instructions more on %d CPUs than on 4; %.0f are allowed", what, more, n, allowed)
			}
		}
	}
}

// A wakeup in a cluster does not cost more with more CPUs, or not more than on the unmodified
// kernel: on an idle machine; if home is busy, so that the sleeper goes to another domain; if all
// CPUs are, so that it waits; and if home has three times as many tasks, so that other domains are
// cheaper but have no idle CPU.
func TestWakeupCostOfCPUs(t *testing.T) {
	t.Parallel()
	wakeupCostOfCPUs(t, false, `
		for mode in pipe futex timer wake; do
			echo "idle $(wakebench -g $cg -w 400 -r 4 $mode)"
		done
		echo "home-busy $(wakebench -b $home -g $cg -w 500 -r 1 wake)"
		echo "all-busy $(wakebench -b $all -g $cg -w 500 -r 1 wake)"
		echo "home-crowded $(wakebench -b $all -b $home -b $home -g $cg -w 500 -r 1 wake)"`)
}

// The same if a wakeup looks at other domains than the one where the task was, until it has looked at
// eight. A task that does not run briefly looks for one that is cheaper, if all CPUs are busy and home
// has four times as many tasks; it runs for 0.4 ms each time. And home may have many domains itself,
// here half of all, be they busy with one task for each CPU or with three, while all other CPUs have
// one. The sleeper runs briefly there, and this does not depend on how much of home a wakeup scans.
func TestWakeupCostOfDomains(t *testing.T) {
	t.Parallel()
	wakeupCostOfCPUs(t, true, `
		echo "home-crowded-long $(wakebench -b $all -b $home -b $home -b $home -g $cg -w 500 -r 1 -u 400 wake)"
		set_home $half
		echo "half-busy $(wakebench -b $all -g $cg -w 500 -r 1 wake)"
		echo "half-crowded $(wakebench -b $all -b $half -b $half -g $cg -w 500 -r 1 wake)"`)
}
