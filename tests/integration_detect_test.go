//go:build integration

package tests

import (
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
