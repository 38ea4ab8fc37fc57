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

// groups8 prints the threads of the groups of share, by their name, and their cgroups.
const groups8 = `for t in /proc/$(pidof share)/task/*; do echo $(cat $t/comm) $(cut -d: -f3 $t/cgroup); done | grep ^w | sort | uniq -c | sed 's/^ *//' `

// within waits until a command succeeds, for a minute of the guest's time or more.
func within(cmd string) string {
	return "i=0; until " + cmd + "; do i=$((i+1)); [ $i -lt 60 ] || { " + groups8 + ">&2; cat /tmp/detect >&2; exit 1; }; sleep 1; done; "
}

const (
	// Each name is in one cgroup and each cgroup has one name.
	all8 = `(?:4 w[0-7] /cosched/shop/\d+\n?){8}\n8 8`
	both = `; for f in 2 3; do ` + groups8 + ` | cut -d" " -f$f | sort -u | wc -l; done | xargs`
	late = "share late 1000000"
)

// observed is a guest for share: 8 CPUs in 4 LLC domains, and slow ones, so that a second
// of its time does not take long.
func observed(t *testing.T) vm.Config {
	return vm.Config{
		Topology: vm.Topology{Sockets: 1, Dies: 4, Cores: 2, Threads: 1},
		Virtual:  &vm.VirtualTime{Shift: 3},
		Kernel:   kernel(t, "integration").Image,
		Programs: []string{share(t)},
		Timeout:  debianTimeout,
	}
}

// What detect finds becomes clusters of the controller, while the command runs: a threaded
// cgroup and an automatic home for each group of threads.
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

// A thread that comes later joins the others of its group, which stay. The command has two
// of the CPUs: on a guest this slow, looking for groups takes one.
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

// Threads that share memory and no lock are found where NUMA balancing takes pages away to
// see who uses them, and only there. The guest has two nodes, and balancing looks more often
// than by default, as its threads do not work for long.
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
		// As play has it.
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
			if thread.Name != "share" { // who made them, and shares their stacks
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
