package schedstat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/schedstat/schedstattest"
)

func parse(t *testing.T, text string) *Snapshot {
	t.Helper()
	s, err := Parse(split(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func report(t *testing.T, before, after string) *Report {
	t.Helper()
	rec := &Recording{after: parse(t, after)}
	if before != "" {
		rec.before = parse(t, before)
	}
	r, err := rec.Report()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each counter gets to its place, from the line of each version.
func TestCounters(t *testing.T) {
	var n uint32 = 100
	next := func() uint32 { n++; return n }
	balance := func() schedstattest.Balance {
		// The calls that found a balance include those that found no busier group or queue.
		return schedstattest.Balance{Count: 5000 + next(), Balanced: 1000 + next(), Failed: next(), Imbalance: [4]uint32{next(), next(), next(), next()},
			Gained: next(), HotGained: next(), NoBusyQ: next(), NoBusyG: next()}
	}
	triple := func() [3]uint32 { return [3]uint32{next(), next(), next()} }
	d := schedstattest.Domain{Name: "MC", Span: "00000003,80000001", Idle: balance(), Busy: balance(), Newly: balance(),
		Alb: triple(), Sbe: triple(), Sbf: triple(), Ttwu: triple()}
	c := schedstattest.CPU{ID: 3, YldCount: 1, SchedCount: 2, SchedGoidle: 3, TtwuCount: 4, TtwuLocal: 5, RqCPUTime: 1 << 40, RunDelay: 1 << 41, Pcount: 8,
		Domains: []schedstattest.Domain{d}}
	for version, named := range map[int]bool{15: false, 16: false, 17: true} {
		r := report(t, "", schedstattest.Proc(version, 1, []schedstattest.CPU{c}))
		three := 3
		run := Run{RunNS: 1 << 40, WaitNS: 1 << 41, Slices: 8, Schedules: 2, ToIdle: 3, Yields: 1, Wakeups: 4, WakeupsLocal: 5}.average()
		if r.All != run {
			t.Errorf("version %d: %+v, want %+v", version, r.All, run)
		}
		if run.CPU = &three; len(r.CPUs) != 1 || *r.CPUs[0].CPU != 3 || r.CPUs[0].RunNS != 1<<40 {
			t.Errorf("version %d: %+v", version, r.CPUs)
		}
		if len(r.Levels) != 1 {
			t.Fatalf("version %d: %d levels", version, len(r.Levels))
		}
		l := r.Levels[0]
		name := "domain 0"
		if named {
			name = "MC"
		}
		if l.Name != name || l.CPUs.String() != "3" || l.Domains != 1 || l.Span != [2]int{4, 4} {
			t.Errorf("version %d: %+v", version, l)
		}
		for i, k := range []schedstattest.Balance{d.Idle, d.Busy, d.Newly} {
			want := Balance{Calls: uint64(k.Count), NoGroup: uint64(k.NoBusyG), NoQueue: uint64(k.NoBusyQ), Left: uint64(k.Balanced - k.NoBusyG - k.NoBusyQ),
				Failed: uint64(k.Failed), Succeeded: uint64(k.Count - k.Balanced - k.Failed), Moved: uint64(k.Gained), Hot: uint64(k.HotGained)}
			of := []string{""}
			if named {
				of = []string{"load", "util", "tasks", "misfit"}
			}
			for j, name := range of {
				sum := k.Imbalance[j]
				want.Imbalances = append(want.Imbalances, Imbalance{name, uint64(sum), quotient(float64(sum), float64(k.Count-k.Balanced))})
			}
			if got := *l.Kinds()[i]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("version %d, %s:\n%+v, want\n%+v", version, KindNames[i], got, want)
			}
		}
		for i, p := range []Push{l.Active, l.Exec, l.Fork, {l.Wakeups.Remote, l.Wakeups.Affine, l.Wakeups.Passive}} {
			if k := [][3]uint32{d.Alb, d.Sbe, d.Sbf, d.Ttwu}[i]; p != (Push{uint64(k[0]), uint64(k[1]), uint64(k[2])}) {
				t.Errorf("version %d: %+v, want %v", version, p, k)
			}
		}
	}
}

// The mail's two reports are reproduced from counters that were made from them, in each
// version: the numbers, and each percentage and average as the mail prints it.
func TestMail(t *testing.T) {
	for _, name := range []string{"numa", "no-numa"} {
		m := schedstattest.ReadMail(t, name)
		if want := map[string]int{"numa": 3, "no-numa": 2}[name]; len(m.Levels) != want {
			t.Fatalf("%s: %d levels", name, len(m.Levels))
		}
		for version := 15; version <= 17; version++ {
			before, after := m.Counters(t, version)
			r := report(t, before, after)
			if len(r.Notes) != 0 || len(r.Levels) != len(m.Levels) || len(r.CPUs) != 8 {
				t.Fatalf("%s, version %d: %d levels, %d CPUs, notes %q", name, version, len(r.Levels), len(r.CPUs), r.Notes)
			}
			is := func(what, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s, version %d, %s: %s, want %s", name, version, what, got, want)
				}
			}
			is("run/wait", r.All.AverageRunMS.String(2)+"/"+r.All.AverageWaitMS.String(2), m.Run+"/"+m.Wait)
			is("calls", fmt.Sprint(r.All.Schedules, r.All.ToIdle, r.All.Yields), fmt.Sprint(m.Schedules, m.ToIdle, m.Yields))
			for i, l := range m.Levels {
				got := r.Levels[i]
				// The spans of the two levels, and that of the NUMA level if there is one.
				is("domains", fmt.Sprint(got.Domains), []string{"4", "2", "1"}[map[bool]int{true: 2, false: i}[i == len(m.Levels)-1]])
				is("calls", fmt.Sprint(got.Calls()), fmt.Sprint(l.Calls))
				for k, want := range l.Kinds {
					b := got.Kinds()[k]
					line := func(n uint64, of uint64) string { return fmt.Sprintf("%d(%.2f%%)", n, 100*float64(n)/float64(of)) }
					mail := func(n uint32, share string) string { return fmt.Sprintf("%d(%s%%)", n, share) }
					where := fmt.Sprintf("domain %d, %s: ", i, KindNames[k])
					is(where+"calls", line(b.Calls, got.Calls()), mail(want.Calls, want.CallsShare))
					is(where+"failed", line(b.Failed, b.Calls), mail(want.Failed, want.FailedShare))
					is(where+"no busier group", line(b.NoGroup, b.Calls), mail(want.NoGroup, want.NoGroupShare))
					is(where+"succeeded", line(b.Succeeded, b.Calls), mail(want.Succeeded, want.SucceededShare))
					is(where+"imbalance", b.Imbalances[0].Average.String(3), want.Imbalance)
				}
			}
		}
	}
}

// This is what the mail is about: without the NUMA level, the balancer of the level below
// it has more success, and tasks wait less.
func TestMailDiff(t *testing.T) {
	var reports []*Report
	for _, name := range []string{"numa", "no-numa"} {
		m := schedstattest.ReadMail(t, name)
		m.ToIdle = 0 // only one of the reports has it
		before, after := m.Counters(t, 16)
		r := report(t, before, after)
		r.Seconds = float64(m.Seconds)
		reports = append(reports, r)
	}
	d := Compare("numa", reports[0], "no-numa", reports[1])
	if fmt.Sprint(d.Only) != "[{A domain 2 825662}]" {
		t.Errorf("only in one: %v", d.Only)
	}
	find := func(level, kind, what string) (int, Change) {
		i := slices.IndexFunc(d.Changes, func(c Change) bool { return c.Level == level && c.Kind == kind && c.What == what })
		if i < 0 {
			t.Fatalf("nothing of %s, %s, %s in %+v", level, kind, what, d.Changes)
		}
		return i, d.Changes[i]
	}
	_, wait := find("all CPUs", "", "average wait, ms")
	_, moved := find("domain 1", "newly idle", "moved a task, % of calls")
	if s := fmt.Sprintf("%.2f to %.2f, %.2f to %.2f", wait.A, wait.B, moved.A, moved.B); s != "1.17 to 1.10, 5.60 to 13.29" || !wait.Changed() {
		t.Error(s)
	}
	if _, c := find("domain 1", "busy", "balancing calls per s"); fmt.Sprintf("%.3f %.3f", c.A, c.B) != "49.582 72.077" { // 27022 in 545 s, 39138 in 543 s
		t.Errorf("%+v", c)
	}
	// "It appears to us that the scheduler is having more success in balancing".
	for i, c := range d.Changes[:3] {
		if c.Level != "domain 1" || c.What != "moved a task, % of calls" || c.Factor.Value < 2 {
			t.Errorf("change %d is %+v", i, c)
		}
	}
	// The same counters: nothing changed.
	for _, c := range Compare("a", reports[0], "b", reports[0]).Changes {
		if c.Changed() || c.A != c.B {
			t.Errorf("%+v", c)
		}
	}
}

// A large change of few events comes after a smaller change of many events, which chance
// explains less.
func TestDiffChance(t *testing.T) {
	side := func(active, remote, affine uint32) *Report {
		r := report(t, "", schedstattest.Proc(16, 1, []schedstattest.CPU{{Domains: []schedstattest.Domain{
			{Span: "1", Alb: [3]uint32{active}, Ttwu: [3]uint32{remote, affine}}}}}))
		r.Seconds = 10
		return r
	}
	a, b := side(0, 1000, 1), side(20, 2000, 5)
	d := Compare("a", a, "b", b)
	var got []string
	for _, c := range d.Changes {
		got = append(got, fmt.Sprintf("%s %v %v %v", c.What, c.A, c.B, c.Changed()))
	}
	want := "active balancing calls per s 0 2 true; wakeups onto another CPU per s 100 200 true; affine wakeups per s 0.1 0.5 false"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s, want\n%s", s, want)
	}
	for _, back := range Compare("b", b, "a", a).Changes {
		i := slices.IndexFunc(d.Changes, func(c Change) bool { return c.What == back.What })
		if c := d.Changes[i]; math.Abs(back.AtLeast-c.AtLeast) > 1e-9 || back.A != c.B || back.B != c.A {
			t.Errorf("%+v, and the other way round %+v", c, back)
		}
	}
	// Without times there are no rates.
	a.Seconds = 0
	if d := Compare("a", a, "b", b); len(d.Changes) != 0 {
		t.Errorf("%+v", d.Changes)
	}
}

// Levels of different kernels are matched by name, or by number if one of the kernels has
// no names.
func TestDiffLevels(t *testing.T) {
	side := func(version int, names ...string) *Report {
		c := schedstattest.CPU{}
		for _, name := range names {
			c.Domains = append(c.Domains, schedstattest.Domain{Name: name, Span: "1", Ttwu: [3]uint32{10}})
		}
		r := report(t, "", schedstattest.Proc(version, 1, []schedstattest.CPU{c}))
		r.Seconds = 1
		return r
	}
	for _, tc := range []struct {
		a, b *Report
		want string
	}{
		{side(17, "SMT", "MC", "NUMA"), side(17, "MC", "NUMA"), "[{A SMT 0}] MC NUMA"},
		{side(17, "MC"), side(17, "MC", "NUMA", "NUMA"), "[{B NUMA 0} {B NUMA 2 0}] MC"},
		{side(16, "", ""), side(17, "SMT", "MC", "NUMA"), "[{B NUMA 0}] domain 0 domain 1"},
		{side(15, "", ""), side(16, ""), "[{A domain 1 0}] domain 0"},
		{side(16, ""), side(16), "[{A domain 0 0}]"},
	} {
		d := Compare("a", tc.a, "b", tc.b)
		got := fmt.Sprint(d.Only)
		for _, c := range d.Changes {
			got += " " + c.Level
		}
		if got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

// CPUs without SMT have no SMT domain, and two NUMA levels have one name.
func TestLevels(t *testing.T) {
	domain := func(name, span string) schedstattest.Domain {
		return schedstattest.Domain{Name: name, Span: span, Alb: [3]uint32{1}}
	}
	var cpus []schedstattest.CPU
	for id := range 6 {
		c := schedstattest.CPU{ID: id, Domains: []schedstattest.Domain{domain("MC", "3f"), domain("NUMA", "ff"), domain("NUMA", "fff")}}
		if id < 4 {
			c.Domains = append([]schedstattest.Domain{domain("SMT", []string{"3", "c"}[id/2])}, c.Domains...)
		}
		cpus = append(cpus, c)
	}
	slices.Reverse(cpus) // which the kernel does not; the order of levels is that of domains
	for i := range cpus {
		cpus[i].ID = i
	}
	var got []string
	for _, l := range report(t, "", schedstattest.Proc(17, 1, cpus)).Levels {
		got = append(got, fmt.Sprint(l.Name, " ", l.CPUs, " ", l.Domains, " ", l.Span, " ", l.Active.Calls))
	}
	if s := strings.Join(got, "; "); s != "SMT 2-5 2 [2 2] 4; MC 0-5 1 [6 6] 6; NUMA 0-5 1 [8 8] 6; NUMA 2 0-5 1 [12 12] 6" {
		t.Error(s)
	}
}

// In files of real kernels the counters are consistent, and an unplugged CPU is left out.
func TestRecorded(t *testing.T) {
	for _, v := range []string{"v15", "v16", "v17"} {
		file := func(name string) string { return schedstattest.File(t, v+"-"+name) }
		r := report(t, file("before"), file("after"))
		if len(r.CPUs) != 8 || len(r.Levels) != 3 || r.Notes != nil {
			t.Fatalf("%s: %+v", v, r)
		}
		for _, l := range r.Levels {
			// 12 threads kept 8 CPUs busy. If the kinds were read in the wrong order, the
			// CPUs would look idle.
			if l.Busy.Calls < l.Idle.Calls {
				t.Errorf("%s, %s: %+v", v, l.Name, l)
			}
			for i, b := range l.Kinds() {
				if sum := b.NoGroup + b.NoQueue + b.Left + b.Failed + b.Succeeded; sum != b.Calls || b.Moved < b.Succeeded {
					t.Errorf("%s, %s, %s: %d outcomes of %d calls, %d tasks in %d", v, l.Name, KindNames[i], sum, b.Calls, b.Moved, b.Succeeded)
				}
			}
		}
		r = report(t, file("after"), file("unplugged"))
		if len(r.CPUs) != 7 || len(r.Notes) != 2 || !strings.HasPrefix(r.Notes[0], "CPU 7 was online in one") || !strings.HasPrefix(r.Notes[1], "the domains of CPU 0-6 were built anew") {
			t.Errorf("%s: %d CPUs, notes %q", v, len(r.CPUs), r.Notes)
		}
		// The report has all that the new domains counted, and only the difference of what
		// CPUs did.
		now := report(t, "", file("unplugged"))
		if r.Levels[0].Calls() != now.Levels[0].Calls() || r.All.RunNS >= now.All.RunNS {
			t.Errorf("%s: %d calls, %d ns", v, r.Levels[0].Calls(), r.All.RunNS)
		}
		if r = report(t, "", file("off")); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "sysctl kernel.sched_schedstats=1") {
			t.Errorf("%s, switched off: %q", v, r.Notes)
		}
	}
}

// Counters go over 2^32, and begin at 0 again if domains are built anew with the same CPUs.
func TestWrapAndReset(t *testing.T) {
	type counts struct {
		yields, calls, imbalance uint32
		slices, jiffies          uint64
		span                     string
	}
	file := func(c counts) string {
		return schedstattest.Proc(16, c.jiffies, []schedstattest.CPU{{YldCount: c.yields, Pcount: c.slices, Domains: []schedstattest.Domain{
			{Span: cmp.Or(c.span, "3"), Idle: schedstattest.Balance{Count: c.calls, Imbalance: [4]uint32{c.imbalance}}}}}})
	}
	const top = math.MaxUint32
	for name, tc := range map[string]struct {
		before, after                    counts
		yields, calls, imbalance, slices uint64
		rebuilt                          bool
	}{
		"all go over":             {counts{top, top - 1, top, top, top, ""}, counts{9, 8, 7, 6, 5, ""}, 10, 10, 8, 7, false},
		"wide ones":               {counts{0, 0, 0, top + 5, 1 << 33, ""}, counts{0, 0, 0, top + 15, 1<<33 + 1, ""}, 0, 0, 0, 10, false},
		"imbalance by 3 billions": {counts{0, 10, 2e9, 0, 0, ""}, counts{0, 20, 7e8, 0, 0, ""}, 0, 10, 1<<32 - 13e8, 0, false},
		"calls from 0 again":      {counts{5, 1000, 2000, 5, 0, ""}, counts{6, 10, 3000, 6, 0, ""}, 1, 10, 3000, 1, true},
		"other CPUs":              {counts{5, 10, 20, 5, 0, ""}, counts{6, 11, 21, 6, 0, "7"}, 1, 11, 21, 1, true},
	} {
		r := report(t, file(tc.before), file(tc.after))
		b := r.Levels[0].Idle
		if r.All.Yields != tc.yields || b.Calls != tc.calls || b.Imbalances[0].Sum != tc.imbalance || r.All.Slices != tc.slices {
			t.Errorf("%s: %d yields, %d calls, imbalance %d, %d slices", name, r.All.Yields, b.Calls, b.Imbalances[0].Sum, r.All.Slices)
		}
		if got := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "CPU 0 were built anew") }); got != tc.rebuilt {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
	}
}

// Pairs of snapshots that are not a before and an after.
func TestPairs(t *testing.T) {
	file := func(version int, jiffies, run uint64, ids ...int) string {
		var cpus []schedstattest.CPU
		for _, id := range ids {
			cpus = append(cpus, schedstattest.CPU{ID: id, RqCPUTime: run})
		}
		return schedstattest.Proc(version, jiffies, cpus)
	}
	for _, tc := range []struct{ before, after, says string }{
		{file(15, 1, 0, 0), file(16, 2, 0, 0), "version 15, then 16: snapshots of two kernels"},
		{file(16, 1e6, 0, 0), file(16, 1e6-1, 0, 0), "timestamp 1000000, then 999999: in the wrong order"},
		{file(16, 1<<33, 0, 0), file(16, 5, 0, 0), "in the wrong order, or of two boots"},
		{file(16, 1, 5, 0), file(16, 2, 4, 0), "CPU 0: counter 7 goes from 5 back to 4"},
		{file(16, 1, 0, 0), file(16, 2, 0, 1), "no CPU is in both"},
	} {
		rec := &Recording{name: "pair", before: parse(t, tc.before), after: parse(t, tc.after)}
		_, err := rec.Report()
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitData || !strings.HasPrefix(p.Text, "pair: ") || !strings.Contains(p.Text, tc.says) {
			t.Errorf("%v, want %s", err, tc.says)
		}
	}
}

// For everything that can be wrong in a file, the error is one line that names the file and
// its line.
func TestDamaged(t *testing.T) {
	good := schedstattest.File(t, "v17-after")
	whole := Recording{Format: recordingFormat, Recorded: Recorded{Kernel: "7.3.4"}, Before: split(schedstattest.File(t, "v17-before")), After: split(good)}
	var b bytes.Buffer
	if err := whole.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	path := filepath.Join(t.TempDir(), "file")
	for name, tc := range map[string]struct{ text, says string }{
		"empty":            {"", "empty: the recording did not come to its end"},
		"half a recording": {text[:len(text)/2], "damaged: unexpected end of JSON input"},
		"bytes changed":    {strings.Replace(text, `"cpu3 `, `"cpu3 x`, 1), `before: line 15: "x`},
		"a line missing":   {strings.Replace(text, `"`+split(good)[3]+`",`, "", 1), "after: line 4: \"domain1\" where domain0 of CPU 0 follows"},
		"no snapshots":     {`{"schedstat_recording": 1}`, "before: 0 lines and no CPU: truncated"},
		"later":            {`{"schedstat_recording": 2}`, "schedstat_recording is 2, not 1"},
		"other JSON":       {`{"a": []}`, "no recording of cosched schedstat"},
		"a list":           {`[1]`, "neither a recording"},
		"text":             {"root:x:0:0", "neither a recording of cosched schedstat nor a copy of /proc/schedstat"},
		"cut off":          {good[:len(good)-10], "its last line has no end"},
		"cut in a line":    {good[:len(good)-10] + "\n", "line 34: 41 counters, want 45: truncated"},
		"header alone":     {"version 17\ntimestamp 5\n", "2 lines and no CPU: truncated"},
		"old":              {"version 14\ntimestamp 5\n", "line 1: version 14 is none of 15 (before Linux 6.10), 16"},
		"no number":        {"version x\n", `version "x" is not a number`},
		"no time":          {"version 17\ncpu0\n", `line 2: is not "timestamp"`},
		"bad time":         {"version 17\ntimestamp x\n", `line 2: "x" is not a counter`},
		"a blank line":     {"version 17\ntimestamp 5\n\n", "line 3: is empty"},
		"domain first":     {"version 17\ntimestamp 5\ndomain0 MC 1\n", "line 3: a domain before the first CPU"},
		"strange line":     {strings.Replace(good, "cpu1 ", "eas 1 ", 1), `line 7: "eas" begins neither`},
		"not a CPU":        {strings.Replace(good, "cpu1 ", "cpux ", 1), `line 7: "cpux" is not a CPU`},
		"wrong order":      {strings.Replace(good, "cpu1 ", "cpu0 ", 1), "line 7: CPU 0 follows CPU 0"},
		"not a mask":       {strings.Replace(good, "SMT 03", "SMT 0g", 1), `line 4: "0g" is not a mask`},
		"a huge mask":      {strings.Replace(good, "SMT 03", "SMT "+strings.Repeat("f", 1<<15), 1), "is not a mask"},
		"no mask":          {"version 17\ntimestamp 5\ncpu0 0 0 0 0 0 0 0 0 0\ndomain0 SMT\n", "line 4: a domain without CPUs: truncated"},
		"too large a one":  {strings.Replace(good, "cpu1 0", "cpu1 99999999999999999999", 1), "is not a counter"},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path)
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitData || !strings.HasPrefix(p.Text, path+": ") || !strings.Contains(p.Text, tc.says) || len(p.Text) > 250 || strings.Contains(p.Text, "\n") {
			t.Errorf("%s: %v, want %s", name, err, tc.says)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"v15-after", "v16-after", "v17-unplugged"} {
		f.Add(schedstattest.File(f, name), schedstattest.File(f, "v17-after"))
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		a, err := Parse(split(before))
		b, err2 := Parse(split(after))
		if err != nil || err2 != nil {
			return
		}
		if r, err := (&Recording{before: a, after: b}).Report(); err == nil {
			if _, err := json.Marshal(Compare("a", r, "b", r)); err != nil {
				t.Error(err)
			}
		}
	})
}
