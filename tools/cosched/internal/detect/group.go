package detect

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/graph/community"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/stat"
)

// What groups need in order to be believed.
const (
	// Threads of a group share at least this many times as much with each other as with
	// others. The warehouses of the paper's Table 6 have 1.7 and more if the diagonal is
	// taken as that of the 12 pairs of two different threads, and 1.3 if it is taken as
	// that of all 16 pairs.
	minRatio = 1.25
	// Their modularity is at least this many standard deviations above that of the null
	// model.
	minSigmas = 5
	// The groups of the two halves of the time have at least this adjusted Rand index: 1
	// means the same groups, 0 what chance gives.
	minAgreement = 0.5
	// The same for the parts of a group. It is higher, because the threads of one group do
	// differ somewhat.
	minPartAgreement = 0.9
	// Number of matrices of the null model from which its mean and deviation are computed.
	nullRuns = 10
	// The result of Louvain's method depends on the order in which it takes threads, so
	// groups are the best result of this many runs.
	louvainRuns = 4
)

// Group is a group of threads that share more with each other than with others.
type Group struct {
	Threads []Thread `json:"threads"`
	// Inside is, of what the group's threads share, the part that they share with each
	// other.
	Inside float64 `json:"inside"`
	// Ratio is what a pair of threads inside shares, on average, divided by what a pair of
	// a thread inside and one outside shares; nil if the latter is nothing.
	Ratio *float64 `json:"ratio"`

	members []int
}

// Report is what was found.
type Report struct {
	Groups []Group  `json:"groups"` // the largest first; empty if there is no structure
	Alone  []Thread `json:"alone"`  // threads that share something, but are in no group
	Why    string   `json:"why"`    // why there are no groups, if there are none

	Modularity float64 `json:"modularity"`
	Null       struct {
		Mean      float64 `json:"mean"`
		Deviation float64 `json:"deviation"`
	} `json:"null"`
	// Agreement is the adjusted Rand index between the groups of the two halves of the
	// time.
	Agreement float64 `json:"agreement"`

	Matrix *Matrix `json:"-"`
	order  []int   // indices of the matrix's threads, by group
	ends   []int   // the end of each group in order
}

// Find groups the threads of a sample. halves are the same sample in two parts, each of
// which has every second interval.
func Find(s *Sample, halves [2]*Sample) *Report {
	m := NewMatrix(s)
	r := &Report{Groups: []Group{}, Alone: []Thread{}, Matrix: m}
	for _, members := range r.find(s, halves) {
		if g := m.group(members); len(members) > 1 && (g.Ratio == nil || *g.Ratio >= minRatio) {
			r.Groups = append(r.Groups, g)
		}
	}
	if len(r.Groups) == 0 && r.Why == "" {
		r.Why = "threads share hardly more inside of any groups than with others"
	}
	for i := range r.Groups {
		for _, t := range r.Groups[i].members {
			r.order = append(r.order, t)
			r.Groups[i].Threads = append(r.Groups[i].Threads, m.Threads[t])
		}
		r.ends = append(r.ends, len(r.order))
	}
	for i, t := range m.Threads {
		if !slices.Contains(r.order, i) {
			r.order = append(r.order, i)
			r.Alone = append(r.Alone, t)
		}
	}
	return r
}

// find returns groups that are not there by chance. If there are none, it sets Why.
func (r *Report) find(s *Sample, halves [2]*Sample) [][]int {
	m := r.Matrix
	if len(m.Threads) == 0 {
		r.Why = "no two threads were seen at the same lock or page, and none woke another one"
		return nil
	}
	// The seed is fixed, so that the same sample gives the same groups.
	random := rand.New(rand.NewPCG(1, 2))
	of, q := louvain(m.Shared, louvainRuns, random)
	r.Modularity = q
	groups := members(of)
	if len(groups) < 2 {
		r.Why = "all threads share alike"
		return nil
	}
	// The best of some runs is better than a single run, also by chance. So compare a
	// single run with single runs of the null model.
	_, once := louvain(m.Shared, 1, random)
	null := make([]float64, nullRuns)
	var all sync.WaitGroup
	for i := range null {
		all.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			_, null[i] = louvain(m.null(random), 1, random)
		})
	}
	all.Wait()
	r.Null.Mean, r.Null.Deviation = stat.MeanStdDev(null, nil)
	var part [2]map[int]int
	for i, h := range halves {
		hm := NewMatrix(h)
		of, _ := louvain(hm.Shared, louvainRuns, random)
		part[i] = map[int]int{}
		for j, t := range hm.Threads {
			part[i][t.TID] = of[j]
		}
	}
	r.Agreement = RandIndex(part[0], part[1])
	switch {
	case once < r.Null.Mean+minSigmas*r.Null.Deviation:
		r.Why = "who shares with whom is what chance gives"
		return nil
	case r.Agreement < minAgreement:
		r.Why = "the two halves of the time give different groups"
		return nil
	}
	var parts [][]int
	for _, g := range groups {
		parts = append(parts, m.split(g, s, halves)...)
	}
	return sorted(parts)
}

// split returns the parts of a group, or the group itself. If all threads share much,
// groups that share a little more with each other than others do are one group at the best
// modularity (Fortunato and Barthelemy, "Resolution limit in community detection", 2007).
// Looked at by themselves, they differ. If the group's threads share most with each other,
// this has not happened, and a ring of threads that wake each other would fall apart into
// two halves.
func (m *Matrix) split(group []int, s *Sample, halves [2]*Sample) [][]int {
	if len(group) < 4 || len(group) == len(m.Threads) || m.group(group).Inside > 0.5 {
		return [][]int{group}
	}
	tids, number := map[int]bool{}, map[int]int{}
	for _, i := range group {
		tids[m.Threads[i].TID] = true
		number[m.Threads[i].TID] = i
	}
	r := Find(s.of(tids), [2]*Sample{halves[0].of(tids), halves[1].of(tids)})
	if r.Agreement < minPartAgreement || len(r.Alone) > 0 || len(r.order) < len(group) {
		return [][]int{group}
	}
	var parts [][]int
	for _, g := range r.Groups {
		var part []int
		for _, t := range g.Threads {
			part = append(part, number[t.TID])
		}
		parts = append(parts, part)
	}
	return parts
}

// group returns how much the threads of a group share.
func (m *Matrix) group(members []int) Group {
	g := Group{members: members}
	in, out := 0.0, 0.0
	for _, i := range members {
		for j, w := range m.Shared[i] {
			if slices.Contains(members, j) {
				in += w
			} else {
				out += w
			}
		}
	}
	n := float64(len(members))
	if outside := float64(len(m.Threads)) - n; out > 0 {
		ratio := in / (n * (n - 1)) / (out / (n * outside))
		g.Ratio = &ratio
	}
	g.Inside = in / (in + out)
	return g
}

// louvain returns the group of each thread and the modularity of the groups. They are the
// best result of some runs of Louvain's method (Blondel et al., "Fast unfolding of
// communities in large networks", 2008).
//
// Modularity compares what threads share with what they would share if each thread shared
// with any other in proportion to what the other shares in total. If p_i is the part that
// thread i has in everything that is shared, threads i and j would then share the part p_i
// p_j. That includes what a thread shares with itself, which is nothing here. So the
// expected values are multiplied by 1 / (1 - sum p_i^2). Then they sum up to what is really
// shared, and both one group of all threads and groups of one thread have modularity 0.
// This matters for small groups that share little more than others.
func louvain(w [][]float64, runs int, random *rand.Rand) (of []int, q float64) {
	g := simple.NewWeightedUndirectedGraph(0, 0)
	for i := range w {
		g.AddNode(simple.Node(i))
		for j, both := range w[i][:i] {
			if both > 0 {
				g.SetWeightedEdge(g.NewWeightedEdge(simple.Node(i), simple.Node(j), both))
			}
		}
	}
	of = make([]int, len(w))
	q = math.Inf(-1)
	if g.Edges().Len() == 0 {
		for i := range of {
			of[i] = i
		}
		return of, 0
	}
	all, self := 0.0, 0.0
	for _, row := range w {
		all += floats.Sum(row)
	}
	for _, row := range w {
		p := floats.Sum(row) / all
		self += p * p
	}
	resolution := 1 / (1 - self)
	for range runs {
		found := community.Modularize(g, resolution, random).Communities()
		got := community.Q(g, found, resolution) + resolution*self
		// Sums in another order differ in their last digits.
		if got <= q+1e-9 {
			continue
		}
		q = got
		for i, c := range found {
			for _, n := range c {
				of[n.ID()] = i
			}
		}
	}
	return of, q
}

// members lists the threads of each group, the largest group first, and groups of the same
// size by their first thread.
func members(of []int) [][]int {
	by := map[int][]int{}
	for i, g := range of {
		by[g] = append(by[g], i)
	}
	var list [][]int
	for _, m := range by {
		list = append(list, m)
	}
	return sorted(list)
}

func sorted(groups [][]int) [][]int {
	slices.SortFunc(groups, func(a, b []int) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0], b[0])) })
	return groups
}

// RandIndex is the adjusted Rand index of two groupings (Hubert and Arabie, 1985), for the
// items that are in both. It is 1 if the groupings are the same, and about 0 if they have
// nothing in common.
func RandIndex(a, b map[int]int) float64 {
	rows, columns, cells := map[int]float64{}, map[int]float64{}, map[[2]int]float64{}
	n := 0.0
	for k, i := range a {
		if j, ok := b[k]; ok {
			n++
			rows[i]++
			columns[j]++
			cells[[2]int{i, j}]++
		}
	}
	pairs := func(n float64) float64 { return n * (n - 1) / 2 }
	var both, first, second float64
	for _, c := range cells {
		both += pairs(c)
	}
	for _, c := range rows {
		first += pairs(c)
	}
	for _, c := range columns {
		second += pairs(c)
	}
	if n < 2 {
		return 0
	}
	chance := first * second / pairs(n)
	most := (first + second) / 2
	if most == chance { // both are one group, or all alone
		return 1
	}
	return (both - chance) / (most - chance)
}
