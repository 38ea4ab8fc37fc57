package lab

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// Symbolize names the lines that are in the kernel's data, using its vmlinux: NAME+OFFSET,
// followed by " of CPU N" for per-CPU data. Stacks and memory that the kernel allocates
// have no names.
func (r *Report) Symbolize(vmlinux string) error {
	f, err := elf.Open(vmlinux)
	if err != nil {
		return fmt.Errorf("the kernel's symbols: %w", err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("the kernel's symbols: %s: %w", vmlinux, err)
	}
	slices.SortStableFunc(symbols, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	var all, ofCPUs []elf.Symbol
	for _, s := range symbols {
		if s.Size == 0 || elf.ST_TYPE(s.Info) != elf.STT_OBJECT || int(s.Section) >= len(f.Sections) {
			continue
		}
		// Per-CPU data is linked to addresses of its own, to which a CPU's GS is added.
		if strings.HasPrefix(f.Sections[s.Section].Name, ".data..percpu") {
			ofCPUs = append(ofCPUs, s)
		} else {
			all = append(all, s)
		}
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		l.Symbol = symbolAt(all, uint64(l.Address))
		for cpu, base := range r.CPUData {
			if l.Symbol != "" {
				break
			}
			if s := symbolAt(ofCPUs, uint64(l.Address-base)); s != "" && base != 0 {
				l.Symbol = fmt.Sprintf("%s of CPU %d", s, cpu)
			}
		}
	}
	return nil
}

// symbolAt names the symbol that an address is in; the name is empty if there is none.
func symbolAt(sorted []elf.Symbol, address uint64) string {
	i, _ := slices.BinarySearchFunc(sorted, address, func(s elf.Symbol, a uint64) int {
		if s.Value <= a {
			return -1
		}
		return 1
	})
	if i--; i < 0 || address-sorted[i].Value >= sorted[i].Size {
		return ""
	}
	return fmt.Sprintf("%s+%#x", sorted[i].Name, address-sorted[i].Value)
}
