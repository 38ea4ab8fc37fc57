package detect

import "time"

// governor decides when to watch, so that the cost of watching to the observed threads
// stays below a part of their CPU time: their CPU time adds to a balance, and watching
// draws from it.
type governor struct {
	limit  float64       // what may be spent of each second of CPU time
	window time.Duration // watching for less time is not worth the switching
	blind  time.Duration // the longest time between two looks at the cost while watching

	balance time.Duration
	surplus time.Duration // what the balance had no room for, last time
	rate    float64       // what watching costs per second of its time, as last seen
	cpus    float64       // CPU time of the observed threads per second
}

const (
	// mostBalance is the most that can be saved. More than this would be spent at once, and
	// be felt.
	mostBalance = 50 * time.Millisecond
	// leastWait and mostWait bound the time between two looks at the cost. It is not
	// shorter, so that looking does not cost more, and not longer, so that no window is
	// missed.
	leastWait = 500 * time.Microsecond
	mostWait  = 100 * time.Millisecond

	// It is not worth the switching to watch for less than callsWindow or eventsWindow.
	// Many short windows see more than a few long ones: a thread that runs does the same
	// over and over.
	callsWindow  = time.Millisecond
	callsBlind   = 10 * time.Millisecond
	eventsWindow = 200 * time.Millisecond
)

// newGovernor returns a governor that can begin to watch at once, to learn what that costs.
// While it watches, it is asked again after the time blind at most: observed threads that
// were idle may begin to work, on as many as cpus CPUs.
func newGovernor(limit float64, window, blind time.Duration, cpus int) *governor {
	return &governor{limit: limit, window: window, blind: blind, rate: float64(cpus),
		balance: max(time.Millisecond, time.Duration(cpus)*window)}
}

// next takes what was used and spent since it was last called, and how much of that time
// was watched. It says whether to watch now and when to call it again.
func (g *governor) next(watching bool, elapsed, watched, cpu, cost time.Duration) (watch bool, wait time.Duration) {
	g.balance += time.Duration(g.limit*float64(cpu)) - cost
	g.surplus = max(0, g.balance-mostBalance)
	g.balance -= g.surplus
	if elapsed > 0 {
		// This is averaged, because the CPU time of a process is updated at its ticks.
		g.cpus += (cpu.Seconds()/elapsed.Seconds() - g.cpus) * min(1, 5*elapsed.Seconds())
		if watching && watched > 0 {
			g.rate = cost.Seconds() / watched.Seconds()
		}
	}
	earns := g.limit * g.cpus
	enough := min(time.Duration(g.rate*float64(g.window)), mostBalance)
	if watching {
		watch = g.balance > 0
	} else {
		watch = g.balance > 0 && g.balance >= enough
	}
	change, left := g.rate-earns, g.balance // until nothing is left of the balance
	if !watch {
		change, left = earns, enough-g.balance // until the balance is enough
	}
	wait = mostWait
	if watch {
		wait = g.blind
	}
	if change > 0 {
		wait = min(wait, time.Duration(max(0, left.Seconds())/change*float64(time.Second)))
	}
	return watch, max(wait, leastWait)
}
