package cosched

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the CPU numbers that a list may name, so that a damaged line
// cannot ask for gigabytes. Linux builds go up to 8192 CPUs (CONFIG_MAXSMP).
const maxCPU = 1<<16 - 1

// CPUs is a set of CPU numbers, sorted and without duplicates.
type CPUs []int

// ParseCPUs parses a CPU list as the kernel prints it: comma-separated numbers
// and ranges ("0-3,8"), or nothing but blanks for the empty set.
func ParseCPUs(s string) (CPUs, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var set CPUs
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, err := parseCPU(first, maxCPU)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", s, err)
		}
		hi := lo
		if isRange {
			if hi, err = parseCPU(last, maxCPU); err != nil {
				return nil, fmt.Errorf("CPU list %q: %w", s, err)
			}
			if hi < lo {
				return nil, fmt.Errorf("CPU list %q: range %q runs backwards", s, part)
			}
		}
		// Without this, repeated ranges would grow the slice to the length
		// of the text times maxCPU.
		if len(set)+hi-lo > 2*maxCPU {
			set = set.normal()
		}
		for cpu := lo; cpu <= hi; cpu++ {
			set = append(set, cpu)
		}
	}
	return set.normal(), nil
}

func parseCPU(s string, last int) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a CPU number", s)
	}
	if n > uint64(last) {
		return 0, fmt.Errorf("CPU %d is above %d", n, last)
	}
	return int(n), nil
}

// checkKernelCPUs returns an error if the kernel would not accept a text as a CPU list. Besides
// the form that it prints, the kernel accepts all, N for the last CPU, 0-15:2/4 for the first two
// of each four, blanks in place of commas, and either that separate nothing: see
// bitmap_parselist() in lib/bitmap-str.c.
func checkKernelCPUs(s string, last int) error {
	number := func(text string, limit int) (int, error) {
		if text == "N" {
			return last, nil
		}
		return parseCPU(text, limit)
	}
	some := false
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(", \t", r) }) {
		text := part
		if rest, ok := strings.CutPrefix(part, "all"); ok {
			text = "0-N" + rest
		}
		first, end, isRange := strings.Cut(text, "-")
		end, groups, inGroups := strings.Cut(end, ":")
		lo, err := number(first, last)
		hi, used, group := lo, 1, 1
		if isRange && err == nil {
			hi, err = number(end, last)
		}
		if inGroups && err == nil {
			u, g, both := strings.Cut(groups, "/")
			if !both {
				return fmt.Errorf("%q: want USED/GROUP after the colon, as in 0-15:2/4", part)
			}
			if used, err = number(u, maxCPU); err == nil {
				group, err = number(g, maxCPU)
			}
		}
		switch {
		case err != nil:
			return err
		case hi < lo:
			return fmt.Errorf("range %q runs backwards", part)
		case group == 0 || used > group:
			return fmt.Errorf("%q: of each %d CPUs, %d cannot be used", part, group, used)
		}
		some = some || used > 0
	}
	if !some {
		return errors.New("it names no CPU")
	}
	return nil
}

func (c CPUs) normal() CPUs {
	slices.Sort(c)
	return slices.Compact(c)
}

// String gives the list in the kernel's form, "" for the empty set.
func (c CPUs) String() string {
	var b strings.Builder
	for i := 0; i < len(c); {
		j := i
		for j+1 < len(c) && c[j+1] == c[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(c[j]))
		}
		i = j + 1
	}
	return b.String()
}

// MarshalText gives the list in the kernel's form, for JSON.
func (c CPUs) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a list in the kernel's form.
func (c *CPUs) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCPUs(string(text))
	return err
}

// Has reports whether cpu is in the set.
func (c CPUs) Has(cpu int) bool {
	_, ok := slices.BinarySearch(c, cpu)
	return ok
}

// And gives the CPUs that are in both sets.
func (c CPUs) And(o CPUs) CPUs {
	var both CPUs
	for _, cpu := range c {
		if o.Has(cpu) {
			both = append(both, cpu)
		}
	}
	return both
}
