package schedstat

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"cosched.io/cosched"
)

// delta is what was counted between two snapshots.
type delta struct {
	f     format
	cpus  []CPU
	notes []string
}

// between subtracts a snapshot from a later one. If before is nil, the result is what was
// counted since boot. The errors say what is wrong with the pair.
func between(before, after *Snapshot) (*delta, error) {
	d := &delta{f: formats[after.Version]}
	if before == nil {
		d.cpus = after.CPUs
		return d, nil
	}
	if before.Version != after.Version {
		return nil, fmt.Errorf("version %d, then %d: snapshots of two kernels", before.Version, after.Version)
	}
	// Jiffies have 64 or 32 bits, and begin 5 minutes before 2^32.
	if before.Jiffies > after.Jiffies && (before.Jiffies > math.MaxUint32 || uint32(after.Jiffies-before.Jiffies) > math.MaxInt32) {
		return nil, fmt.Errorf("timestamp %d, then %d: in the wrong order, or of two boots", before.Jiffies, after.Jiffies)
	}
	was := map[int]CPU{}
	for _, c := range before.CPUs {
		was[c.ID] = c
	}
	var rebuilt, left cosched.CPUs
	for _, now := range after.CPUs {
		b, ok := was[now.ID]
		if !ok {
			left = append(left, now.ID)
			continue
		}
		delete(was, now.ID)
		c, whole, err := d.subtract(b, now)
		if err != nil {
			return nil, err
		}
		if !whole {
			rebuilt = append(rebuilt, c.ID)
		}
		d.cpus = append(d.cpus, c)
	}
	if left = append(left, slices.Collect(maps.Keys(was))...); len(left) > 0 {
		slices.Sort(left)
		d.note("CPU %s was online in one of the snapshots only, and is left out", left)
	}
	if len(rebuilt) > 0 {
		d.note("the domains of CPU %s were built anew meanwhile, as when a CPU comes or goes: they are counted from then on", rebuilt)
	}
	if len(d.cpus) == 0 {
		return nil, fmt.Errorf("no CPU is in both snapshots")
	}
	return d, nil
}

func (d *delta) note(text string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(text, args...))
}

// subtract returns what a CPU counted, and whether its domains existed all of that time.
func (d *delta) subtract(b, a CPU) (c CPU, whole bool, err error) {
	c = CPU{ID: a.ID, counters: make([]uint64, cpuCounters), Domains: a.Domains}
	for i, n := range a.counters {
		// Times have 64 bits, the number of timeslices is a long, and the other counters
		// have 32 bits. They all count from boot on.
		if wide := i == cpuRun || i == cpuWait || i == cpuSlices && b.counters[i] > math.MaxUint32; wide && n < b.counters[i] {
			return c, false, fmt.Errorf("CPU %d: counter %d goes from %d back to %d: in the wrong order, or of two boots", a.ID, i+1, b.counters[i], n)
		}
		c.counters[i] = wrapped(b.counters[i], n)
	}
	if !sameShape(b.Domains, a.Domains) {
		return c, false, nil
	}
	domains := slices.Clone(a.Domains)
	for i := range domains {
		was := b.Domains[i].counters
		counters := make([]uint64, len(was))
		for j, n := range a.Domains[i].counters {
			counters[j] = wrapped(was[j], n)
			// No event happens two billion times between two snapshots: this counter did
			// not go over 2^32 but began at 0 again.
			if n < was[j] && counters[j] > math.MaxInt32 && !d.f.imbalance(j) {
				return c, false, nil
			}
		}
		domains[i].counters = counters
	}
	c.Domains = domains
	return c, true, nil
}

// wrapped returns the difference of a counter. If its later value is smaller, it went over
// 2^32.
func wrapped(before, after uint64) uint64 {
	if after < before {
		return uint64(uint32(after - before))
	}
	return after - before
}
