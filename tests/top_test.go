package tests

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// topScript makes clusters of one thread each, with homes all over the machine. Before and
// after some samples of cosched top, it prints the CPU time of cosched top, in total and in
// user mode, and the time: once while top prints tables, and once in a terminal.
const topScript = `
cd /sys/fs/cgroup
echo +cosched >cgroup.subtree_control
mkdir cosched watch
echo +cosched >cosched/cgroup.subtree_control
i=0
while [ $i -lt %d ]; do
	mkdir cosched/c$i
	home=$((i %% 31 * 8))
	echo $home-$((home + 7)) >cosched/c$i/cosched.cpus_preferred
	spin -q -g /sys/fs/cgroup/cosched/c$i -t 0 -b 20 -s 100000 &
	i=$((i + 1))
done
used() { echo $(sed -n 's/^user_usec //p; s/^usage_usec //p' watch/cpu.stat) $(cut -d' ' -f1 /proc/uptime); }
cat >/tmp/plain <<'END'
echo $$ >/sys/fs/cgroup/watch/cgroup.procs
exec cosched top --plain --rows 50 >/tmp/out
END
cat >/tmp/terminal <<'END'
stty rows 50 cols 160
echo $$ >/sys/fs/cgroup/watch/cgroup.procs
exec cosched top
END
export TERM=xterm-256color
nproc
for how in plain terminal; do
	if [ $how = plain ]; then sh /tmp/plain & else script -q -c 'sh /tmp/terminal' /tmp/out </dev/null >/dev/null & fi
	sleep 3
	a=$(used)
	sleep 4
	echo $how $a $(used)
	kill $(cat watch/cgroup.procs)
	wait $! || true
done
grep -c '1000 clusters' /tmp/out
`

// With 1,000 clusters on as many CPUs as virtual time can have, cosched top takes less than
// 5 % of one CPU, including its time in the kernel, if an instruction takes a nanosecond.
func TestTopCost(t *testing.T) {
	if !long() {
		t.Skip("takes minutes: make test-long")
	}
	k := kernel(t, "large")
	const clusters, cpus, most = 1000, 255, 0.05
	out := sh(t, "demo", fmt.Sprintf(topScript, clusters), func(c *vm.Config) {
		c.Kernel, c.KernelCPUs = k.Image, k.CPUs
		c.Topology = vm.Topology{Sockets: 4, Dies: 8, Cores: 8, Threads: 1, Nodes: 4}
		c.Online = cpus
		c.Virtual = &vm.VirtualTime{Seed: 1}
		c.Cmdline = []string{"quiet"}
		c.Programs = []string{command(t), filepath.Join(programs(t, "workloads"), "spin"), "script", "stty"}
		// It takes five minutes on a core of its own.
		c.Timeout = 30 * time.Minute
	})
	type reading struct{ usage, user, at float64 }
	var nr, seen int
	var how [2]string
	var r [2][2]reading
	if _, err := fmt.Sscan(out, &nr,
		&how[0], &r[0][0].usage, &r[0][0].user, &r[0][0].at, &r[0][1].usage, &r[0][1].user, &r[0][1].at,
		&how[1], &r[1][0].usage, &r[1][0].user, &r[1][0].at, &r[1][1].usage, &r[1][1].user, &r[1][1].at, &seen); err != nil || nr != cpus || seen == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, how := range how {
		a, b := r[i][0], r[i][1]
		used, user := (b.usage-a.usage)/1e6/(b.at-a.at), (b.user-a.user)/1e6/(b.at-a.at)
		t.Logf("%s: %.1f %% of a CPU, %.1f %% in user mode and %.1f %% in the kernel", how, 100*used, 100*user, 100*(used-user))
		if used <= 0 || used >= most {
			t.Errorf("%s: %.1f %% of a CPU, allowed are %.0f %%", how, 100*used, 100*most)
		}
	}
}
