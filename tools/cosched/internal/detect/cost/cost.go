// Package cost measures from outside what it costs a program to be observed: the CPU time
// that a unit of its work takes while it is observed, and just before and after.
//
// One process is observed again and again. So the pieces of time that are compared have the
// same memory layout and follow each other, and what drifts on the machine drops out. The
// speed of the machine's CPUs changes faster than that, with what else uses their cores. So
// a second program, which is not observed, works now and then on each of them, and the CPU
// time of the first program is measured in what the second program needs for its work at
// the same time.
package cost

import (
	"errors"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Point is how much work a program has done until some time, and the CPU time that it used.
type Point struct {
	Time time.Duration // by CLOCK_MONOTONIC
	Work uint64
	CPU  time.Duration
}

// Look is a time in which the program was observed, from the start of the observer to its
// end.
type Look struct {
	From, To time.Duration // by CLOCK_MONOTONIC
	Said     float64       // what the observer says that it cost, as a part of CPU time
	Own      time.Duration // CPU time of the observer
}

// Pair compares a look with the time before and after it. Percentages are of the CPU time
// or the speed without observation.
type Pair struct {
	CPU   float64 `json:"cpu_percent"`         // more CPU time for the same work, on CPUs of the same speed
	Raw   float64 `json:"raw_cpu_percent"`     // more CPU time for the same work
	Speed float64 `json:"speed_percent"`       // less work in the same time
	Said  float64 `json:"said_percent"`        // what the observer says
	Own   float64 `json:"own_percent"`         // CPU time of the observer, as a part of one CPU
	Rate  float64 `json:"work_per_second"`     // per second of time, in the look
	Each  float64 `json:"work_per_cpu_second"` // per second of the program's CPU time, in the look
}

// slice is what was done between two points.
type slice struct {
	time, cpu time.Duration
	work      uint64
}

func (s slice) add(o slice) slice { return slice{s.time + o.time, s.cpu + o.cpu, s.work + o.work} }
func (s slice) each() float64     { return s.cpu.Seconds() / float64(s.work) }
func (s slice) speed() float64    { return float64(s.work) / s.time.Seconds() }

// between returns what was done from one time to another, as far as the points tell: from
// the last point that is not after the former to the first point that is not before the
// latter.
func between(points []Point, from, to time.Duration) (slice, bool) {
	search := func(at time.Duration) int {
		i, _ := slices.BinarySearchFunc(points, at, func(p Point, at time.Duration) int { return int(p.Time - at) })
		return i
	}
	i, j := search(from), search(to)
	if i < len(points) && points[i].Time > from {
		i--
	}
	if i < 0 || j >= len(points) {
		return slice{}, false
	}
	a, b := points[i], points[j]
	s := slice{b.Time - a.Time, b.CPU - a.CPU, b.Work - a.Work}
	return s, s.time > 0 && s.work > 0
}

// tail is added to each look, for what the kernel still has to do once the observer has
// ended.
const tail = 50 * time.Millisecond

// Compare makes a pair for each look at a program, given the points of the second program,
// which tells how fast the CPUs are. No piece of time is used twice: the time between two
// looks is halved.
func Compare(points, speed []Point, looks []Look) ([]Pair, error) {
	if len(points) == 0 || len(speed) == 0 {
		return nil, errNothing
	}
	var pairs []Pair
	for i, l := range looks {
		from, to := max(points[0].Time, speed[0].Time), min(points[len(points)-1].Time, speed[len(speed)-1].Time)
		if i > 0 {
			from = (looks[i-1].To + tail + l.From) / 2
		}
		if i+1 < len(looks) {
			to = (l.To + tail + looks[i+1].From) / 2
		}
		var without, with [2]slice
		for j, list := range [][]Point{points, speed} {
			before, ok1 := between(list, from, l.From)
			during, ok2 := between(list, l.From, l.To+tail)
			after, ok3 := between(list, l.To+tail, to)
			if !ok1 || !ok2 || !ok3 {
				return nil, errNothing
			}
			without[j], with[j] = before.add(after), during
		}
		more, slower := with[0].each()/without[0].each(), with[1].each()/without[1].each()
		pairs = append(pairs, Pair{
			CPU:   100 * (more/slower - 1),
			Raw:   100 * (more - 1),
			Speed: 100 * (1 - with[0].speed()/without[0].speed()),
			Said:  100 * l.Said,
			Own:   100 * l.Own.Seconds() / (l.To - l.From).Seconds(),
			Rate:  with[0].speed(),
			Each:  1 / with[0].each(),
		})
	}
	return pairs, nil
}

var errNothing = errors.New("the program did nothing in a part of the time: look for longer, or at more work")

// Median is the median of some values, and an interval that contains the true median with a
// probability of at least 95 %, whatever the distribution of the values: the interval of
// the sign test.
type Median struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// fewest is the least number of values that have such an interval.
const fewest = 6

// MedianOf returns the median of one figure of pairs, of which there must be six or more.
func MedianOf(pairs []Pair, f func(Pair) float64) (Median, error) {
	if len(pairs) < fewest {
		return Median{}, errors.New("fewer than six pairs say nothing of their median")
	}
	values := make([]float64, len(pairs))
	for i, p := range pairs {
		values[i] = f(p)
	}
	slices.Sort(values)
	n := len(values)
	// The true median is below the k-th value as often as fewer than k of n coins show
	// heads.
	coins, k := distuv.Binomial{N: float64(n), P: 0.5}, 0
	for 2*coins.CDF(float64(k)) <= 0.05 {
		k++
	}
	return Median{(values[(n-1)/2] + values[n/2]) / 2, values[k-1], values[n-k]}, nil
}
