// Package detect finds threads that share data, and groups them. It finds them by the locks
// that they use, by which thread wakes which, and by faults on the same pages.
//
// It follows section 3 of "Co-scheduling of related threads on neighbouring CPUs" (OLS
// 2009): threads that share data take the locks that guard it.
package detect

import "maps"

// Thread is a thread that was seen at a lock or a page, waking another thread or being
// woken.
type Thread struct {
	TID  int    `json:"tid"`
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

// Object is a lock or a page: an address in a process, or a place in shared memory.
type Object struct {
	PID           int // 0 if the memory is shared
	Addr          uint64
	Dev           uint32
	Inode, Offset uint64
}

// Use is a thread and a lock or a page that it uses.
type Use struct {
	TID int
	Object
}

// Pair is a thread that wakes another one.
type Pair struct{ Waker, Wakee int }

// Counts is how often a thread used a lock or a page.
type Counts struct {
	Locks  uint64 // calls of functions that take it
	Waits  uint64 // contention: waits for its futex
	Wakes  uint64 // wakeups of threads that waited for it
	Faults uint64 // on the page
}

func (c Counts) sum() uint64 { return c.Locks + c.Waits + c.Wakes + c.Faults }

func (c Counts) add(o Counts) Counts {
	return Counts{c.Locks + o.Locks, c.Waits + o.Waits, c.Wakes + o.Wakes, c.Faults + o.Faults}
}

// Sample is what was seen in some time.
type Sample struct {
	Threads map[int]Thread // by TID
	Uses    map[Use]Counts
	Wakes   map[Pair]uint64
	Lost    Lost
}

// Lost counts what found no room in the kernel's maps.
type Lost struct {
	Uses    uint64 `json:"uses"`      // of locks
	Faults  uint64 `json:"faults"`    // on pages
	Wakes   uint64 `json:"wakes"`     // of threads
	Targets uint64 `json:"processes"` // that were not observed
}

// NewSample returns an empty sample.
func NewSample() *Sample {
	return &Sample{Threads: map[int]Thread{}, Uses: map[Use]Counts{}, Wakes: map[Pair]uint64{}}
}

// Add adds what was seen in another time.
func (s *Sample) Add(o *Sample) {
	maps.Copy(s.Threads, o.Threads)
	for k, c := range o.Uses {
		s.Uses[k] = s.Uses[k].add(c)
	}
	for k, n := range o.Wakes {
		s.Wakes[k] += n
	}
	s.Lost.Uses += o.Lost.Uses
	s.Lost.Faults += o.Lost.Faults
	s.Lost.Wakes += o.Lost.Wakes
	s.Lost.Targets += o.Lost.Targets
}

// Age halves all counts. It forgets threads that have ended, and counts that become zero.
func (s *Sample) Age(alive func(Thread) bool) {
	for tid, t := range s.Threads {
		if !alive(t) {
			delete(s.Threads, tid)
		}
	}
	for k, c := range s.Uses {
		_, ok := s.Threads[k.TID]
		if c = (Counts{c.Locks / 2, c.Waits / 2, c.Wakes / 2, c.Faults / 2}); ok && c.sum() > 0 {
			s.Uses[k] = c
		} else {
			delete(s.Uses, k)
		}
	}
	for k, n := range s.Wakes {
		_, waker := s.Threads[k.Waker]
		_, wakee := s.Threads[k.Wakee]
		if waker && wakee && n/2 > 0 {
			s.Wakes[k] = n / 2
		} else {
			delete(s.Wakes, k)
		}
	}
}

// of returns what was seen of some threads among each other.
func (s *Sample) of(tids map[int]bool) *Sample {
	part := NewSample()
	for tid, t := range s.Threads {
		if tids[tid] {
			part.Threads[tid] = t
		}
	}
	for k, c := range s.Uses {
		if tids[k.TID] {
			part.Uses[k] = c
		}
	}
	for k, n := range s.Wakes {
		if tids[k.Waker] && tids[k.Wakee] {
			part.Wakes[k] = n
		}
	}
	return part
}
