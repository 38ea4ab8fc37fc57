package tests

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// reportTopology prints the topology as the guest's kernel sees it.
const reportTopology = `
cd /sys/devices/system/cpu
for c in $(seq 0 $(( $(nproc) - 1 ))); do
	echo "cpu $c llc $(cat cpu$c/cache/index3/shared_cpu_list) core $(cat cpu$c/topology/thread_siblings_list)"
done
for n in /sys/devices/system/node/node*; do
	echo "node ${n##*node} cpus $(cat $n/cpulist) distance $(cat $n/distance)"
done
# The span of the scheduler's own last-level-cache domain: the largest of SMT and MC.
for c in $(seq 0 $(( $(nproc) - 1 ))); do
	names=
	for d in /sys/kernel/debug/sched/domains/cpu$c/domain*; do
		[ -e $d/name ] && names="$names $(cat $d/name)"
	done
	echo "domains $c$names"
done
`

// Every preset gives the LLC domains, cores and nodes that it claims, as the guest's
// kernel sees them, not as QEMU does.
func TestPresets(t *testing.T) {
	t.Parallel()
	for _, p := range vm.Presets {
		t.Run(p.Name, func(t *testing.T) {
			top := p.Topology
			// The scheduler shows its domains in debugfs only when it is told to be verbose.
			out := sh(t, p.Name, reportTopology, exact, func(c *vm.Config) { c.Cmdline = append(c.Cmdline, "sched_verbose") })
			llc, core := map[string][]int{}, map[string][]int{}
			var llcs, cores [][]int
			nodes := map[int]string{}
			distances := map[int]string{}
			domains := 0
			for line := range strings.Lines(out) {
				f := strings.Fields(line)
				switch f[0] {
				case "cpu":
					cpu, _ := strconv.Atoi(f[1])
					llc[f[3]] = append(llc[f[3]], cpu)
					core[f[5]] = append(core[f[5]], cpu)
					if len(llc[f[3]]) == 1 {
						llcs = append(llcs, nil)
					}
					llcs[len(llcs)-1] = llc[f[3]]
					if len(core[f[5]]) == 1 {
						cores = append(cores, nil)
					}
					cores[len(cores)-1] = core[f[5]]
				case "node":
					n, _ := strconv.Atoi(f[1])
					nodes[n] = f[3]
					distances[n] = strings.Join(f[5:], " ")
				case "domains":
					domains++
					// An LLC domain of several cores is the domain called MC.
					if want := "MC"; top.Cores > 1 && !strings.Contains(line, want) {
						t.Errorf("CPU %s has no scheduling domain %s: %s", f[1], want, line)
					}
					if top.Threads > 1 && !strings.Contains(line, "SMT") {
						t.Errorf("CPU %s has no scheduling domain SMT: %s", f[1], line)
					}
				}
			}
			if want := top.LLCs(); !reflect.DeepEqual(llcs, want) {
				t.Errorf("LLC domains are %v, want %v", llcs, want)
			}
			if len(cores) != top.Sockets*top.Dies*top.Cores || len(cores[0]) != top.Threads {
				t.Errorf("cores are %v, want %d with %d threads", cores, top.Sockets*top.Dies*top.Cores, top.Threads)
			}
			if domains != top.CPUs() {
				t.Errorf("the scheduler has domains for %d CPUs, want %d", domains, top.CPUs())
			}
			want := top.NodeCPUs()
			if len(nodes) != len(want) {
				t.Fatalf("nodes are %v, want %v", nodes, want)
			}
			for n, cpus := range want {
				if list := fmt.Sprintf("%d-%d", cpus[0], cpus[len(cpus)-1]); nodes[n] != list {
					t.Errorf("node %d has CPUs %s, want %s", n, nodes[n], list)
				}
				var row []string
				for m := range want {
					row = append(row, strconv.Itoa(top.NodeDistance(n, m)))
				}
				if d := strings.Join(row, " "); distances[n] != d {
					t.Errorf("the distances of node %d are %s, want %s", n, distances[n], d)
				}
			}
		})
	}
}
