// Package schedstattest has contents of /proc/schedstat for tests.
//
// testdata/v15-*.txt, v16-*.txt and v17-*.txt are from Debian's Linux 6.1.176, 6.12.117 and
// 7.3.4 in guests with 8 CPUs, with SMT, in 2 nodes: with kernel.sched_schedstats off, then
// with it on before and after 12 threads had work, and after more work with CPU 7 offline.
// testdata/mail-*.txt are the two reports in Brian Twichell's mail to linux-kernel of 7
// November 2005, "Database regression due to scheduler changes ?". Mail turns them back
// into counters.
package schedstattest

import (
	"embed"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata
var testdata embed.FS

// File returns the content of a file of testdata.
func File(t testing.TB, name string) string {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// CPU and Domain use the kernel's own names, from struct rq and struct sched_domain.
type CPU struct {
	ID                                                      int
	YldCount, SchedCount, SchedGoidle, TtwuCount, TtwuLocal uint32
	RqCPUTime, RunDelay, Pcount                             uint64
	Domains                                                 []Domain
}

type Domain struct {
	Name  string // printed from version 17 on
	Span  string // a mask
	Idle  Balance
	Busy  Balance
	Newly Balance
	// alb, sbe and sbf: count, failed or balanced, pushed; ttwu: wake_remote, move_affine, move_balance.
	Alb, Sbe, Sbf, Ttwu [3]uint32
}

type Balance struct {
	Count, Balanced, Failed uint32
	Imbalance               [4]uint32 // load, util, task, misfit; the first alone before version 17
	Gained, HotGained       uint32
	NoBusyQ, NoBusyG        uint32
}

// Proc returns what show_schedstat() prints in a version.
func Proc(version int, jiffies uint64, cpus []CPU) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d\ntimestamp %d\n", version, jiffies)
	for _, c := range cpus {
		fmt.Fprintf(&b, "cpu%d %d 0 %d %d %d %d %d %d %d\n", c.ID, c.YldCount, c.SchedCount, c.SchedGoidle, c.TtwuCount, c.TtwuLocal,
			c.RqCPUTime, c.RunDelay, c.Pcount)
		for i, d := range c.Domains {
			fmt.Fprintf(&b, "domain%d ", i)
			if version >= 17 {
				fmt.Fprintf(&b, "%s ", d.Name)
			}
			b.WriteString(d.Span)
			// enum cpu_idle_type
			types := []Balance{d.Busy, d.Idle, d.Newly}
			if version == 15 {
				types = []Balance{d.Idle, d.Busy, d.Newly}
			}
			for _, l := range types {
				fmt.Fprintf(&b, " %d %d %d %d", l.Count, l.Balanced, l.Failed, l.Imbalance[0])
				if version >= 17 {
					fmt.Fprintf(&b, " %d %d %d", l.Imbalance[1], l.Imbalance[2], l.Imbalance[3])
				}
				fmt.Fprintf(&b, " %d %d %d %d", l.Gained, l.HotGained, l.NoBusyQ, l.NoBusyG)
			}
			for _, list := range [][3]uint32{d.Alb, d.Sbe, d.Sbf, d.Ttwu} {
				fmt.Fprintf(&b, " %d %d %d", list[0], list[1], list[2])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Mail is one of the mail's reports. Shares and averages are in the form that the mail
// prints.
type Mail struct {
	Seconds   int
	Schedules uint32
	ToIdle    uint32 // missing in the first
	Yields    uint32
	Run, Wait string // ms on average
	Levels    []MailLevel
}

type MailLevel struct {
	Calls uint32
	Kinds [3]MailKind // idle, busy, newly idle
}

type MailKind struct {
	Calls, Failed, NoGroup, Succeeded                     uint32
	CallsShare, FailedShare, NoGroupShare, SucceededShare string
	Imbalance                                             string // on average
}

// ReadMail reads one of the mail's reports: numa or no-numa.
func ReadMail(t testing.TB, name string) Mail {
	t.Helper()
	var m Mail
	var k *MailKind
	number := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	line := regexp.MustCompile(`^(\d+)(?:\( *([\d.]+)%\))? (.*)$`)
	for l := range strings.Lines(File(t, "mail-"+name)) {
		l = strings.TrimSpace(l)
		if d, ok := strings.CutSuffix(l, "--------------------------------------------------------------"); ok && strings.Count(d, ":") == 2 {
			p := strings.Split(d, ":")
			m.Seconds = int(number(p[0])*3600 + number(p[1])*60 + number(p[2]))
		}
		if a, ok := strings.CutSuffix(l, " avg runtime/latency over all cpus (ms)"); ok {
			m.Run, m.Wait, _ = strings.Cut(a, "/")
		}
		if a, ok := strings.CutPrefix(l, "(average imbalance: "); ok {
			k.Imbalance = strings.TrimSuffix(a, ")")
		}
		f := line.FindStringSubmatch(l)
		if f == nil {
			continue
		}
		n, share := number(f[1]), f[2]
		switch f[3] {
		case "sys_sched_yield()":
			m.Yields = n
		case "schedule()":
			m.Schedules = n
		case "goes idle":
			m.ToIdle = n
		case "load_balance()":
			m.Levels = append(m.Levels, MailLevel{Calls: n})
		case "called while idle", "called while busy", "called when newly idle":
			k = &m.Levels[len(m.Levels)-1].Kinds[map[string]int{"while idle": 0, "while busy": 1, "when newly idle": 2}[f[3][len("called "):]]]
			k.Calls, k.CallsShare = n, share
		case "tried but failed to move any tasks":
			k.Failed, k.FailedShare = n, share
		case "found no busier group":
			k.NoGroup, k.NoGroupShare = n, share
		case "succeeded in moving at least one task":
			k.Succeeded, k.SucceededShare = n, share
		}
	}
	return m
}

// The mail's machine has 8 CPUs, with SMT, in 2 nodes. Without the NUMA level, the second
// level has all CPUs.
var mailNames = []string{"SMT", "MC", "NUMA"}

func mailSpan(level, levels, cpu int) string {
	switch {
	case level == levels-1:
		return "ff"
	case level == 0:
		return fmt.Sprintf("%02x", 3<<(cpu/2*2))
	}
	return fmt.Sprintf("%02x", 15<<(cpu/4*4))
}

// Counters makes the two snapshots that the report was made from, as a kernel with a
// version of the file would have printed them. The CPUs share what was counted. Their
// counters do not start at 0, and some of them go over 2^32.
func (m Mail) Counters(t testing.TB, version int) (before, after string) {
	t.Helper()
	const cpus = 8
	decimal := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// Each CPU has an equal part of n, and the first CPU also has what is left.
	part := func(n uint64, cpu int) uint64 {
		if cpu == 0 {
			return n/cpus + n%cpus
		}
		return n / cpus
	}
	build := func(later bool) string {
		var list []CPU
		// value returns a counter's value: a CPU's part of n is counted on top of what was
		// there before.
		value := func(n uint64, cpu int) uint32 {
			was := uint32(1000 * cpu)
			if cpu%2 == 1 {
				was = math.MaxUint32 - 7
			}
			if later {
				return was + uint32(part(n, cpu))
			}
			return was
		}
		for cpu := range cpus {
			v := func(n uint32) uint32 { return value(uint64(n), cpu) }
			c := CPU{ID: cpu, YldCount: v(m.Yields), SchedCount: v(m.Schedules), SchedGoidle: v(m.ToIdle), RqCPUTime: 5e9, RunDelay: 7e9, Pcount: 300}
			if later {
				slices := part(uint64(m.Schedules), cpu)
				c.Pcount += slices
				c.RqCPUTime += uint64(decimal(m.Run) * 1e6 * float64(slices))
				c.RunDelay += uint64(decimal(m.Wait) * 1e6 * float64(slices))
			}
			for i, l := range m.Levels {
				d := Domain{Name: mailNames[i], Span: mailSpan(i, len(m.Levels), cpu)}
				for k, b := range []*Balance{&d.Idle, &d.Busy, &d.Newly} {
					n := l.Kinds[k]
					sum := uint64(math.Round(decimal(n.Imbalance) * float64(n.Failed+n.Succeeded)))
					*b = Balance{
						Count: v(n.Calls), Balanced: v(n.NoGroup), Failed: v(n.Failed), NoBusyG: v(n.NoGroup), Gained: v(n.Succeeded),
						Imbalance: [4]uint32{value(sum, cpu)},
					}
				}
				c.Domains = append(c.Domains, d)
			}
			list = append(list, c)
		}
		jiffies := uint64(math.MaxUint32 - 1000)
		if later {
			jiffies += uint64(m.Seconds) * 1000
		}
		return Proc(version, jiffies, list)
	}
	return build(false), build(true)
}
