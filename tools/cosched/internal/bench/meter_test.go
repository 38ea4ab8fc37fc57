package bench

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// play has a series of five runs: the second is in the cache, and the first and the third
// take a minute together.
func play(out *bytes.Buffer, terminal bool) (text string) {
	now := time.Unix(1000, 0)
	m := newMeter(out, terminal, 5, func() time.Time { return now })
	run := func(p Policy) Run { return Run{Row: Row{Name: "r"}, Kernel: "test", Policy: p, Transfer: 1, Seed: 1} }
	res := Result{Metric: "msec", Value: 12.5, HostSec: 29.6}
	first, third := m.begin(run("none")), m.begin(run("cosched"))
	m.finished(run("hard"), res, false)
	now = now.Add(30 * time.Second)
	first()
	m.finished(run("none"), res, true)
	m.begin(run("auto"))
	now = now.Add(30 * time.Second)
	third()
	m.finished(run("cosched"), res, true)
	now = now.Add(12 * time.Second)
	text = m.text()
	m.stop()
	return text
}

const played = `[1/5] r, hard, seed 1: 12.5 msec (from the cache)
[2/5] r, none, seed 1: 12.5 msec (30 s; at most 1m30s to go)
[3/5] r, cosched, seed 1: 12.5 msec (30 s; at most 1m0s to go)
`

func TestMeterPlain(t *testing.T) {
	var out bytes.Buffer
	play(&out, false)
	if out.String() != played {
		t.Errorf("%q, wanted %q", &out, played)
	}
}

// On a terminal, a line below the same lines has a bar, the time left, and what is running.
func TestMeterTerminal(t *testing.T) {
	var out bytes.Buffer
	// In a bubble, so that the line is not redrawn in between.
	synctest.Test(t, func(t *testing.T) {
		if got, want := play(&out, true), "[############........] 3/5, at most 50s to go: r, auto, seed 1 (42 s)"; got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
	})
	const e = "\r\x1b[K"
	lines := strings.SplitAfter(played, "\n")
	drawn := []string{
		"[####................] 1/5: r, none, seed 1 (0 s); r, cosched, seed 1 (0 s)",
		"[########............] 2/5, at most 1m30s to go: r, cosched, seed 1 (30 s)",
		"[############........] 3/5, at most 1m0s to go: r, auto, seed 1 (30 s)",
	}
	want := e + lines[0] + e + drawn[0] + e + lines[1] + drawn[0] + e + drawn[1] + e + lines[2] + drawn[1] + e + drawn[2] + e
	if out.String() != want {
		t.Errorf("%q, wanted %q", &out, want)
	}
}
