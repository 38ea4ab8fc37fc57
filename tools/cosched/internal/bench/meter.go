package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cosched.io/cosched/internal/status"
)

// meter reports each run that is done, and shows on a terminal how far the series is.
type meter struct {
	total int
	now   func() time.Time
	line  *status.Line

	mu      sync.Mutex
	done    int
	fresh   int       // of done, those that were not in the cache
	started time.Time // when runs began
	last    time.Time // when the last one of fresh was done
	running []*running
}

// running is a run in progress.
type running struct {
	name  string
	since time.Time
}

// newMeter returns the meter of a series whose runs begin now. What was built for them
// before says nothing about how long they take.
func newMeter(w io.Writer, terminal bool, total int, now func() time.Time) *meter {
	m := &meter{total: total, now: now, started: now()}
	m.line = status.Start(w, terminal, 0, m.text)
	return m
}

func (m *meter) stop() { m.line.Stop() }

// begin says that a run is in progress, until the function that it returns is called.
func (m *meter) begin(r Run) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	this := &running{r.String(), m.now()}
	m.running = append(m.running, this)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running = slices.DeleteFunc(m.running, func(r *running) bool { return r == this })
	}
}

// finished reports a run, and after how long at most the last one may be done.
func (m *meter) finished(r Run, res Result, fresh bool) {
	m.report(r, res, fresh)
	m.line.Draw()
}

func (m *meter) report(r Run, res Result, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	note := "from the cache"
	if fresh {
		m.fresh++
		m.last = m.now()
		note = fmt.Sprintf("%.0f s", res.HostSec)
		if left := m.left(); left != "" {
			note += "; " + left
		}
	}
	m.line.Print(fmt.Sprintf("[%*d/%d] %s: %.6g %s (%s)", len(strconv.Itoa(m.total)), m.done, m.total, r, res.Value, res.Metric, note))
}

// left says how long the other runs may take, if each takes as long as those that were done
// and none is in the cache. It is empty if that is not known yet, or if nothing is left.
func (m *meter) left() string {
	if m.fresh == 0 || m.done == m.total {
		return ""
	}
	each := m.last.Sub(m.started) / time.Duration(m.fresh)
	left := each*time.Duration(m.total-m.done) - m.now().Sub(m.last)
	return fmt.Sprintf("at most %s to go", max(0, left).Round(10*time.Second))
}

// barWidth is the number of characters of the bar.
const barWidth = 20

// text returns the line with the bar and the runs in progress.
func (m *meter) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	full := barWidth * m.done / max(1, m.total)
	text := fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), m.done, m.total)
	if left := m.left(); left != "" {
		text += ", " + left
	}
	var list []string
	for _, r := range m.running {
		list = append(list, fmt.Sprintf("%s (%.0f s)", r.name, m.now().Sub(r.since).Seconds()))
	}
	if len(list) > 0 {
		text += ": " + strings.Join(list, "; ")
	}
	return text
}
