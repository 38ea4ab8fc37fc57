package cosched

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SysCPU is where the kernel describes CPUs and their caches.
const SysCPU = "/sys/devices/system/cpu"

// LLCs reads the LLC domains of the online CPUs from a directory of the form
// of SysCPU. They are in the order of their first CPU, so that they have the
// same order and numbers as in cosched.load. For a CPU without a description of
// its caches, its package is taken as its LLC domain, as the scheduler does.
func LLCs(sysCPU string) ([]CPUs, error) {
	text, err := os.ReadFile(filepath.Join(sysCPU, "online"))
	if err != nil {
		return nil, err
	}
	online, err := ParseCPUs(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s/online: %w", sysCPU, err)
	}
	var llcs []CPUs
	seen := make(map[int]bool)
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		shared, err := llcOf(filepath.Join(sysCPU, fmt.Sprintf("cpu%d", cpu)))
		if err != nil {
			return nil, err
		}
		shared = shared.And(online)
		if !shared.Has(cpu) {
			return nil, fmt.Errorf("%s: CPU %d is not in its own LLC domain %s", sysCPU, cpu, shared)
		}
		for _, c := range shared {
			seen[c] = true
		}
		llcs = append(llcs, shared)
	}
	return llcs, nil
}

// llcOf gives the CPUs that share the highest level of cache with a CPU.
func llcOf(cpuDir string) (CPUs, error) {
	indexes, err := filepath.Glob(filepath.Join(cpuDir, "cache", "index[0-9]*"))
	if err != nil {
		return nil, err
	}
	list := filepath.Join(cpuDir, "topology", "package_cpus_list")
	top := 0
	for _, dir := range indexes {
		text, err := os.ReadFile(filepath.Join(dir, "level"))
		if err != nil {
			return nil, err
		}
		level, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s/level: %w", dir, err)
		}
		if level > top {
			top, list = level, filepath.Join(dir, "shared_cpu_list")
		}
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUs(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	return cpus, nil
}
