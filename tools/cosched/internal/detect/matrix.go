package detect

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Matrix is what threads share with each other.
type Matrix struct {
	Threads []Thread
	// Shared of two threads has two parts. For each lock that both used, the lesser of
	// their two counts is added. How often one of them woke the other is added too. The
	// matrix is symmetric; a thread shares nothing with itself.
	Shared [][]float64
	// Events is how often each thread was seen.
	Events []uint64
	// Seldom are the threads that were left out because they were seen too seldom.
	Seldom []Thread

	sites []site
}

// site is a lock, or two threads that wake each other, with the threads that were seen
// there and how often.
type site []visit

type visit struct {
	thread int
	n      uint64
}

// A thread that was seen less often than seldom times the average is left out: where it
// runs matters little. A thread is also left out if it was seen less than seldomSeen times
// and less than seldomFew times the average: that says little about which threads it
// belongs to. Main threads of programs, which wait for the others, are such threads.
const (
	seldom     = 0.01
	seldomSeen = 10
	seldomFew  = 0.1
)

// NewMatrix makes the matrix of the threads that share anything.
func NewMatrix(s *Sample) *Matrix {
	events := map[int]uint64{}
	var all uint64
	for u, c := range s.Uses {
		events[u.TID] += c.sum()
		all += c.sum()
	}
	for p, n := range s.Wakes {
		events[p.Waker] += n
		events[p.Wakee] += n
		all += 2 * n
	}
	average := float64(all) / float64(max(1, len(events)))
	least := max(seldom*average, min(seldomSeen, seldomFew*average))
	counts := func(tid int) bool { return float64(events[tid]) >= least }

	at := map[Object]map[int]uint64{}
	for u, c := range s.Uses {
		if c.sum() == 0 || !counts(u.TID) {
			continue
		}
		if at[u.Object] == nil {
			at[u.Object] = map[int]uint64{}
		}
		at[u.Object][u.TID] += c.sum()
	}
	woke := map[Pair]uint64{} // in both directions, the lower TID first
	for p, n := range s.Wakes {
		if !counts(p.Waker) || !counts(p.Wakee) {
			continue
		}
		woke[Pair{min(p.Waker, p.Wakee), max(p.Waker, p.Wakee)}] += n
	}

	m := &Matrix{}
	for tid := range events {
		if !counts(tid) {
			m.Seldom = append(m.Seldom, s.Threads[tid])
		}
	}
	number := map[int]int{}
	see := func(tid int) {
		if _, ok := number[tid]; !ok {
			number[tid] = 0
			m.Threads = append(m.Threads, s.Threads[tid])
		}
	}
	for o, visits := range at {
		if len(visits) < 2 { // nothing shared
			delete(at, o)
			continue
		}
		for tid := range visits {
			see(tid)
		}
	}
	for p := range woke {
		see(p.Waker)
		see(p.Wakee)
	}
	// Sort threads in the order in which they were made, as far as the kernel shows it.
	byID := func(a, b Thread) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.TID, b.TID)) }
	slices.SortFunc(m.Threads, byID)
	slices.SortFunc(m.Seldom, byID)
	for i, t := range m.Threads {
		number[t.TID] = i
	}
	for _, visits := range at {
		var st site
		for tid, n := range visits {
			st = append(st, visit{number[tid], n})
		}
		m.sites = append(m.sites, st)
	}
	for p, n := range woke {
		m.sites = append(m.sites, site{{number[p.Waker], n}, {number[p.Wakee], n}})
	}
	// Sort sites, so that the same sample gives the same matrix, to the last digit and in
	// the null model.
	for _, st := range m.sites {
		slices.SortFunc(st, func(a, b visit) int { return cmp.Compare(a.thread, b.thread) })
	}
	slices.SortFunc(m.sites, func(a, b site) int {
		return slices.CompareFunc(a, b, func(a, b visit) int {
			return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.n, b.n))
		})
	})
	m.Events = make([]uint64, len(m.Threads))
	for _, st := range m.sites {
		for _, v := range st {
			m.Events[v.thread] += v.n
		}
	}
	m.Shared = shared(len(m.Threads), m.sites)
	return m
}

func square(n int) [][]float64 {
	w := make([][]float64, n)
	for i := range w {
		w[i] = make([]float64, n)
	}
	return w
}

func shared(n int, sites []site) [][]float64 {
	w := square(n)
	for _, st := range sites {
		for i, a := range st {
			for _, b := range st[:i] {
				both := float64(min(a.n, b.n))
				w[a.thread][b.thread] += both
				w[b.thread][a.thread] += both
			}
		}
	}
	return w
}

// null returns what the matrix would be if no thread preferred anything. Each thread is
// seen as often as it was, and each place is visited as often as it was, but which threads
// are at which place is drawn at random.
func (m *Matrix) null(random *rand.Rand) [][]float64 {
	// Drawing each of millions of events would take long and change little: a quarter of a
	// million events have less noise than any of the limits.
	const most = 1 << 18
	var total uint64
	for _, st := range m.sites {
		for _, v := range st {
			total += v.n
		}
	}
	scale := 1.0
	if total > most {
		scale = float64(total) / most
	}
	var threads []int32
	var places []int
	rest := 0.0 // the parts of events that are left after scaling
	for _, st := range m.sites {
		n := 0
		for _, v := range st {
			rest += float64(v.n) / scale
			k := int(rest)
			rest -= float64(k)
			for range k {
				threads = append(threads, int32(v.thread))
			}
			n += k
		}
		places = append(places, n)
	}
	random.Shuffle(len(threads), func(i, j int) { threads[i], threads[j] = threads[j], threads[i] })
	var drawn []site
	counts := make([]uint64, len(m.Threads))
	for _, n := range places {
		for _, t := range threads[:n] {
			counts[t]++
		}
		var st site
		for t, c := range counts {
			if c > 0 {
				st = append(st, visit{t, c})
				counts[t] = 0
			}
		}
		threads = threads[n:]
		drawn = append(drawn, st)
	}
	return shared(len(m.Threads), drawn)
}
