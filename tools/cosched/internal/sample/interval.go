package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"cosched.io/cosched"
)

// Interval is what happened between two samples, as it is shown.
type Interval struct {
	Time time.Time `json:"time"` // of the later sample
	// Seconds is 0 if there is no earlier sample to compare with, or if the machine was
	// booted in between. All rates are 0 then.
	Seconds  float64 `json:"seconds"`
	LLCs     []LLC   `json:"llcs"`
	CPUs     []Idle  `json:"cpus"`
	IdleCPUs float64 `json:"idle_cpus"` // sum over all CPUs
	Total    Use     `json:"total"`
	Clusters []Use   `json:"clusters"`
}

// LLC is an LLC domain.
type LLC struct {
	CPUs cosched.CPUs `json:"cpus"`
	Idle float64      `json:"idle_cpus"`
}

// Idle is how idle a CPU was.
type Idle struct {
	CPU  int     `json:"cpu"`
	Idle float64 `json:"idle"` // share of time, 0 to 1
}

// Use is what a cluster did. Numbers of moves are per second.
type Use struct {
	Name    string       `json:"name"`
	Path    string       `json:"path"`
	State   State        `json:"state,omitempty"`
	Asked   string       `json:"cpus_preferred"`
	Home    cosched.CPUs `json:"home"`
	Weights [2]int       `json:"weights"`
	Threads int          `json:"threads"`

	CPU float64 `json:"cpu"` // CPU time per second
	// AtHome is the percentage of CPU time that was at home; nil if there was no CPU time.
	AtHome      *float64 `json:"at_home_percent"`
	Wakeups     float64  `json:"wakeups_home"`
	Spilled     float64  `json:"wakeups_spilled"`
	Overflowed  float64  `json:"wakeups_overflowed"`
	Returned    float64  `json:"strays_returned"`
	Swapped     float64  `json:"strays_swapped"`
	Pushed      float64  `json:"tasks_pushed"`
	Pulled      float64  `json:"tasks_pulled"`
	HomeChanges float64  `json:"home_changes"`

	LLCs []LLCLoad         `json:"llcs"`
	Load []cosched.CPULoad `json:"cpus"`
}

// State says that a cluster was not there all of the time.
type State string

// The states of clusters that were not there all of the time. A cluster that was has an
// empty state.
const (
	StateNew     State = "new"
	StateRemoved State = "removed"
)

// Between returns what happened from a sample, which may be nil, to a later one. Clusters
// are in the order of the later sample, and removed clusters are where they were.
func Between(was, now *Sample) *Interval {
	v := &Interval{Time: now.Time, Clusters: make([]Use, 0, len(now.Clusters)), CPUs: make([]Idle, 0, len(now.CPUs))}
	if was != nil && was.Monotonic < now.Monotonic {
		v.Seconds = float64(now.Monotonic-was.Monotonic) / 1e6
	} else {
		was = nil
	}
	total := Cluster{Figures: now.Total}
	if was == nil {
		v.Total = v.use(total, cosched.Stat{})
	} else {
		v.Total = v.use(total, was.Total.Stat)
	}
	v.cpus(was, now)
	if was == nil {
		for _, c := range now.Clusters {
			v.Clusters = append(v.Clusters, v.use(c, cosched.Stat{}))
		}
		return v
	}
	// Both lists are sorted in the same way.
	i, j := 0, 0
	for i < len(was.Clusters) || j < len(now.Clusters) {
		order := 0
		if i == len(was.Clusters) {
			order = 1
		} else if j == len(now.Clusters) {
			order = -1
		} else {
			order = comparePaths(was.Clusters[i].Path, now.Clusters[j].Path)
		}
		switch {
		case order < 0:
			u := v.use(was.Clusters[i], was.Clusters[i].Stat)
			u.State, u.LLCs, u.Load = StateRemoved, []LLCLoad{}, []cosched.CPULoad{}
			v.Clusters = append(v.Clusters, u)
			i++
		case order > 0:
			u := v.use(now.Clusters[j], was.before(&now.Clusters[j], nil))
			u.State = StateNew
			v.Clusters = append(v.Clusters, u)
			j++
		default:
			v.Clusters = append(v.Clusters, v.use(now.Clusters[j], was.before(&now.Clusters[j], &was.Clusters[i])))
			i, j = i+1, j+1
		}
	}
	return v
}

// before returns the counters that those of a cluster are to be compared with; old is the
// cluster in the earlier sample s, or nil if it was not there.
func (s *Sample) before(c, old *Cluster) cosched.Stat {
	stat, ok := cosched.Earlier(c.Path, c.reading().Own, func(path string) (cosched.Reading, bool) {
		if path == c.Path {
			if old == nil {
				return cosched.Reading{}, false
			}
			return old.reading(), true
		}
		i, ok := slices.BinarySearchFunc(s.Clusters, path, func(c Cluster, path string) int { return comparePaths(c.Path, path) })
		if !ok {
			return cosched.Reading{}, false
		}
		return s.Clusters[i].reading(), true
	})
	switch {
	case ok:
		return stat
	case old != nil:
		return c.Stat // what is above it is not in the samples
	}
	return s.Total.Stat
}

func (c *Cluster) reading() cosched.Reading {
	return cosched.Reading{Stat: c.Stat, Own: c.Asked != "" || len(c.Home) == 0}
}

// comparePaths orders paths as a walk of the tree does: what is below a cgroup follows the
// cgroup, before the cgroup's neighbours.
func comparePaths(a, b string) int {
	for a != b { // most are the same
		x, arest, amore := strings.Cut(a, "/")
		y, brest, bmore := strings.Cut(b, "/")
		switch {
		case x != y:
			return cmp.Compare(x, y)
		case !amore || !bmore:
			return cmp.Compare(len(a), len(b))
		}
		a, b = arest, brest
	}
	return 0
}

// use compares a cluster with earlier counters.
func (v *Interval) use(c Cluster, was cosched.Stat) Use {
	u := Use{
		Name: c.Name, Path: c.Path, Asked: c.Asked, Home: c.Home, Weights: c.Weights, Threads: c.Threads,
		LLCs: c.LLCs, Load: c.CPUs,
	}
	if v.Seconds == 0 {
		return u
	}
	d := c.Stat.Since(was)
	per := func(n uint64) float64 { return float64(n) / v.Seconds }
	u.CPU = per(d.PreferredUsec+d.OutsideUsec) / 1e6
	if p, ok := d.HomeShare(); ok {
		u.AtHome = &p
	}
	u.Wakeups, u.Spilled, u.Overflowed = per(d.WakeupsHome), per(d.WakeupsSpilled), per(d.WakeupsOverflowed)
	u.Returned, u.Swapped = per(d.StraysReturned), per(d.StraysSwapped)
	u.Pushed, u.Pulled, u.HomeChanges = per(d.TasksPushed), per(d.TasksPulled), per(d.HomeChanges)
	return u
}

// cpus sets how idle each CPU was, by the kernel's own account: the CPU's idle time over
// all of its time. The exact times at which the two samples were taken do not matter then.
func (v *Interval) cpus(was, now *Sample) {
	v.LLCs = make([]LLC, len(now.LLCs))
	for i, cpus := range now.LLCs {
		v.LLCs[i].CPUs = cpus
	}
	for _, c := range now.CPUs {
		idle := 0.0
		if was != nil {
			i, ok := slices.BinarySearchFunc(was.CPUs, c.CPU, func(b CPU, n int) int { return b.CPU - n })
			// The idle time can go back if the CPU went offline.
			if ok && c.Idle >= was.CPUs[i].Idle && c.Busy >= was.CPUs[i].Busy {
				b := was.CPUs[i]
				if all := c.Idle - b.Idle + c.Busy - b.Busy; all > 0 {
					idle = float64(c.Idle-b.Idle) / float64(all)
				}
			}
		}
		v.CPUs = append(v.CPUs, Idle{c.CPU, idle})
		v.IdleCPUs += idle
		for i := range v.LLCs {
			if v.LLCs[i].CPUs.Has(c.CPU) {
				v.LLCs[i].Idle += idle
				break
			}
		}
	}
}

// HomeText returns the share at home in the form in which it is shown.
func (u *Use) HomeText() string {
	if u.AtHome == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *u.AtHome)
}

// Summary says in one line about all clusters what Use says about one.
func (v *Interval) Summary() string {
	n := 0
	for _, u := range v.Clusters {
		if u.State != StateRemoved {
			n++
		}
	}
	if v.Seconds == 0 {
		return fmt.Sprintf("%d clusters, %d CPUs", n, len(v.CPUs))
	}
	return fmt.Sprintf("%d clusters used %.1f of %d CPUs, %s %% at home; %.1f CPUs idle; %.0f spilled, %.0f returned a second",
		n, v.Total.CPU, len(v.CPUs), v.Total.HomeText(), v.IdleCPUs, v.Total.Spilled+v.Total.Overflowed, v.Total.Returned+v.Total.Swapped)
}

// WhyEmpty says why no cluster is shown.
func (v *Interval) WhyEmpty(filter string) string {
	if len(v.Clusters) > 0 {
		return fmt.Sprintf("none of %d clusters has %q in its name", len(v.Clusters), filter)
	}
	return "no clusters: cosched create NAME --home SPEC makes one"
}
