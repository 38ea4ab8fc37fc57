package cosched

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// Stat is the content of cosched.stat. Times are in microseconds. A cgroup's
// counters include those of its descendants, also of removed ones.
type Stat struct {
	PreferredUsec     uint64 `json:"preferred_usec"`     // CPU time at home
	OutsideUsec       uint64 `json:"outside_usec"`       // CPU time outside home
	WakeupsHome       uint64 `json:"wakeups_home"`       // wakeups placed at home
	WakeupsSpilled    uint64 `json:"wakeups_spilled"`    // wakeups placed on an idle CPU outside
	WakeupsOverflowed uint64 `json:"wakeups_overflowed"` // wakeups placed outside by rule 4
	StraysReturned    uint64 `json:"strays_returned"`    // strays moved home
	StraysSwapped     uint64 `json:"strays_swapped"`     // strays exchanged between homes
	TasksPushed       uint64 `json:"tasks_pushed"`       // running tasks moved out of a crowded home to a durably idle CPU
	TasksPulled       uint64 `json:"tasks_pulled"`       // tasks moved out of home by the balancer
	HomeChanges       uint64 `json:"home_changes"`
}

// StatField is one counter of cosched.stat.
type StatField struct {
	Key string
	Of  func(*Stat) *uint64
}

// StatFields are the counters, in the kernel's order.
var StatFields = []StatField{
	{"preferred_usec", func(s *Stat) *uint64 { return &s.PreferredUsec }},
	{"outside_usec", func(s *Stat) *uint64 { return &s.OutsideUsec }},
	{"wakeups_home", func(s *Stat) *uint64 { return &s.WakeupsHome }},
	{"wakeups_spilled", func(s *Stat) *uint64 { return &s.WakeupsSpilled }},
	{"wakeups_overflowed", func(s *Stat) *uint64 { return &s.WakeupsOverflowed }},
	{"strays_returned", func(s *Stat) *uint64 { return &s.StraysReturned }},
	{"strays_swapped", func(s *Stat) *uint64 { return &s.StraysSwapped }},
	{"tasks_pushed", func(s *Stat) *uint64 { return &s.TasksPushed }},
	{"tasks_pulled", func(s *Stat) *uint64 { return &s.TasksPulled }},
	{"home_changes", func(s *Stat) *uint64 { return &s.HomeChanges }},
}

// ParseStat parses the content of cosched.stat. Unknown keys are ignored, as a
// later kernel may add some. A missing key is an error.
//
// It allocates nothing, because cosched top calls it a thousand times a second.
func ParseStat(text []byte) (Stat, error) {
	var s Stat
	seen := 0 // a bit for each field
	next := 0 // the fields usually come in the order of StatFields
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		key, val, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			return Stat{}, fmt.Errorf("line %q: want KEY VALUE", line)
		}
		i := next
		if i == len(StatFields) || StatFields[i].Key != string(key) {
			i = slices.IndexFunc(StatFields, func(f StatField) bool { return f.Key == string(key) })
		}
		if i < 0 {
			continue
		}
		next = i + 1
		if seen&(1<<i) != 0 {
			return Stat{}, fmt.Errorf("%s is there twice", key)
		}
		seen |= 1 << i
		n, ok := counter(val)
		if !ok {
			return Stat{}, fmt.Errorf("line %q: %q is not a number", line, val)
		}
		*StatFields[i].Of(&s) = n
	}
	for i, f := range StatFields {
		if seen&(1<<i) == 0 {
			return Stat{}, fmt.Errorf("%s is missing", f.Key)
		}
	}
	return s, nil
}

// counter parses a number as strconv.ParseUint does, but without making a string of it.
func counter(text []byte) (n uint64, ok bool) {
	for _, c := range text {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = 10*n + d
	}
	return n, len(text) > 0
}

// Sub gives what was counted since an earlier reading.
func (s Stat) Sub(before Stat) Stat {
	for _, f := range StatFields {
		*f.Of(&s) -= *f.Of(&before)
	}
	return s
}

// Since gives what was counted since an earlier reading of a cgroup of the same name. Counters
// never decrease. If one is less than before, the cgroup was removed and made again, and its
// counters began at zero.
func (s Stat) Since(before Stat) Stat {
	for _, f := range StatFields {
		if *f.Of(&s) < *f.Of(&before) {
			return s
		}
	}
	return s.Sub(before)
}

// Reading is what the counters of a cgroup showed.
type Reading struct {
	Stat Stat
	// Own is false for a cgroup that asks for nothing, below one that does: it shows the
	// counters of the cluster that it belongs to.
	Own bool
}

// Earlier returns the counters that those of the cgroup at path are to be compared with, which are
// its own or not (see Reading). find looks up earlier readings by path. If a cgroup without counters
// of its own was made since, or has stopped to ask for a home, its counters are compared with the
// earlier ones of the cgroup above, as they contain all that the cluster above has ever done. ok is
// false if these are not known. A cgroup that was made since, with counters of its own, began at
// zero.
func Earlier(path string, own bool, find func(path string) (r Reading, ok bool)) (s Stat, ok bool) {
	old, ok := find(path)
	if own || ok && !old.Own {
		return old.Stat, true
	}
	for dir := filepath.Dir(path); dir != path; path, dir = dir, filepath.Dir(dir) {
		if above, ok := find(dir); ok {
			return above.Stat, true
		}
	}
	return Stat{}, false
}

// Add gives the sum of two readings.
func (s Stat) Add(o Stat) Stat {
	for _, f := range StatFields {
		*f.Of(&s) += *f.Of(&o)
	}
	return s
}

// AtLeast gives, for each counter, the larger value of two readings.
func (s Stat) AtLeast(o Stat) Stat {
	for _, f := range StatFields {
		*f.Of(&s) = max(*f.Of(&s), *f.Of(&o))
	}
	return s
}

// HomeShare gives the share of the CPU time that was spent at home, in percent.
// ok is false if there was no CPU time.
func (s Stat) HomeShare() (percent float64, ok bool) {
	sum := s.PreferredUsec + s.OutsideUsec
	if sum == 0 {
		return 0, false
	}
	return 100 * float64(s.PreferredUsec) / float64(sum), true
}
