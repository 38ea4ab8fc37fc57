// Package schedstat reads /proc/schedstat, records what a command makes the scheduler
// count, and reports it in the way of Rick Lindsley's scripts for earlier versions of the
// file.
package schedstat

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"cosched.io/cosched"
)

// Counters of a CPU's line, in the order of show_schedstat() in kernel/sched/stats.c,
// which is the same in all versions.
const (
	cpuYields = iota
	_         // left from an earlier scheduler, always 0
	cpuSchedules
	cpuIdle
	cpuWakeups
	cpuWakeupsLocal
	cpuRun  // ns
	cpuWait // ns
	cpuSlices
	cpuCounters
)

// Kinds of balancing.
const (
	idle = iota
	busy
	newlyIdle
	kinds
)

// Counters of one kind of balancing, up to the imbalance, and after it.
const (
	lbCalls = iota
	lbBalanced
	lbFailed
	lbImbalance
)
const (
	lbMoved = iota
	lbHot
	lbNoQueue
	lbNoGroup
	lbRest
)

// Counters of a domain's line after those of the kinds.
const (
	activeCalls = iota
	activeFailed
	activeMoved
	execCalls
	execBalanced
	execMoved
	forkCalls
	forkBalanced
	forkMoved
	wakeRemote
	wakeAffine
	wakePassive
	domainRest
)

// format is what differs between the versions of the file.
type format struct {
	// kinds in the order of enum cpu_idle_type.
	kinds [kinds]int
	// imbalances are the sums that are counted for each kind: one sum of load, utilisation
	// or tasks, whatever was to be balanced, or one sum for each value of enum
	// migration_type.
	imbalances []string
	named      bool // domains have names
}

var formats = map[int]format{
	15: {kinds: [kinds]int{idle, busy, newlyIdle}, imbalances: []string{""}},
	// Linux 6.10 changed the enum. The page about the file in the kernel's Documentation
	// still has the old order.
	16: {kinds: [kinds]int{busy, idle, newlyIdle}, imbalances: []string{""}},
	// Linux 6.14.
	17: {kinds: [kinds]int{busy, idle, newlyIdle}, imbalances: []string{"load", "util", "tasks", "misfit"}, named: true},
}

// kind returns the number of counters of a kind of balancing.
func (f format) kind() int { return lbImbalance + len(f.imbalances) + lbRest }

// counters returns the number of counters of a domain.
func (f format) counters() int { return kinds*f.kind() + domainRest }

// imbalance reports whether a domain's counter sums up imbalances; other counters count
// events.
func (f format) imbalance(i int) bool {
	n := i % f.kind()
	return i < kinds*f.kind() && n >= lbImbalance && n < lbImbalance+len(f.imbalances)
}

// Snapshot is the content of /proc/schedstat.
type Snapshot struct {
	Version int
	Jiffies uint64
	CPUs    []CPU
}

// CPU is what one CPU counted.
type CPU struct {
	ID       int
	counters []uint64
	Domains  []Domain // from the smallest
}

// Domain is what a CPU counted for one of its domains.
type Domain struct {
	Name     string // empty before version 17
	Span     cosched.CPUs
	counters []uint64
}

// Parse parses the content of /proc/schedstat. Its errors name the line.
func Parse(lines []string) (*Snapshot, error) {
	s := &Snapshot{}
	var f format
	for i, line := range lines {
		words := strings.Fields(line)
		var err error
		switch {
		case i == 0:
			f, err = s.version(words)
		case i == 1:
			err = s.timestamp(words)
		case len(words) == 0:
			err = errors.New("is empty")
		case strings.HasPrefix(words[0], "cpu"):
			err = s.cpu(words)
		case strings.HasPrefix(words[0], "domain"):
			err = s.domain(f, words)
		default:
			err = fmt.Errorf("%.20q begins neither a CPU nor a domain", words[0])
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(s.CPUs) == 0 {
		return nil, fmt.Errorf("%d lines and no CPU: truncated", len(lines))
	}
	return s, nil
}

func (s *Snapshot) version(words []string) (format, error) {
	if len(words) != 2 || words[0] != "version" {
		return format{}, errors.New(`is not "version" and a number: no /proc/schedstat`)
	}
	n, err := strconv.Atoi(words[1])
	if err != nil {
		return format{}, fmt.Errorf("version %.20q is not a number", words[1])
	}
	f, ok := formats[n]
	if !ok {
		return format{}, fmt.Errorf("version %d is none of 15 (before Linux 6.10), 16 (from 6.10) and 17 (from 6.14)", n)
	}
	s.Version = n
	return f, nil
}

func (s *Snapshot) timestamp(words []string) error {
	if len(words) != 2 || words[0] != "timestamp" {
		return errors.New(`is not "timestamp" and a number`)
	}
	n, err := numbers(words[1:], 1)
	if err == nil {
		s.Jiffies = n[0]
	}
	return err
}

func (s *Snapshot) cpu(words []string) error {
	id, err := strconv.Atoi(words[0][len("cpu"):])
	if err != nil || id < 0 {
		return fmt.Errorf("%.20q is not a CPU", words[0])
	}
	if n := len(s.CPUs); n > 0 && id <= s.CPUs[n-1].ID {
		return fmt.Errorf("CPU %d follows CPU %d", id, s.CPUs[n-1].ID)
	}
	counters, err := numbers(words[1:], cpuCounters)
	s.CPUs = append(s.CPUs, CPU{ID: id, counters: counters})
	return err
}

func (s *Snapshot) domain(f format, words []string) error {
	if len(s.CPUs) == 0 {
		return errors.New("a domain before the first CPU")
	}
	c := &s.CPUs[len(s.CPUs)-1]
	if want := "domain" + strconv.Itoa(len(c.Domains)); words[0] != want {
		return fmt.Errorf("%.20q where %s of CPU %d follows", words[0], want, c.ID)
	}
	words = words[1:]
	var d Domain
	var err error
	if f.named && len(words) > 0 {
		d.Name, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return errors.New("a domain without CPUs: truncated")
	}
	if d.Span, err = parseMask(words[0]); err != nil {
		return err
	}
	d.counters, err = numbers(words[1:], f.counters())
	c.Domains = append(c.Domains, d)
	return err
}

func numbers(words []string, want int) ([]uint64, error) {
	if len(words) != want {
		return nil, fmt.Errorf("%d counters, want %d: truncated, or a kernel with counters of its own", len(words), want)
	}
	list := make([]uint64, want)
	for i, w := range words {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%.30q is not a counter", w)
		}
		list[i] = n
	}
	return list, nil
}

// maxCPUs bounds the numbers of CPUs, so that a damaged mask cannot ask for gigabytes.
// Linux has at most 8192.
const maxCPUs = 1 << 16

// parseMask parses a set of CPUs as %*pb prints it: hexadecimal, with a comma after
// each 32 bits.
func parseMask(s string) (cosched.CPUs, error) {
	bits, ok := new(big.Int).SetString(strings.ReplaceAll(s, ",", ""), 16)
	if !ok || bits.Sign() <= 0 || bits.BitLen() > maxCPUs {
		return nil, fmt.Errorf("%.40q is not a mask of CPUs", s)
	}
	var set cosched.CPUs
	for cpu := range bits.BitLen() {
		if bits.Bit(cpu) == 1 {
			set = append(set, cpu)
		}
	}
	return set, nil
}

// sameShape reports whether two lists of domains can be from the same build of the kernel's
// domains: they have the same names and CPUs.
func sameShape(a, b []Domain) bool {
	return slices.EqualFunc(a, b, func(a, b Domain) bool { return a.Name == b.Name && slices.Equal(a.Span, b.Span) })
}
