//go:build integration

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// groups8 prints, for each thread name and cgroup of the groups of share, how many threads have
// that name and are in that cgroup.
const groups8 = `for t in /proc/$(pidof share)/task/*; do echo $(cat $t/comm) $(cut -d: -f3 $t/cgroup); done | grep ^w | sort | uniq -c | sed 's/^ *//' `

// within waits until a command succeeds, for a minute of the guest's time or more.
func within(cmd string) string {
	return "i=0; until " + cmd + "; do i=$((i+1)); [ $i -lt 60 ] || { " + groups8 + ">&2; cat /tmp/detect >&2; exit 1; }; sleep 1; done; "
}

const (
	// The threads of a name are in one cgroup, and the threads of a cgroup have one name.
	all8 = `(?:4 w[0-7] /cosched/shop/\d+\n?){8}\n8 8`
	both = `; for f in 2 3; do ` + groups8 + ` | cut -d" " -f$f | sort -u | wc -l; done | xargs`
	late = "share late 1000000"
)

// observed is a guest for share: 8 CPUs in 4 LLC domains. The CPUs are slow, so that a second
// of the guest's time does not take long.
func observed(t *testing.T) vm.Config {
	return vm.Config{
		Topology: vm.Topology{Sockets: 1, Dies: 4, Cores: 2, Threads: 1},
		Virtual:  &vm.VirtualTime{Shift: 3},
		Kernel:   kernel(t, "integration").Image,
		Programs: []string{share(t)},
		Timeout:  debianTimeout,
	}
}

// The groups that detect finds become clusters of the controller while the command runs: each
// group of threads gets a threaded cgroup and an automatic home.
func TestIntegrationDetect(t *testing.T) {
	play(t, observed(t), []step{
		{sh: "cosched detect --limit 25 --for 4s --apply shop -- " + late + " >/tmp/detect 2>&1 & " +
			within("grep -q 'observing has ended' /tmp/detect") + groups8 + both, out: all8},
		{sh: "cat cosched/shop/cgroup.type cosched/shop/cgroup.subtree_control", out: "domain threaded\n(.* )?cosched( .*)?"},
		{sh: "for g in cosched/shop/*/; do cat $g/cgroup.type $g/cosched.cpus_preferred | xargs; done | sort | uniq -c | xargs", out: "8 threaded auto"},
		{sh: "grep -LE '^[0-7]' cosched/shop/*/cosched.cpus_preferred.effective; cosched ls | grep -c '^shop/[1-8] '", out: "8"},
		{sh: "kill $(pidof share); " + emptied("cosched/shop") + "cosched rm -r shop"},
	})
}

// A thread that is started later joins the other threads of its group, which stay where they
// are. The command may use only two of the CPUs, as in a guest this slow, the search for groups
// takes one CPU.
func TestIntegrationDetectFollow(t *testing.T) {
	c := observed(t)
	c.Virtual.Shift = 2
	play(t, c, []step{
		{sh: "cosched detect --limit 25 --for 4s --follow --apply shop -- taskset 3 " + late + " >/tmp/detect 2>&1 & " +
			within("pidof share >/dev/null") + within("["+` "$(`+groups8+` | grep -c "^4 w[0-7] /cosched/shop/")" = 8 ]`) + groups8 + both, out: all8},
		{sh: groups8 + ">/tmp/before; sed 's/^4 w0/5 w0/' /tmp/before >/tmp/expected; kill -USR1 $(pidof share); " +
			within(groups8+"| cmp -s /tmp/expected -") + "sort -u /tmp/expected | wc -l", out: "8"},
	})
}

// Threads that share memory but no lock are found if NUMA balancing unmaps pages to see which
// threads use them, and only then. The guest has two nodes, and balancing scans more often than
// by default, as the guest's threads do not work for long.
func TestIntegrationDetectFaults(t *testing.T) {
	const detect = "cosched detect --json --faults --limit 25 -- share heap 32000"
	out := sh(t, "demo", `cd /sys/kernel/debug/sched/numa_balancing
		echo 10 >scan_delay_ms; echo 20 >scan_period_min_ms; echo 20 >scan_period_max_ms
		cat /proc/sys/kernel/numa_balancing
		`+detect+`
		echo 0 >/proc/sys/kernel/numa_balancing
		`+detect, func(c *vm.Config) {
		argv := c.Command
		*c = observed(t)
		c.Command, c.Topology.Nodes = argv, 2
		c.Programs = append(c.Programs, command(t))
		exact(c)
		// As play sets them.
		c.Virtual.Shift, c.Virtual.Pause = 3, 0
	})
	on, out, _ := strings.Cut(out, "\n")
	if on != "1" {
		t.Fatalf("NUMA balancing is %q in a guest of two nodes", on)
	}
	type report struct {
		Groups []struct {
			Threads []struct{ Name string }
		}
		Threads []struct{ Name string }
		Why     string
	}
	var with, without report
	d := json.NewDecoder(strings.NewReader(out))
	if err := errors.Join(d.Decode(&with), d.Decode(&without)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var found []string
	for _, g := range with.Groups {
		var names []string
		for _, thread := range g.Threads {
			if thread.Name != "share" { // the thread that made them, and shares their stacks
				names = append(names, thread.Name)
			}
		}
		found = append(found, strings.Join(names, " "))
	}
	slices.Sort(found)
	var all []string
	for i := range 8 {
		all = append(all, strings.TrimSpace(strings.Repeat(fmt.Sprintf("w%d ", i), 4)))
	}
	if !slices.Equal(found, all) {
		t.Errorf("groups %q, want %q: %s", found, all, with.Why)
	}
	if len(without.Groups) > 0 || without.Why == "" {
		t.Errorf("without NUMA balancing: %+v", without)
	}
}
