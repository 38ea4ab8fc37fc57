package detect

import (
	"slices"
	"testing"
)

func TestMatrix(t *testing.T) {
	lock := Object{PID: 1, Addr: 0x1000}
	other := Object{PID: 2, Addr: 0x1000} // the same address in another process
	shared := Object{Dev: 1, Inode: 7, Offset: 64}
	s := NewSample()
	for _, th := range []Thread{{10, 1, "a"}, {11, 1, "b"}, {20, 2, "c"}, {30, 3, "idle"}, {40, 4, "pipe"}, {50, 5, "own"}} {
		s.Threads[th.TID] = th
	}
	s.Uses[Use{10, lock}] = Counts{Locks: 100, Waits: 5, Wakes: 1}
	s.Uses[Use{11, lock}] = Counts{Locks: 60}
	s.Uses[Use{20, other}] = Counts{Locks: 100}
	s.Uses[Use{11, shared}] = Counts{Waits: 30}
	s.Uses[Use{20, shared}] = Counts{Wakes: 25, Faults: 15}
	s.Uses[Use{30, lock}] = Counts{Locks: 1} // with 8 wakeups, too little to tell
	s.Uses[Use{50, Object{PID: 5, Addr: 1}}] = Counts{Locks: 1000}
	s.Wakes[Pair{20, 40}] = 30
	s.Wakes[Pair{40, 20}] = 40
	s.Wakes[Pair{30, 40}] = 8
	m := NewMatrix(s)
	var tids []int
	for _, th := range m.Threads {
		tids = append(tids, th.TID)
	}
	if !slices.Equal(tids, []int{10, 11, 20, 40}) {
		t.Fatalf("threads %v", tids)
	}
	if len(m.Seldom) != 1 || m.Seldom[0].Name != "idle" {
		t.Errorf("seldom %v", m.Seldom)
	}
	want := [][]float64{
		{0, 60, 0, 0},
		{60, 0, 30, 0},
		{0, 30, 0, 70},
		{0, 0, 70, 0},
	}
	for i := range want {
		if !slices.Equal(m.Shared[i], want[i]) {
			t.Errorf("row %d: %v, want %v", i, m.Shared[i], want[i])
		}
	}
}

func TestSample(t *testing.T) {
	lock := Object{PID: 1, Addr: 1}
	s, more := NewSample(), NewSample()
	for _, x := range []*Sample{s, more} {
		for _, th := range []Thread{{10, 1, "a"}, {11, 1, "b"}, {12, 1, "c"}} {
			x.Threads[th.TID] = th
		}
		x.Uses[Use{10, lock}] = Counts{Locks: 3, Waits: 2, Faults: 5}
		x.Uses[Use{11, lock}] = Counts{Locks: 100}
		x.Wakes[Pair{10, 12}] = 8
		x.Wakes[Pair{10, 11}] = 8
		x.Lost = Lost{Uses: 1, Faults: 4, Wakes: 2, Targets: 3}
	}
	s.Add(more)
	if got := s.Uses[Use{10, lock}]; got != (Counts{Locks: 6, Waits: 4, Faults: 10}) || s.Wakes[Pair{10, 12}] != 16 || s.Lost != (Lost{2, 8, 4, 6}) {
		t.Errorf("added: %+v", s)
	}
	s.Age(func(th Thread) bool { return th.TID != 11 })
	if got := s.Uses[Use{10, lock}]; got != (Counts{Locks: 3, Waits: 2, Faults: 5}) || len(s.Uses) != 1 || len(s.Wakes) != 1 || s.Wakes[Pair{10, 12}] != 8 {
		t.Errorf("aged: %+v", s)
	}
	for range 5 {
		s.Age(func(Thread) bool { return true })
	}
	if len(s.Uses) != 0 || len(s.Wakes) != 0 {
		t.Errorf("what was seen long ago is forgotten: %+v", s)
	}
}

// The paper's Table 6: 8 warehouses of 4 threads, and much that all share.
func TestPaper(t *testing.T) {
	table := [8][8]float64{
		{136774, 103674, 91826, 109088, 98283, 99615, 105770, 103254},
		{103674, 143964, 109358, 109848, 96172, 100722, 106946, 98890},
		{91826, 109358, 136828, 106294, 108150, 101856, 107154, 94878},
		{109088, 109848, 106294, 145206, 109430, 104000, 100534, 107342},
		{98283, 96172, 108150, 109430, 131296, 95266, 102882, 94316},
		{99615, 100722, 101856, 104000, 95266, 135796, 104676, 101312},
		{105770, 106946, 107154, 100534, 102882, 104676, 149144, 100070},
		{103254, 98890, 94878, 107342, 94316, 101312, 100070, 134370},
	}
	s := NewSample()
	halves := [2]*Sample{NewSample(), NewSample()}
	for _, x := range []*Sample{s, halves[0], halves[1]} {
		for i := range 32 {
			x.Threads[100+i] = Thread{100 + i, 100, "terminal"}
			for j := range i {
				// There is a lock for each pair of threads. Two warehouses have 16 pairs;
				// one warehouse has 12 pairs of two different threads.
				pairs := 16.0
				if i/4 == j/4 {
					pairs = 12
				}
				both := uint64(table[i/4][j/4] / pairs)
				o := Object{PID: 100, Addr: uint64(32*i + j)}
				x.Uses[Use{100 + i, o}] = Counts{Locks: both}
				x.Uses[Use{100 + j, o}] = Counts{Locks: both}
			}
		}
	}
	r := Find(s, halves)
	if got := shape(r); got != "0,1,2,3 4,5,6,7 8,9,10,11 12,13,14,15 16,17,18,19 20,21,22,23 24,25,26,27 28,29,30,31" {
		t.Errorf("%s (%s; modularity %.3f, by chance %.3f)", got, r.Why, r.Modularity, r.Null.Mean)
	}
}

func TestRandIndex(t *testing.T) {
	for _, c := range []struct {
		a, b []int
		want float64
	}{
		{[]int{0, 0, 1, 1}, []int{5, 5, 3, 3}, 1},
		{[]int{0, 0, 0, 0}, []int{1, 1, 1, 1}, 1},
		{[]int{0, 1, 0, 1}, []int{0, 0, 1, 1}, -0.5},
		// An example of Hubert and Arabie's kind: one of six is in the wrong group.
		{[]int{0, 0, 0, 1, 1, 1}, []int{0, 0, 1, 1, 1, 1}, 0.3243},
		{nil, nil, 0},
	} {
		a, b := map[int]int{}, map[int]int{99: 1} // in one of them only
		for i := range c.a {
			a[i], b[i] = c.a[i], c.b[i]
		}
		if got := RandIndex(a, b); got < c.want-0.0001 || got > c.want+0.0001 {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
