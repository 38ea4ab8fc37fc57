package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// made returns what two programs do, every 10 ms, on a machine whose speed drifts by half
// and differs by a fifth from second to second. It has looks of a second, which cost a part
// of the CPU time of the first program.
func made(looks int, part float64) (points, speed []Point, list []Look) {
	r := rand.New(rand.NewPCG(1, 2))
	const step = 10 * time.Millisecond
	for i := range looks {
		from := time.Duration(1+2*i) * time.Second
		list = append(list, Look{From: from, To: from + time.Second - tail, Said: part, Own: 95 * time.Millisecond})
	}
	points, speed = []Point{{}}, []Point{{}}
	fast := 1.0
	for end := time.Duration(2*looks+1) * time.Second; points[len(points)-1].Time < end; {
		p, q := points[len(points)-1], speed[len(speed)-1]
		if p.Time%time.Second == 0 {
			fast = 1 + 0.2*r.NormFloat64()
		}
		rate := 10000 * max(0.1, fast) * (1 + 0.5*p.Time.Seconds()/end.Seconds())
		speed = append(speed, Point{p.Time + step, q.Work + uint64(rate), q.CPU + step})
		if int(p.Time/time.Second)%2 == 1 {
			rate /= 1 + part
		}
		rate *= 1 + 0.2*r.NormFloat64() // how far it came
		points = append(points, Point{p.Time + step, p.Work + uint64(max(1, rate)), p.CPU + step})
	}
	return points, speed, list
}

func TestCompare(t *testing.T) {
	for _, part := range []float64{0, 0.04, 0.10} {
		points, speed, looks := made(100, part)
		pairs, err := Compare(points, speed, looks)
		if err != nil || len(pairs) != 100 {
			t.Fatalf("%d pairs, %v", len(pairs), err)
		}
		m, err := MedianOf(pairs, func(p Pair) float64 { return p.CPU })
		if err != nil || math.Abs(m.Median-100*part) > 1 || m.Low > 100*part || m.High < 100*part || m.High-m.Low > 2 {
			t.Errorf("a part of %v is found as %+v, %v", part, m, err)
		}
		raw, _ := MedianOf(pairs, func(p Pair) float64 { return p.Raw })
		if raw.High-raw.Low < 2*(m.High-m.Low) {
			t.Errorf("a part of %v: the speed of the CPUs makes no difference: %+v, %+v", part, raw, m)
		}
		// A program that has one CPU all of the time is slower by the part that it pays.
		s, _ := MedianOf(pairs, func(p Pair) float64 { return p.Speed })
		if want := 100 * (1 - 1/(1+part)); s.Low > want || s.High < want {
			t.Errorf("a part of %v makes it slower by %+v, want %v", part, s, want)
		}
		if p := pairs[50]; p.Said != 100*part || math.Abs(p.Own-10) > 1e-9 || math.Abs(p.Rate-p.Each) > 1 {
			t.Errorf("a part of %v: %+v", part, p)
		}
	}
}

// If the program stands still, there is nothing to compare.
func TestCompareNothing(t *testing.T) {
	points, speed, looks := made(3, 0)
	for _, list := range [][]Point{points[:len(points)/2], nil} {
		_, err1 := Compare(list, speed, looks)
		_, err2 := Compare(points, list, looks)
		if err1 == nil || err2 == nil {
			t.Error("looks after the end are compared")
		}
	}
	for i := range points {
		points[i].Work = 7
	}
	if _, err := Compare(points, speed, looks); err == nil {
		t.Error("no work is compared")
	}
}

// The limits are those in tables of the sign test.
func TestMedianOf(t *testing.T) {
	for _, c := range []struct {
		n         int
		low, high float64
	}{{6, 1, 6}, {10, 2, 9}, {25, 8, 18}, {100, 40, 61}} {
		var pairs []Pair
		for i := range c.n {
			pairs = append(pairs, Pair{CPU: float64(i + 1)})
		}
		slices.Reverse(pairs)
		m, err := MedianOf(pairs, func(p Pair) float64 { return p.CPU })
		if want := (Median{float64(c.n+1) / 2, c.low, c.high}); err != nil || m != want {
			t.Errorf("of %d values: %+v, %v, want %+v", c.n, m, err, want)
		}
	}
	if _, err := MedianOf(make([]Pair, 5), func(p Pair) float64 { return p.CPU }); err == nil {
		t.Error("five values are enough")
	}
}
