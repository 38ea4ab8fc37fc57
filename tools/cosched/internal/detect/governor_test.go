package detect

import (
	"testing"
	"time"
)

// program is what a governor watches: the cost per second of watching it, and the number of
// CPUs that it uses, at a time.
type program func(at time.Duration) (rate, cpus float64)

// govern returns the part of the program's CPU time that was spent, and the part of the
// time that it was watched.
func govern(g *governor, p program, lasting time.Duration) (share, watched float64) {
	var at, wait, spent, used, open time.Duration
	on := false
	for at < lasting {
		rate, cpus := p(at)
		cost := time.Duration(0)
		if on {
			cost = time.Duration(rate * float64(wait))
			open += wait
		}
		cpu := time.Duration(cpus * float64(wait))
		spent, used = spent+cost, used+cpu
		on, wait = g.next(on, wait, wait, cpu, cost)
		at += wait
	}
	return spent.Seconds() / used.Seconds(), open.Seconds() / at.Seconds()
}

func TestGovernor(t *testing.T) {
	for _, c := range []struct {
		name           string
		p              program
		least, most    float64 // bounds of the share
		watched, never float64 // bounds of the part of the time that is watched
	}{
		// A million calls a second, of which each takes 12 us to watch, by 16 busy CPUs.
		{"dear", func(time.Duration) (float64, float64) { return 12, 16 }, 0.035, 0.051, 0.05, 0.07},
		{"cheap", func(time.Duration) (float64, float64) { return 0.01, 2 }, 0.004, 0.006, 0.9, 1},
		{"begins to work", func(at time.Duration) (float64, float64) {
			if at.Truncate(2*time.Second)%(4*time.Second) == 0 {
				return 0.0001, 0.01
			}
			return 2, 2
		}, 0.02, 0.055, 0.03, 0.6},
		{"idle", func(time.Duration) (float64, float64) { return 0, 0.001 }, 0, 0, 0.9, 1},
	} {
		share, watched := govern(newGovernor(0.05, callsWindow, callsBlind, 16), c.p, 20*time.Second)
		if share < c.least || share > c.most || watched < c.watched || watched > c.never {
			t.Errorf("%s: spent %.4f, watched %.3f of the time", c.name, share, watched)
		}
	}
}
