package cosched

import (
	"fmt"
	"strconv"
	"strings"
)

// Stat is the content of cosched.stat. Times are in microseconds. A cgroup's
// counters include its descendants', removed ones too.
type Stat struct {
	PreferredUsec     uint64 `json:"preferred_usec"`     // CPU time at home
	OutsideUsec       uint64 `json:"outside_usec"`       // CPU time outside it
	WakeupsHome       uint64 `json:"wakeups_home"`       // placed at home
	WakeupsSpilled    uint64 `json:"wakeups_spilled"`    // to an idle CPU outside
	WakeupsOverflowed uint64 `json:"wakeups_overflowed"` // outside by rule 4
	StraysReturned    uint64 `json:"strays_returned"`    // running strays moved home
	StraysSwapped     uint64 `json:"strays_swapped"`     // exchanged between homes
	TasksPushed       uint64 `json:"tasks_pushed"`       // out of a crowded home, running, to a CPU idle for long
	TasksPulled       uint64 `json:"tasks_pulled"`       // out of home, by the balancer
	HomeChanges       uint64 `json:"home_changes"`
}

// fields maps each key of cosched.stat to its place.
func (s *Stat) fields() map[string]*uint64 {
	return map[string]*uint64{
		"preferred_usec":     &s.PreferredUsec,
		"outside_usec":       &s.OutsideUsec,
		"wakeups_home":       &s.WakeupsHome,
		"wakeups_spilled":    &s.WakeupsSpilled,
		"wakeups_overflowed": &s.WakeupsOverflowed,
		"strays_returned":    &s.StraysReturned,
		"strays_swapped":     &s.StraysSwapped,
		"tasks_pushed":       &s.TasksPushed,
		"tasks_pulled":       &s.TasksPulled,
		"home_changes":       &s.HomeChanges,
	}
}

// ParseStat parses the content of cosched.stat. Keys that it does not know are
// left out, as a later kernel may add some; a missing one is an error.
func ParseStat(text string) (Stat, error) {
	var s Stat
	want := s.fields()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, val, ok := strings.Cut(line, " ")
		if !ok {
			return Stat{}, fmt.Errorf("line %q: want KEY VALUE", line)
		}
		dst, known := want[key]
		if !known {
			continue
		}
		if dst == nil {
			return Stat{}, fmt.Errorf("%s is there twice", key)
		}
		n, err := strconv.ParseUint(val, 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("line %q: %q is not a number", line, val)
		}
		*dst = n
		want[key] = nil
	}
	for key, dst := range want {
		if dst != nil {
			return Stat{}, fmt.Errorf("%s is missing", key)
		}
	}
	return s, nil
}

// Sub gives what was counted since an earlier reading.
func (s Stat) Sub(before Stat) Stat {
	d := s
	was := before.fields()
	for key, p := range d.fields() {
		*p -= *was[key]
	}
	return d
}

// HomeShare gives the share of the CPU time that was spent at home, in percent;
// ok is false where there was no CPU time.
func (s Stat) HomeShare() (percent float64, ok bool) {
	sum := s.PreferredUsec + s.OutsideUsec
	if sum == 0 {
		return 0, false
	}
	return 100 * float64(s.PreferredUsec) / float64(sum), true
}
