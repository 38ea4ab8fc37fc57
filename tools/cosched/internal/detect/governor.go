package detect

import "time"

// governor decides when to watch, so that what it costs the observed threads stays
// below a part of their CPU time: that time earns a balance, watching spends it.
type governor struct {
	limit  float64       // what may be spent of each second of CPU time
	window time.Duration // that watching is worth it for, at least
	blind  time.Duration // that it is not looked at while watching, at most

	balance time.Duration
	surplus time.Duration // what the balance had no room for, last
	rate    float64       // what watching costs per second of its time, as last seen
	cpus    float64       // CPU time of the observed threads per second
}

const (
	// What is not spent does not pile up beyond this: it would be spent at once, and be felt.
	mostBalance = 50 * time.Millisecond
	// How often it is looked at: not to spend more on looking, and to miss no window.
	leastWait = 500 * time.Microsecond
	mostWait  = 100 * time.Millisecond

	// Watching for less time is not worth the switching. More short windows see more than
	// few long ones: a thread that runs does the same over and over.
	callsWindow  = time.Millisecond
	callsBlind   = 10 * time.Millisecond
	eventsWindow = 200 * time.Millisecond
)

// newGovernor gives one that can begin to watch at once, to learn what that costs. While
// it watches it is asked after some time at least: those who were idle may begin to work,
// on some CPUs.
func newGovernor(limit float64, window, blind time.Duration, cpus int) *governor {
	return &governor{limit: limit, window: window, blind: blind, rate: float64(cpus),
		balance: max(time.Millisecond, time.Duration(cpus)*window)}
}

// next takes what was used and spent in the time since it was asked last, and how much of
// it was watched, and says whether to watch now and when to ask again.
func (g *governor) next(watching bool, elapsed, watched, cpu, cost time.Duration) (watch bool, wait time.Duration) {
	g.balance += time.Duration(g.limit*float64(cpu)) - cost
	g.surplus = max(0, g.balance-mostBalance)
	g.balance -= g.surplus
	if elapsed > 0 {
		// Averaged: the CPU time of a process is updated at its ticks.
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
	change, left := g.rate-earns, g.balance // until nothing is left
	if !watch {
		change, left = earns, enough-g.balance // until there is enough
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
