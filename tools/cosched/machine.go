package cosched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Machine is what sysfs says about the CPUs that homes consist of.
type Machine struct {
	Online   CPUs
	Possible CPUs // CPUs that may come online
	LLCs     []CPUs
	Sockets  map[int]CPUs // by physical package
	Cores    []CPUs       // SMT siblings, in the order of their first CPU
	Nodes    []Node
}

// Node is a NUMA node.
type Node struct {
	ID       int
	CPUs     CPUs
	Distance map[int]int // to each node, by its ID
}

// Machine reads the topology of the online CPUs. On a kernel without NUMA there are no nodes.
func (h Host) Machine() (*Machine, error) {
	m := &Machine{Sockets: map[int]CPUs{}}
	dir := filepath.Join(h.Sys, "devices/system/cpu")
	var err error
	if m.Online, err = readCPUs(filepath.Join(dir, "online")); err != nil {
		return nil, err
	}
	if m.Possible, err = readCPUs(filepath.Join(dir, "possible")); err != nil {
		return nil, err
	}
	if m.LLCs, err = LLCs(dir); err != nil {
		return nil, err
	}
	var seen CPUs
	for _, cpu := range m.Online {
		topo := filepath.Join(dir, fmt.Sprintf("cpu%d", cpu), "topology")
		id, err := readInt(filepath.Join(topo, "physical_package_id"))
		if err != nil {
			return nil, err
		}
		m.Sockets[id] = append(m.Sockets[id], cpu)
		if seen.Has(cpu) {
			continue
		}
		// Before Linux 5.3, core_cpus_list was called thread_siblings_list.
		core, err := readCPUs(filepath.Join(topo, "core_cpus_list"))
		if errors.Is(err, os.ErrNotExist) {
			core, err = readCPUs(filepath.Join(topo, "thread_siblings_list"))
		}
		if err != nil {
			return nil, err
		}
		core = core.And(m.Online)
		m.Cores = append(m.Cores, core)
		seen = append(seen, core...).normal()
	}
	return m, m.readNodes(filepath.Join(h.Sys, "devices/system/node"))
}

func (m *Machine) readNodes(dir string) error {
	// Lists of node numbers have the same form as CPU lists.
	ids, err := readCPUs(filepath.Join(dir, "online"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		sub := filepath.Join(dir, fmt.Sprintf("node%d", id))
		n := Node{ID: id, Distance: map[int]int{}}
		if n.CPUs, err = readCPUs(filepath.Join(sub, "cpulist")); err != nil {
			return err
		}
		file := filepath.Join(sub, "distance")
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fields := strings.Fields(string(text))
		if len(fields) != len(ids) {
			return fmt.Errorf("%s: %d distances for %d nodes", file, len(fields), len(ids))
		}
		for i, f := range fields {
			if n.Distance[ids[i]], err = strconv.Atoi(f); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		m.Nodes = append(m.Nodes, n)
	}
	return nil
}

// Home is the result of parsing a home specification.
type Home struct {
	Value string // what is written to cosched.cpus_preferred
	CPUs  CPUs   // the same as a set; empty if only the kernel knows the CPUs
}

// HomeForms says, for messages, in which forms a home is specified.
const HomeForms = "a CPU list, llc:N, node:N, socket:N, near:CPU, dev:NAME, auto or inherit"

// ParseHome turns a home specification into CPUs. N can be a list of numbers.
func (h Host) ParseHome(spec string) (Home, error) {
	spec = strings.TrimSpace(spec)
	switch spec {
	case "", "inherit":
		return Home{}, nil
	case "auto":
		return Home{Value: spec}, nil
	}
	kind, what, named := strings.Cut(spec, ":")
	if named && kind == "dev" {
		return h.nearDevice(spec, strings.TrimPrefix(what, "/dev/"))
	}
	if named && slices.Contains([]string{"llc", "node", "socket", "near"}, kind) {
		return h.parseDomains(spec, kind, what)
	}
	cpus, err := ParseCPUs(spec)
	if err == nil {
		return Home{cpus.String(), cpus}, nil
	}
	// The kernel accepts more forms of lists. Only the kernel determines which CPUs they name.
	if err = checkKernelCPUs(spec, maxCPU); err == nil {
		return Home{Value: spec}, nil
	}
	return Home{}, problem(ExitUsage, err, "home %q is not %s: %v", spec, HomeForms, err)
}

// CheckPossible refuses a home with CPUs that this machine cannot have, as the kernel does.
func (h Host) CheckPossible(home Home) error {
	possible, err := readCPUs(filepath.Join(h.Sys, "devices/system/cpu/possible"))
	if err != nil || len(possible) == 0 || home.Value == "" || home.Value == "auto" {
		return nil // left to the kernel
	}
	err = checkKernelCPUs(home.Value, possible[len(possible)-1])
	if err == nil && len(home.CPUs.And(possible)) == len(home.CPUs) {
		return nil
	}
	return problem(ExitData, err, "home %q names a CPU that this machine cannot have: it can have %s", home.Value, possible)
}

func (h Host) parseDomains(spec, kind, what string) (Home, error) {
	numbers, err := ParseCPUs(what)
	if err != nil || len(numbers) == 0 {
		return Home{}, problem(ExitUsage, err, "home %q: %q is not a number; a home is %s", spec, what, HomeForms)
	}
	m, err := h.Machine()
	if err != nil {
		return Home{}, problem(ExitUnavailable, err, "home %q: %v: name CPUs instead", spec, err)
	}
	domains := map[int]CPUs{}
	switch kind {
	case "llc":
		for i, cpus := range m.LLCs {
			domains[i] = cpus
		}
	case "node":
		for _, n := range m.Nodes {
			domains[n.ID] = n.CPUs
		}
	case "socket":
		domains = m.Sockets
	case "near":
		for _, cpus := range m.LLCs {
			for _, cpu := range cpus {
				domains[cpu] = cpus
			}
		}
	}
	var there, home CPUs
	for id := range domains {
		there = append(there, id)
	}
	for _, n := range numbers {
		cpus, ok := domains[n]
		if !ok {
			if kind == "near" {
				kind = "online CPU"
			}
			return Home{}, problem(ExitData, nil, "home %q: this machine has no %s %d, only %s (cosched topology shows them)",
				spec, kind, n, or(there.normal().String(), "none"))
		}
		home = append(home, cpus...)
	}
	home = home.normal()
	if len(home) == 0 {
		return Home{}, problem(ExitData, nil, "home %q has no online CPU: cosched topology shows those that have one", spec)
	}
	return Home{home.String(), home}, nil
}

// nearDevice finds the CPUs that are local to a network or block device. They are those that
// sysfs gives for the device or, failing that, for the nearest device above it, such as its bus.
func (h Host) nearDevice(spec, name string) (Home, error) {
	if name == "" || strings.ContainsRune(name, '/') {
		return Home{}, problem(ExitUsage, nil, "home %q: %q is not a device's name; want one of %s or %s",
			spec, name, filepath.Join(h.Sys, "class/net"), filepath.Join(h.Sys, "class/block"))
	}
	for _, class := range []string{"class/net", "class/block"} {
		dir, err := filepath.EvalSymlinks(filepath.Join(h.Sys, class, name))
		if err != nil {
			continue
		}
		top, err := filepath.EvalSymlinks(h.Sys)
		if err != nil {
			return Home{}, err
		}
		nodes, err := filepath.Glob(filepath.Join(h.Sys, "devices/system/node/node[0-9]*"))
		if err != nil {
			return Home{}, err
		}
		for ; strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
			node, nodeErr := readInt(filepath.Join(dir, "numa_node"))
			if nodeErr == nil && node < 0 && len(nodes) > 1 {
				continue // without a node, local_cpulist has all CPUs
			}
			if cpus, err := readCPUs(filepath.Join(dir, "local_cpulist")); err == nil && len(cpus) > 0 {
				return Home{cpus.String(), cpus}, nil
			}
			if nodeErr != nil || node < 0 {
				continue
			}
			cpus, err := readCPUs(filepath.Join(h.Sys, fmt.Sprintf("devices/system/node/node%d/cpulist", node)))
			if err == nil && len(cpus) > 0 {
				return Home{cpus.String(), cpus}, nil
			}
		}
		return Home{}, problem(ExitData, nil, "home %q: neither %s nor its bus says which CPUs are local to it: name CPUs",
			spec, filepath.Join(h.Sys, class, name))
	}
	return Home{}, problem(ExitData, nil, "home %q: no device %s in %s or %s",
		spec, name, filepath.Join(h.Sys, "class/net"), filepath.Join(h.Sys, "class/block"))
}

func readCPUs(file string) (CPUs, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUs(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cpus, nil
}

func readInt(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
