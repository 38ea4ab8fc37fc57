package vm

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Topology is the shape of a guest's machine. CPUs are numbered as Linux numbers them:
// first the threads of a core, then the cores of a die, the dies of a socket, and the
// sockets. Each die is one LLC domain.
type Topology struct {
	Sockets int `json:"sockets"`
	Dies    int `json:"dies"`    // in each socket
	Cores   int `json:"cores"`   // in each die
	Threads int `json:"threads"` // in each core
	// Nodes is the number of NUMA nodes, which must divide the CPUs evenly. 0 or 1: not
	// NUMA.
	Nodes int `json:"nodes"`
	// Distance is the distance between any two different nodes, 20 when 0. Distances, if
	// set, has the distance of each pair of nodes instead.
	Distance  int     `json:"distance,omitempty"`
	Distances [][]int `json:"distances,omitempty"`
}

const (
	// usualCPUs is the number of CPUs that the guests' kernels are configured for, except
	// the kernel of configs/large.config, which is for maxCPUs.
	usualCPUs = 64
	maxCPUs   = 256
	// everybody is the APIC number that means all CPUs, except in x2APIC mode. QEMU has
	// that mode from version 9.0 on, but does not know the time in it if time is virtual.
	everybody = 255
)

// defaultDistance is what firmware and QEMU report as the distance of nodes that nobody
// measured.
const defaultDistance = 20

// CPUs is the number of CPUs.
func (t Topology) CPUs() int { return t.Sockets * t.Dies * t.Cores * t.Threads }

// lastAPIC returns the number that hardware gives to the last CPU: each level of the
// topology has its own bits of the number.
func (t Topology) lastAPIC() int {
	id := t.Sockets - 1
	for _, n := range []int{t.Dies, t.Cores, t.Threads} {
		id = id<<bits.Len(uint(n-1)) | (n - 1)
	}
	return id
}

// LLCs lists the CPUs of each LLC domain.
func (t Topology) LLCs() [][]int { return t.split(t.Sockets * t.Dies) }

// NodeCPUs lists the CPUs of each NUMA node.
func (t Topology) NodeCPUs() [][]int { return t.split(max(1, t.Nodes)) }

func (t Topology) split(parts int) [][]int {
	n := t.CPUs() / parts
	out := make([][]int, parts)
	for i := range t.CPUs() {
		out[i/n] = append(out[i/n], i)
	}
	return out
}

// NodeDistance returns the distance between two nodes, which is 10 within one node.
func (t Topology) NodeDistance(a, b int) int {
	switch {
	case t.Distances != nil:
		return t.Distances[a][b]
	case a == b:
		return 10
	case t.Distance != 0:
		return t.Distance
	}
	return defaultDistance
}

func (t Topology) String() string {
	s := fmt.Sprintf("%d CPUs: %d × %d × %d × %d (sockets × dies × cores × threads), %d LLC domains",
		t.CPUs(), t.Sockets, t.Dies, t.Cores, t.Threads, t.Sockets*t.Dies)
	if t.Nodes > 1 {
		s += fmt.Sprintf(", %d nodes", t.Nodes)
	}
	return s
}

func (t Topology) check() error {
	n := t.CPUs()
	switch {
	case t.Sockets < 1 || t.Dies < 1 || t.Cores < 1 || t.Threads < 1:
		return fmt.Errorf("topology: sockets, dies, cores and threads are all at least 1, not %d, %d, %d, %d",
			t.Sockets, t.Dies, t.Cores, t.Threads)
	case n > maxCPUs:
		return fmt.Errorf("topology: %d CPUs are more than the %d of the guests' largest kernel", n, maxCPUs)
	case t.Nodes < 0 || t.Nodes > 1 && n%t.Nodes != 0:
		return fmt.Errorf("topology: %d nodes do not divide %d CPUs evenly", t.Nodes, n)
	}
	if t.Distances == nil {
		if t.Distance != 0 && (t.Distance <= 10 || t.Distance > 254) {
			return fmt.Errorf("topology: distance %d is not in 11..254", t.Distance)
		}
		return nil
	}
	if len(t.Distances) != t.Nodes {
		return fmt.Errorf("topology: %d rows of distances for %d nodes", len(t.Distances), t.Nodes)
	}
	for i, row := range t.Distances {
		if len(row) != t.Nodes {
			return fmt.Errorf("topology: row %d of the distances has %d entries for %d nodes", i, len(row), t.Nodes)
		}
		for j, d := range row {
			if d < 10 || d > 254 || (i == j) != (d == 10) {
				return fmt.Errorf("topology: distance %d from node %d to node %d: 10 within a node, 11..254 between two", d, i, j)
			}
		}
	}
	return nil
}

// Preset is a named topology.
type Preset struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Topology Topology `json:"topology"`
}

// Presets lists the machines that this project's sources of evidence used, and a few more
// to work with.
var Presets = []Preset{
	{"paper", "two dual-core chips, the machine of the OLS 2009 paper",
		Topology{Sockets: 2, Dies: 1, Cores: 2, Threads: 1}},
	{"softaffinity", "two sockets of 22 cores, the machine of the soft-affinity talk",
		Topology{Sockets: 2, Dies: 1, Cores: 22, Threads: 1, Nodes: 2, Distance: 21}},
	{"cfs-talk", "four sockets of 4 cores, the machine of the CFS talk",
		Topology{Sockets: 4, Dies: 1, Cores: 4, Threads: 1, Nodes: 4, Distance: 21}},
	{"smt8", "8 CPUs with SMT on two nodes, the machine of the 2005 regression report",
		Topology{Sockets: 2, Dies: 1, Cores: 2, Threads: 2, Nodes: 2, Distance: 20}},
	{"epyc", "one socket with 8 LLC domains of 4 cores, like an EPYC part",
		Topology{Sockets: 1, Dies: 8, Cores: 4, Threads: 1}},
	{"demo", "16 CPUs in 4 LLC domains of one socket, the machine of make demo",
		Topology{Sockets: 1, Dies: 4, Cores: 4, Threads: 1}},
	{"xeon8", "two sockets of 4 cores, a small server",
		Topology{Sockets: 2, Dies: 1, Cores: 4, Threads: 1, Nodes: 2, Distance: 20}},
	{"uma8", "8 CPUs in 2 LLC domains of one socket",
		Topology{Sockets: 1, Dies: 2, Cores: 4, Threads: 1}},
}

// Find looks a preset up by name.
func Find(name string) (Preset, error) {
	var names []string
	for _, p := range Presets {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("no topology preset %q (there are: %s)", name, strings.Join(names, ", "))
}

// ParseTopology reads SOCKETS,DIES,CORES,THREADS[,NODES[,DISTANCE]].
func ParseTopology(s string) (Topology, error) {
	var t Topology
	into := []*int{&t.Sockets, &t.Dies, &t.Cores, &t.Threads, &t.Nodes, &t.Distance}
	parts := strings.Split(s, ",")
	if len(parts) < 4 || len(parts) > len(into) {
		return t, fmt.Errorf("topology %q is not SOCKETS,DIES,CORES,THREADS[,NODES[,DISTANCE]]", s)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil {
			return t, fmt.Errorf("topology %q: %q is not a number", s, p)
		}
		*into[i] = n
	}
	return t, t.check()
}
