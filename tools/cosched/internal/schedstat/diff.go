package schedstat

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Diff has the differences between two reports.
type Diff struct {
	A       Side     `json:"a"`
	B       Side     `json:"b"`
	Only    []Only   `json:"only"`    // levels that only one of them has
	Changes []Change `json:"changes"` // the largest changes first
}

// Side is one of the two reports.
type Side struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Recorded
	Notes []string `json:"notes,omitempty"`
}

// Only is a level of domains that only one of the reports has.
type Only struct {
	In    string `json:"in"` // A or B
	Level string `json:"level"`
	Calls uint64 `json:"calls"`
}

// Change is a figure in two reports.
type Change struct {
	Level  string  `json:"level"`          // or all CPUs
	Kind   string  `json:"kind,omitempty"` // the kind of balancing
	What   string  `json:"what"`
	A      float64 `json:"a"`
	B      float64 `json:"b"`
	Factor ratio   `json:"factor"` // B / A; null if A is 0
	// AtLeast is the factor by which the figure rose or fell at least, whatever chance
	// contributed: the end of the factor's 95 % confidence interval that is nearer to 1, or
	// 1 if the interval includes 1.
	AtLeast float64 `json:"at_least"`
}

// Changed reports whether the change is more than chance explains.
func (c Change) Changed() bool { return c.AtLeast > 1 }

// figure is what is compared: the quotient of a sum and a base.
type figure struct {
	where, part, what string // part is the kind of balancing, if the figure is about one
	sum, base         float64
	scale             float64 // of the quotient, for people
	// variance is that of the logarithm of the quotient. It is computed from the number of
	// events, as if each event was independent of the others.
	variance float64
}

// half is added to a number of events. That number can be 0, which has no logarithm: half
// an event more is the usual remedy.
const half = 0.5

// rate is the number of events per second.
func rate(what string, n uint64, seconds float64) figure {
	return figure{what: what, sum: float64(n), base: seconds, scale: 1, variance: 1 / (float64(n) + half)}
}

// share is the part of some events in others.
func share(what string, n, of uint64) figure {
	return figure{what: what, sum: float64(n), base: float64(of), scale: 100, variance: max(0, 1/(float64(n)+half)-1/(float64(of)+half))}
}

// average is the mean of the values of n events, which add up to sum. It is assumed that
// the standard deviation of a value is as large as its mean, which holds for times that are
// as likely to end at any moment as at another.
func average(what string, sum, n uint64, scale float64) figure {
	return figure{what: what, sum: float64(sum), base: float64(n), scale: scale, variance: 1 / float64(n)}
}

func (f figure) value() float64 { return f.sum / f.base * f.scale }

// sure95 is the number of standard deviations that a normal variable is within, 19 times in
// 20.
const sure95 = 1.96

// change compares two figures of the same thing.
func change(a, b figure) Change {
	c := Change{Level: a.where, Kind: a.part, What: a.what, A: a.value(), B: b.value(), Factor: quotient(b.value(), a.value())}
	by := math.Abs(math.Log((b.sum + half) / b.base * a.base / (a.sum + half)))
	c.AtLeast = math.Exp(max(0, by-sure95*math.Sqrt(a.variance+b.variance)))
	return c
}

// Compare compares two reports. The names are those of their files.
func Compare(nameA string, a *Report, nameB string, b *Report) *Diff {
	d := &Diff{
		A: Side{nameA, a.Version, a.Recorded, a.Notes}, B: Side{nameB, b.Version, b.Recorded, b.Notes},
		Only: []Only{}, Changes: []Change{},
	}
	timed := a.Seconds > 0 && b.Seconds > 0
	figures := func(r *Report, f func(seconds float64) []figure) []figure {
		if !timed {
			return f(0)
		}
		return f(r.Seconds)
	}
	d.compare(figures(a, a.All.figures), figures(b, b.All.figures))
	left := slices.Clone(b.Levels)
	for i, l := range a.Levels {
		at := slices.IndexFunc(b.Levels, func(o *Level) bool { return o.Name == l.Name })
		if len(b.Levels) > 0 && l.named != b.Levels[0].named && i < len(b.Levels) {
			at = i // one kernel names domains and the other does not: compare by number
		}
		if at < 0 {
			d.Only = append(d.Only, Only{"A", l.Name, l.Calls()})
			continue
		}
		d.compare(figures(a, l.figures), figures(b, b.Levels[at].figures))
		left[at] = nil
	}
	for _, l := range left {
		if l != nil {
			d.Only = append(d.Only, Only{"B", l.Name, l.Calls()})
		}
	}
	slices.SortStableFunc(d.Changes, func(a, b Change) int { return cmp.Compare(b.AtLeast, a.AtLeast) })
	return d
}

// compare adds the changes between figures of the same place. Figures of nothing are left
// out.
func (d *Diff) compare(a, b []figure) {
	for _, fa := range a {
		i := slices.IndexFunc(b, func(fb figure) bool { return fb.what == fa.what && fb.part == fa.part })
		if i < 0 || fa.base == 0 || b[i].base == 0 || fa.sum == 0 && b[i].sum == 0 {
			continue
		}
		d.Changes = append(d.Changes, change(fa, b[i]))
	}
}

// figures returns the figures of a CPU, or of all CPUs. If the time is not known, so that
// seconds is 0, there are no rates.
func (r Run) figures(seconds float64) []figure {
	list := []figure{
		average("average run, ms", r.RunNS, r.Slices, 1/float64(time.Millisecond)),
		average("average wait, ms", r.WaitNS, r.Slices, 1/float64(time.Millisecond)),
		share("schedule() goes idle, %", r.ToIdle, r.Schedules),
		share("wakeups onto the same CPU, %", r.WakeupsLocal, r.Wakeups),
	}
	if seconds > 0 {
		list = append(list,
			rate("timeslices per s", r.Slices, seconds),
			rate("wakeups per s", r.Wakeups, seconds),
			rate("sched_yield() per s", r.Yields, seconds))
	}
	for i := range list {
		list[i].where = "all CPUs"
	}
	return list
}

// figures returns the figures of a level. If the time is not known, so that seconds is 0,
// the numbers of calls of the kinds of balancing are compared by their share.
func (l *Level) figures(seconds float64) []figure {
	var list []figure
	for i, b := range l.Kinds() {
		mine := []figure{
			share("no busier group, % of calls", b.NoGroup, b.Calls),
			share("no busier queue, % of calls", b.NoQueue, b.Calls),
			share("left to another CPU or pinned, % of calls", b.Left, b.Calls),
			share("failed to move a task, % of calls", b.Failed, b.Calls),
			share("moved a task, % of calls", b.Succeeded, b.Calls),
			average("tasks moved at once", b.Moved, b.Succeeded, 1),
			share("of tasks moved, cache-hot, %", b.Hot, b.Moved),
		}
		for _, m := range b.Imbalances {
			mine = append(mine, average(m.Name(), m.Sum, b.Tries(), 1))
		}
		if seconds > 0 {
			mine = append(mine, rate("balancing calls per s", b.Calls, seconds))
		} else {
			mine = append(mine, share("balancing calls, % of the level's", b.Calls, l.Calls()))
		}
		for _, f := range mine {
			f.part = KindNames[i]
			list = append(list, f)
		}
	}
	list = append(list, share("active balancing failed, % of calls", l.Active.Failed, l.Active.Calls))
	if seconds > 0 {
		list = append(list,
			rate("active balancing calls per s", l.Active.Calls, seconds),
			rate("tasks moved on exec per s", l.Exec.Moved, seconds),
			rate("tasks moved on fork per s", l.Fork.Moved, seconds),
			rate("wakeups onto another CPU per s", l.Wakeups.Remote, seconds),
			rate("affine wakeups per s", l.Wakeups.Affine, seconds),
			rate("passive balancing per s", l.Wakeups.Passive, seconds))
	}
	for i := range list {
		list[i].where = l.Name
	}
	return list
}
