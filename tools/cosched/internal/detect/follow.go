package detect

import (
	"cmp"
	"maps"
	"slices"
)

// patience is how many times in a row a thread must be found in another group before it is
// moved, and how many times in a row there must be no groups before all clusters are
// dissolved. Moving a thread has a price: what it has in caches.
const patience = 3

// Tracker follows groups over time: it recognises groups that it has seen before, and does
// not move a thread because of a single result.
type Tracker struct {
	clusters []*cluster  // by number
	in       map[int]int // cluster of each thread, by TID
	moves    map[int]move
	none     int // number of times in a row that there were no groups
	last     int // the number that was given to a cluster last
}

type cluster struct {
	number int
	found  map[int]bool // the threads of the group when it was last found
}

// move is the group in which a thread was found that is not its own, and how many times in
// a row.
type move struct{ to, times int }

// Change is a thread that goes from one cluster to another; 0 stands for no cluster.
type Change struct {
	Thread Thread `json:"thread"`
	From   int    `json:"from"`
	To     int    `json:"to"`
}

// NewTracker returns a Tracker without groups.
func NewTracker() *Tracker { return &Tracker{in: map[int]int{}, moves: map[int]move{}} }

// Groups lists the threads of each cluster, by the cluster's number.
func (t *Tracker) Groups() map[int][]int {
	groups := map[int][]int{}
	for tid, n := range t.in {
		groups[n] = append(groups[n], tid)
	}
	for _, tids := range groups {
		slices.Sort(tids)
	}
	return groups
}

// Update takes the groups that were found now, and returns what to change.
func (t *Tracker) Update(groups []Group, alive func(tid int) bool) []Change {
	for tid := range t.in {
		if !alive(tid) {
			delete(t.in, tid)
			delete(t.moves, tid)
		}
	}
	var changes []Change
	if len(groups) == 0 {
		if t.none++; t.none >= patience {
			for _, tid := range slices.Sorted(maps.Keys(t.in)) {
				changes = append(changes, Change{Thread: Thread{TID: tid}, From: t.in[tid]})
			}
			*t = Tracker{in: map[int]int{}, moves: map[int]move{}, last: t.last}
		}
		return changes
	}
	t.none = 0
	seen := map[int]bool{}
	for i, n := range t.recognise(groups) {
		for _, thread := range groups[i].Threads {
			tid := thread.TID
			if !alive(tid) {
				continue
			}
			seen[tid] = true
			from, placed := t.in[tid]
			switch m := t.moves[tid]; {
			case from == n:
				delete(t.moves, tid)
				continue
			case placed && m.to != n:
				t.moves[tid] = move{n, 1}
				continue
			case placed && m.times+1 < patience:
				t.moves[tid] = move{n, m.times + 1}
				continue
			}
			delete(t.moves, tid)
			t.in[tid] = n
			changes = append(changes, Change{thread, from, n})
		}
	}
	// A thread that is in no group now stays where it is, but its count of results in a row
	// starts again.
	for tid := range t.moves {
		if !seen[tid] {
			delete(t.moves, tid)
		}
	}
	return changes
}

// recognise returns the number of the cluster that each group corresponds to, by the
// threads that they have in common.
func (t *Tracker) recognise(groups []Group) []int {
	type match struct{ group, number, common int }
	var matches []match
	for i, g := range groups {
		for _, c := range t.clusters {
			m := match{i, c.number, 0}
			for _, thread := range g.Threads {
				if c.found[thread.TID] || t.in[thread.TID] == c.number {
					m.common++
				}
			}
			if m.common > 0 {
				matches = append(matches, m)
			}
		}
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.common, a.common), cmp.Compare(a.number, b.number), cmp.Compare(a.group, b.group))
	})
	numbers := make([]int, len(groups))
	for _, m := range matches {
		if numbers[m.group] == 0 && !slices.Contains(numbers, m.number) {
			numbers[m.group] = m.number
		}
	}
	for i, g := range groups {
		if numbers[i] == 0 {
			t.last++
			numbers[i] = t.last
			t.clusters = append(t.clusters, &cluster{number: t.last})
		}
		for _, c := range t.clusters {
			if c.number == numbers[i] {
				c.found = map[int]bool{}
				for _, thread := range g.Threads {
					c.found[thread.TID] = true
				}
			}
		}
	}
	// Clusters that were not found and have no threads are forgotten.
	used := slices.Collect(maps.Values(t.in))
	t.clusters = slices.DeleteFunc(t.clusters, func(c *cluster) bool {
		return !slices.Contains(numbers, c.number) && !slices.Contains(used, c.number)
	})
	return numbers
}
