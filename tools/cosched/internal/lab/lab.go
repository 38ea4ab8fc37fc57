// Package lab makes guests whose memory accesses take time: it has descriptions of machines
// and gives them to the QEMU plugin tools/lab/machine.c, which models their caches.
//
// A guest with a model serves to compare one scheduler, or one placement, with another on
// the same model. It says nothing about how fast hardware is.
package lab

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// Cache is a cache of lines of 64 bytes.
type Cache struct {
	Bytes int `json:"bytes"`
	Ways  int `json:"ways"`
}

// Model describes a machine. Times are in cycles; in the guest, a cycle and an
// instruction are a nanosecond each.
type Model struct {
	Name   string `json:"name"`
	About  string `json:"about"`
	Preset string `json:"preset"` // the topology
	// GHz is the clock rate of the machine that the model imitates: how long a cycle takes
	// there.
	GHz float64 `json:"ghz"`

	L1  Cache `json:"l1"`  // of each core
	L2  Cache `json:"l2"`  // of each core
	LLC Cache `json:"llc"` // of each die

	Cost Cost `json:"cost"`

	// Scatter, if not 0, is the seed of a random choice of the L1 set of each line of
	// memory: another number gives another layout. If it is 0, sets are chosen by address,
	// as in the machine. With Scatter, the mean over a few numbers stands for all layouts,
	// whereas one build has one layout only.
	Scatter uint32 `json:"scatter,omitempty"`

	// Sources says where each size and each cost is from, by the names of these in JSON,
	// "l1" or "cost.peer", or by a list of them: "l1, l2".
	Sources map[string]string `json:"sources"`
	// Published is what others measured on such a machine, for Check.
	Published []Published `json:"published,omitempty"`
}

// Cost is the time that accesses take. An access that hits L1 takes no time but that of its
// instruction.
type Cost struct {
	L2           int `json:"l2"`
	LLC          int `json:"llc"`
	Peer         int `json:"peer"`          // from another core's cache below the same LLC
	Atomic       int `json:"atomic"`        // in addition, for an atomic instruction
	TransferNear int `json:"transfer_near"` // from another LLC of the same node
	TransferFar  int `json:"transfer_far"`  // from a node at distance 20; others in proportion
	MemoryNear   int `json:"memory_near"`
	MemoryFar    int `json:"memory_far"` // likewise
}

//go:embed models/*.json
var modelFiles embed.FS

// Models returns all descriptions that come with the project, sorted by name.
func Models() ([]Model, error) {
	names, err := fs.Glob(modelFiles, "models/*.json")
	if err != nil {
		return nil, err
	}
	var list []Model
	for _, name := range names {
		data, err := modelFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Find returns a description by name, or from a file if the name has a slash.
func Find(name string) (Model, error) {
	if strings.Contains(name, "/") {
		data, err := os.ReadFile(name)
		if err != nil {
			return Model{}, fmt.Errorf("machine model: %w", err)
		}
		m, err := parse(data)
		if err != nil {
			return Model{}, fmt.Errorf("machine model %s: %w", name, err)
		}
		return m, nil
	}
	list, err := Models()
	if err != nil {
		return Model{}, err
	}
	var names []string
	for _, m := range list {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Model{}, fmt.Errorf("no machine model %q (there are: %s; or the path of a file)", name, strings.Join(names, ", "))
}

func parse(data []byte) (Model, error) {
	var m Model
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, err
	}
	return m, m.check()
}

// lineBytes is the size of a line of memory, and of every cache.
const lineBytes = 64

func (m Model) check() error {
	if m.Name == "" {
		return errors.New("it has no name")
	}
	if _, err := vm.Find(m.Preset); err != nil {
		return err
	}
	if m.GHz <= 0 || m.GHz > 20 {
		return fmt.Errorf("ghz %g: the clock of what is imitated, over 0, to 20", m.GHz)
	}
	for _, p := range m.Published {
		if err := p.check(m.CPUs()); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name string
		Cache
	}{{"l1", m.L1}, {"l2", m.L2}, {"llc", m.LLC}} {
		if c.Ways < 1 || c.Bytes <= 0 || c.Bytes%(c.Ways*lineBytes) != 0 || bits.OnesCount(uint(c.Bytes/c.Ways/lineBytes)) != 1 {
			return fmt.Errorf("%s: %d bytes in %d ways is not a power of two of sets of lines of %d bytes", c.name, c.Bytes, c.Ways, lineBytes)
		}
	}
	c := m.Cost
	if c.L2 < 0 || c.LLC < c.L2 || c.Peer < c.L2 || c.Atomic < 0 || c.TransferNear < c.LLC || c.TransferFar < c.TransferNear ||
		c.MemoryNear < c.LLC || c.MemoryFar < c.MemoryNear || c.MemoryFar > 1_000_000 || c.TransferFar > 1_000_000 {
		return fmt.Errorf("costs %+v: they grow with distance, and none is over 1,000,000", c)
	}
	return nil
}

// farDistance is the node distance that Cost.TransferFar and Cost.MemoryFar are given for.
const farDistance = 20

// description returns the model in the form that machine.c reads, for a guest with the
// given topology and memory.
func (m Model) description(t vm.Topology, memoryMB int) string {
	var s strings.Builder
	line := func(key string, numbers ...int) {
		s.WriteString(key)
		for _, n := range numbers {
			s.WriteByte(' ')
			s.WriteString(strconv.Itoa(n))
		}
		s.WriteByte('\n')
	}
	cpus, cores, llcs := t.CPUs(), t.CPUs()/t.Threads, t.Sockets*t.Dies
	nodes := max(1, t.Nodes)
	spread := func(key string, of, to int) {
		list := make([]int, of)
		for i := range list {
			list[i] = i * to / of
		}
		line(key, list...)
	}
	spread("core", cpus, cores)
	spread("llc", cores, llcs)
	spread("node", llcs, nodes)
	line("memory", memoryMB<<20, min(memoryMB<<20, lowMemory(memoryMB)))
	line("size.l1", m.L1.Bytes, m.L1.Ways)
	line("size.l2", m.L2.Bytes, m.L2.Ways)
	line("size.llc", m.LLC.Bytes, m.LLC.Ways)
	line("scatter.l1", int(m.Scatter))
	line("cost.l2", m.Cost.L2)
	line("cost.llc", m.Cost.LLC)
	line("cost.peer", m.Cost.Peer)
	line("cost.atomic", m.Cost.Atomic)
	for a := range nodes {
		for b := range nodes {
			transfer, memory := m.Cost.TransferNear, m.Cost.MemoryNear
			if a != b {
				d := t.NodeDistance(a, b)
				transfer, memory = m.Cost.TransferFar*d/farDistance, m.Cost.MemoryFar*d/farDistance
			}
			line("cost.nodes", a, b, transfer, memory)
		}
	}
	return s.String()
}

// lowMemory returns how much of a q35 guest's memory is below the hole that ends at 4 GiB,
// as pc_q35_init() of QEMU does.
func lowMemory(memoryMB int) int {
	if memoryMB<<20 >= 0xb0000000 {
		return 0x80000000
	}
	return memoryMB << 20
}

// Counters are what the plugin counted, for one vCPU or for all.
type Counters struct {
	Insns         uint64 `json:"insns"`
	Pauses        uint64 `json:"pauses"`
	Accesses      uint64 `json:"accesses"`
	L2Hits        uint64 `json:"l2_hits"`
	LLCHits       uint64 `json:"llc_hits"`
	PeerHits      uint64 `json:"peer_hits"`
	TransfersNear uint64 `json:"transfers_near"`
	TransfersFar  uint64 `json:"transfers_far"`
	MemoryNear    uint64 `json:"memory_near"`
	MemoryFar     uint64 `json:"memory_far"`
	Invalidations uint64 `json:"invalidations"`
	Atomics       uint64 `json:"atomics"`
	StallNS       uint64 `json:"stall_ns"`
	IdleNS        uint64 `json:"idle_ns"`
}

// Report is what was counted in the regions that the guest marked, or in the whole run.
type Report struct {
	RegionNS int64      `json:"region_ns"`
	Total    Counters   `json:"total"`
	VCPUs    []Counters `json:"vcpus"`
	// Clusters are counters by the number of the cluster that threads said they belong to
	// (workloads/model.h). Their sum is less than Total, which includes interrupts on idle
	// CPUs and other threads.
	Clusters []Counters `json:"clusters"`
	// Lines are the lines of memory whose accesses took most time, the most expensive
	// first, if they were asked for.
	Lines []Line `json:"lines,omitempty"`
	// CPUData is where the kernel's GS points to on each CPU, for Symbolize; 0 for a CPU on
	// which nothing returned to user space.
	CPUData []Address `json:"cpu_data,omitempty"`
}

// Line is a line of memory. Its accesses are those for which L1 did not have the line, or
// did not have it for writing.
type Line struct {
	Address Address `json:"address"`          // of the last access, virtual
	Symbol  string  `json:"symbol,omitempty"` // of the kernel's data, see Symbolize
	Number  uint32  `json:"line"`             // by physical address
	Set     uint32  `json:"set"`              // of L1
	Counters
}

// Address is a hexadecimal string in JSON, because numbers there are exact up to 2^53 only.
type Address uint64

func (a Address) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint64(a)), nil }

func (a *Address) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 0, 64)
	*a = Address(n)
	return err
}

// Machine is a model that is ready for one run of a guest.
type Machine struct {
	dir    string
	report string
}

// Options are options of Attach.
type Options struct {
	On    bool // the model works from boot on; else from when the guest asks for it (workloads/model.h)
	Lines int  // how many of the lines that took most time are reported
}

// Attach makes a guest run on a model, with the topology of the model.
func Attach(ctx context.Context, c *vm.Config, m Model, o Options) (*Machine, error) {
	p, err := vm.Find(m.Preset)
	if err != nil {
		return nil, err
	}
	c.Topology = p.Topology
	if c.Virtual == nil {
		c.Virtual = &vm.VirtualTime{Seed: 1}
	}
	if c.MemoryMB == 0 {
		c.MemoryMB = 2048
	}
	// The nodes share the memory evenly.
	c.MemoryMB -= c.MemoryMB % max(1, p.Topology.Nodes)
	plugin, err := buildPlugin(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "coslab-model-")
	if err != nil {
		return nil, err
	}
	description := filepath.Join(dir, "model")
	if err := os.WriteFile(description, []byte(m.description(p.Topology, c.MemoryMB)), 0o644); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	machine := &Machine{dir: dir, report: filepath.Join(dir, "report.json")}
	state := "off"
	if o.On {
		state = "on"
	}
	c.QEMUArgs = append(c.QEMUArgs, "-plugin", fmt.Sprintf("%s,model=%s,out=%s,on=%s,lines=%d", plugin, description, machine.report, state, o.Lines))
	return machine, nil
}

// Report reads what was counted. It can be called after the guest has ended.
func (m *Machine) Report() (*Report, error) {
	data, err := os.ReadFile(m.report)
	if err != nil {
		return nil, fmt.Errorf("the machine model left no report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("the machine model's report: %w", err)
	}
	return &r, nil
}

// Close removes the run's files.
func (m *Machine) Close() error { return os.RemoveAll(m.dir) }

// PluginVersion names the build of the model: it is a hash of the plugin's source and of
// the header that it is compiled against.
func PluginVersion(ctx context.Context) (string, error) {
	path, err := buildPlugin(ctx)
	return strings.TrimSuffix(filepath.Base(path), ".so"), err
}

// buildPlugin compiles machine.c against the header of the QEMU that runs it, and returns
// the plugin's path. A plugin that was compiled before is used again.
func buildPlugin(ctx context.Context) (string, error) {
	root, err := kbuild.FindRoot()
	if err != nil {
		return "", err
	}
	q, err := kbuild.FindQEMU(kbuild.Options{Root: root})
	if err != nil {
		q, err = kbuild.BuildQEMU(ctx, kbuild.Options{Root: root})
	}
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "tools", "lab", "machine.c")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	header, err := os.ReadFile(filepath.Join(q.PluginDir, "qemu-plugin.h"))
	if err != nil {
		return "", err
	}
	cache, err := kbuild.CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(text, header...))
	dir := filepath.Join(cache, "lab")
	plugin := filepath.Join(dir, "machine-"+hex.EncodeToString(sum[:8])+".so")
	if _, err := os.Stat(plugin); err == nil {
		return plugin, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	flags, err := exec.CommandContext(ctx, "pkg-config", "--cflags", "glib-2.0").Output()
	if err != nil {
		return "", fmt.Errorf("pkg-config --cflags glib-2.0: %w", err)
	}
	tmp, err := os.CreateTemp(dir, "new-*.so")
	if err != nil {
		return "", err
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	args := slices.Concat([]string{"-O3", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I" + q.PluginDir},
		strings.Fields(string(flags)), []string{"-o", tmp.Name(), source})
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the machine model: %w\n%s", err, out)
	}
	return plugin, os.Rename(tmp.Name(), plugin)
}

// CPUs is the number of CPUs of the model's topology.
func (m Model) CPUs() int {
	p, err := vm.Find(m.Preset)
	if err != nil {
		return 0
	}
	return p.Topology.CPUs()
}
