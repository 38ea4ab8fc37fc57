package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// made returns a sample of threads; visit says how often a thread uses a lock. Each half
// has all of it, drawn anew: counts of events vary by their square root.
func made(seed uint64, threads, locks int, visit func(thread, lock int) float64) (s *Sample, halves [2]*Sample) {
	random := rand.New(rand.NewPCG(seed, 0))
	s = NewSample()
	for i := range halves {
		h := NewSample()
		for t := range threads {
			h.Threads[100+t] = Thread{100 + t, 100, fmt.Sprint("t", t)}
			for l := range locks {
				mean := visit(t, l)
				n := mean + math.Sqrt(mean)*random.NormFloat64()
				if n >= 1 {
					h.Uses[Use{100 + t, Object{PID: 100, Addr: uint64(l)}}] = Counts{Locks: uint64(n)}
				}
			}
		}
		halves[i] = h
		s.Add(h)
	}
	return s, halves
}

// shape writes groups as a string: the numbers of their threads.
func shape(r *Report) string {
	var list []string
	for _, g := range r.Groups {
		var ids []string
		for _, t := range g.Threads {
			ids = append(ids, fmt.Sprint(t.TID-100))
		}
		list = append(list, strings.Join(ids, ","))
	}
	return strings.Join(list, " ")
}

func TestFind(t *testing.T) {
	four := "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15 16,17,18,19 20,21,22,23 24,25,26,27 28,29,30,31"
	for _, c := range []struct {
		name           string
		threads, locks int
		visit          func(thread, lock int) float64
		want, why      string
	}{
		{"warehouses", 32, 32, func(t, l int) float64 {
			if t/4 == l/4 {
				return 1000
			}
			return 0
		}, four, ""},
		{"warehouses and one lock for all", 32, 9, func(t, l int) float64 {
			if l == t/4 || l == 8 {
				return 1000
			}
			return 0
		}, four, ""},
		{"unequal warehouses, seldom seen", 12, 3, func(t, l int) float64 {
			if l == min(t/3, 2) {
				return float64(10 + 5*t)
			}
			return 0
		}, "6,7,8,9,10,11 0,1,2 3,4,5", ""},
		{"rings", 12, 12, func(t, l int) float64 {
			// Each thread shares one lock with the next one; every second lock is used more
			// often.
			if a, b := t%4, l%4; t/4 == l/4 && (a == b || (a+1)%4 == b) {
				return float64(1000 + 400*(b%2))
			}
			return 0
		}, "0,1,2,3 4,5,6,7 8,9,10,11", ""},
		{"one lock", 16, 1, func(int, int) float64 { return 1000 }, "", "all threads share alike|what chance gives"},
		{"any of many locks", 32, 64, func(int, int) float64 { return 100 }, "", "all threads share alike|what chance gives|hardly more|different groups"},
		{"any of many locks, seldom", 32, 64, func(int, int) float64 { return 2 }, "", "all threads share alike|what chance gives|hardly more|different groups"},
		{"some busy threads and locks", 32, 64, func(t, l int) float64 { return float64(1+t%7) * float64(1+l%5) }, "", "all threads share alike|what chance gives|hardly more|different groups"},
		{"a tenth more", 32, 8, func(t, l int) float64 {
			if t/4 == l {
				return 11000
			}
			return 10000
		}, "", "all threads share alike|hardly more|what chance gives"},
		{"locks of their own", 8, 8, func(t, l int) float64 {
			if t == l {
				return 1000
			}
			return 0
		}, "", "no two threads"},
		{"nothing", 8, 8, func(int, int) float64 { return 0 }, "", "no two threads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(3) {
				r := Find(made(seed, c.threads, c.locks, c.visit))
				if got := shape(r); got != c.want {
					t.Errorf("seed %d: %q, want %q (Q %.3f, null %.3f +- %.4f, agreement %.2f)", seed, got, c.want,
						r.Modularity, r.Null.Mean, r.Null.Deviation, r.Agreement)
				}
				if !slices.ContainsFunc(strings.Split(c.why, "|"), func(why string) bool {
					return strings.Contains(r.Why, why) && (why == "") == (r.Why == "")
				}) {
					t.Errorf("seed %d: why %q, want %q", seed, r.Why, c.why)
				}
			}
		})
	}
}
