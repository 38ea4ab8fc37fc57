package schedstat

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"cosched.io/cosched"
)

// Report is what was counted between two snapshots, or since boot.
type Report struct {
	Version int `json:"version"`
	Recorded
	// SinceBoot says that there is no first snapshot.
	SinceBoot bool     `json:"since_boot,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	CPUs      []Run    `json:"cpus"`
	All       Run      `json:"all"`
	// Levels are levels of domains that correspond to each other, from the smallest.
	Levels []*Level `json:"levels"`
}

// Run is what one CPU ran, or all CPUs.
type Run struct {
	CPU           *int   `json:"cpu,omitempty"` // null for all CPUs together
	RunNS         uint64 `json:"run_ns"`        // by tasks
	WaitNS        uint64 `json:"wait_ns"`       // of tasks that could have run
	Slices        uint64 `json:"timeslices"`
	Schedules     uint64 `json:"schedule_calls"`
	ToIdle        uint64 `json:"schedule_to_idle"`
	Yields        uint64 `json:"yields"`
	Wakeups       uint64 `json:"wakeups"`       // by what runs on the CPU
	WakeupsLocal  uint64 `json:"wakeups_local"` // of them onto the same CPU
	AverageRunMS  ratio  `json:"average_run_ms"`
	AverageWaitMS ratio  `json:"average_wait_ms"`
}

// Level is a level of domains, summed over all CPUs.
type Level struct {
	Name    string       `json:"name"`
	CPUs    cosched.CPUs `json:"cpus"`       // that have such a domain
	Domains int          `json:"domains"`    // how many different domains
	Span    [2]int       `json:"span"`       // the numbers of CPUs of the smallest and of the largest domain
	Idle    Balance      `json:"idle"`       // balancing on the tick of an idle CPU
	Busy    Balance      `json:"busy"`       // on the tick of a busy one
	New     Balance      `json:"newly_idle"` // of a CPU before it becomes idle
	Active  Push         `json:"active"`     // by pushing the task that runs
	Exec    Push         `json:"exec"`       // on exec and fork: the kernel has these counters,
	Fork    Push         `json:"fork"`       // but has long left them 0
	Wakeups Wakeups      `json:"wakeups"`

	named bool
}

// Kinds returns the three kinds of balancing.
func (l *Level) Kinds() []*Balance { return []*Balance{&l.Idle, &l.Busy, &l.New} }

// KindNames are the names of the three kinds of balancing.
var KindNames = []string{"idle", "busy", "newly idle"}

// Calls returns the number of calls of all kinds.
func (l *Level) Calls() uint64 { return l.Idle.Calls + l.Busy.Calls + l.New.Calls }

// Balance is one kind of balancing. Each call has one outcome.
type Balance struct {
	Calls     uint64 `json:"calls"`
	NoGroup   uint64 `json:"no_busier_group"`
	NoQueue   uint64 `json:"no_busier_queue"` // in the busiest group
	Left      uint64 `json:"left_or_pinned"`  // another CPU of the group balances, or no task may run here
	Failed    uint64 `json:"failed"`          // to move any task
	Succeeded uint64 `json:"succeeded"`

	Moved      uint64      `json:"tasks_moved"`
	Hot        uint64      `json:"hot_tasks_moved"` // of these, those with warm caches
	Imbalances []Imbalance `json:"imbalances"`
}

// Tries returns the number of calls that found an imbalance.
func (b *Balance) Tries() uint64 { return b.Failed + b.Succeeded }

// Imbalance is how much there was to move: load, utilisation, tasks or CPUs with a misfit
// task. Before version 17, it is a mixture of these.
type Imbalance struct {
	Of      string `json:"of,omitempty"`
	Sum     uint64 `json:"sum"`
	Average ratio  `json:"average"` // over the calls that found an imbalance
}

// Name returns what an average imbalance is called.
func (i Imbalance) Name() string {
	if i.Of == "" {
		return "average imbalance"
	}
	return "average imbalance, " + i.Of
}

// Push is balancing that moves one task to another CPU.
type Push struct {
	Calls  uint64 `json:"calls"`
	Failed uint64 `json:"failed"` // for exec and fork, those that found nothing better
	Moved  uint64 `json:"moved"`
}

// Wakeups are the wakeups of a task by another CPU than the one that the task is put on.
type Wakeups struct {
	Remote  uint64 `json:"remote"`  // if the smallest domain with both CPUs is of this level
	Affine  uint64 `json:"affine"`  // pulled to the CPU that wakes it
	Passive uint64 `json:"passive"` // the kernel has long left this 0
}

// ratio is a quotient, which is not OK if nothing was counted.
type ratio struct {
	Value float64
	OK    bool
}

func quotient(a, b float64) ratio {
	if b == 0 {
		return ratio{}
	}
	return ratio{a / b, true}
}

// MarshalJSON returns a number or null.
func (r ratio) MarshalJSON() ([]byte, error) {
	if !r.OK {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, r.Value, 'g', 6, 64), nil
}

// String formats the quotient with some digits behind the point, or as a dash.
func (r ratio) String(digits int) string {
	if !r.OK {
		return "-"
	}
	return strconv.FormatFloat(r.Value, 'f', digits, 64)
}

// Report sums up what a recording counted. Its errors are about the snapshots.
func (rec *Recording) Report() (*Report, error) {
	d, err := between(rec.before, rec.after)
	if err != nil {
		return nil, problem(cosched.ExitData, err, "%s: %v", rec.name, err)
	}
	r := &Report{Version: rec.after.Version, Recorded: rec.Recorded, SinceBoot: rec.before == nil, Notes: d.notes, Levels: []*Level{}}
	for _, c := range d.cpus {
		n := c.counters
		run := Run{
			CPU: &c.ID, RunNS: n[cpuRun], WaitNS: n[cpuWait], Slices: n[cpuSlices], Schedules: n[cpuSchedules], ToIdle: n[cpuIdle],
			Yields: n[cpuYields], Wakeups: n[cpuWakeups], WakeupsLocal: n[cpuWakeupsLocal],
		}
		r.All.add(run)
		r.CPUs = append(r.CPUs, run.average())
	}
	r.All = r.All.average()
	r.levels(d)
	if r.All.Slices > 0 && r.All.Schedules == 0 {
		r.Notes = append(r.Notes, "only times were counted, as kernel.sched_schedstats was 0: "+switchOn)
	}
	return r, nil
}

func (r *Run) add(o Run) {
	r.RunNS += o.RunNS
	r.WaitNS += o.WaitNS
	r.Slices += o.Slices
	r.Schedules += o.Schedules
	r.ToIdle += o.ToIdle
	r.Yields += o.Yields
	r.Wakeups += o.Wakeups
	r.WakeupsLocal += o.WakeupsLocal
}

func (r Run) average() Run {
	n := float64(r.Slices) * float64(time.Millisecond)
	r.AverageRunMS, r.AverageWaitMS = quotient(float64(r.RunNS), n), quotient(float64(r.WaitNS), n)
	return r
}

// levels sums up the domains of all CPUs. Domains with the same name correspond to each
// other, even if their numbers differ because CPUs without SMT siblings lack the smallest
// domain. Several NUMA levels have the same name: the first one of a CPU corresponds to the
// first one of another, and so on. Without names, domains with the same number correspond
// to each other.
func (r *Report) levels(d *delta) {
	type level struct {
		*Level
		sums   []uint64
		spans  map[string]int
		height int // the highest number of such a domain
	}
	byName := map[string]*level{}
	var list []*level
	for _, c := range d.cpus {
		seen := map[string]int{}
		for height, domain := range c.Domains {
			name := domain.Name
			if !d.f.named {
				name = fmt.Sprintf("domain %d", height)
			} else if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s %d", name, seen[name])
			}
			l := byName[name]
			if l == nil {
				l = &level{Level: &Level{Name: name, named: d.f.named}, sums: make([]uint64, d.f.counters()), spans: map[string]int{}}
				byName[name] = l
				list = append(list, l)
			}
			l.height = max(l.height, height)
			l.CPUs = append(l.CPUs, c.ID)
			l.spans[domain.Span.String()] = len(domain.Span)
			for i, n := range domain.counters {
				l.sums[i] += n
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *level) int { return cmp.Compare(a.height, b.height) })
	for _, l := range list {
		l.Domains, l.Span[0] = len(l.spans), maxCPUs
		for _, n := range l.spans {
			l.Span = [2]int{min(l.Span[0], n), max(l.Span[1], n)}
		}
		d.f.fill(l.Level, l.sums)
		r.Levels = append(r.Levels, l.Level)
	}
}

// fill sets the counters of a level.
func (f format) fill(l *Level, sums []uint64) {
	for i, kind := range f.kinds {
		n := sums[i*f.kind():]
		b := l.Kinds()[kind]
		rest := n[lbImbalance+len(f.imbalances):]
		*b = Balance{Calls: n[lbCalls], NoGroup: rest[lbNoGroup], NoQueue: rest[lbNoQueue], Failed: n[lbFailed], Moved: rest[lbMoved], Hot: rest[lbHot]}
		// Counters of a nohz-idle CPU can be incremented by two other CPUs at once, which
		// loses some events.
		b.Left = less(n[lbBalanced], b.NoGroup+b.NoQueue)
		b.Succeeded = less(b.Calls, n[lbBalanced]+b.Failed)
		for j, of := range f.imbalances {
			sum := n[lbImbalance+j]
			b.Imbalances = append(b.Imbalances, Imbalance{of, sum, quotient(float64(sum), float64(b.Tries()))})
		}
	}
	n := sums[kinds*f.kind():]
	l.Active = Push{n[activeCalls], n[activeFailed], n[activeMoved]}
	l.Exec = Push{n[execCalls], n[execBalanced], n[execMoved]}
	l.Fork = Push{n[forkCalls], n[forkBalanced], n[forkMoved]}
	l.Wakeups = Wakeups{n[wakeRemote], n[wakeAffine], n[wakePassive]}
}

func less(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
