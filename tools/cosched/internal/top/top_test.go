package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

// tape is a source that has all its intervals from the start.
type tape struct {
	all  []*sample.Interval
	at   int
	pace int
	kept bool
	err  error // returned at the end

	load    map[string]sample.Use // load of clusters that have no load in the interval
	loaded  []string
	loadErr error
}

func (s *tape) Title() string       { return "the tape" }
func (s *tape) Position() string    { return fmt.Sprint("at ", s.at) }
func (s *tape) Wait() time.Duration { return time.Hour }
func (s *tape) Kept() bool          { return s.kept }

func (s *tape) Pace(faster bool) {
	if s.pace--; faster {
		s.pace += 2
	}
}

func (s *tape) Load(u *sample.Use) error {
	if u.LLCs == nil {
		u.LLCs, u.Load = s.load[u.Path].LLCs, s.load[u.Path].Load
		s.loaded = append(s.loaded, u.Path)
	}
	return s.loadErr
}

func (s *tape) Step(n int) (*sample.Interval, error) {
	to := max(0, min(s.at+n, len(s.all)-1))
	if to == s.at {
		return nil, s.err
	}
	s.at = to
	return s.all[to], nil
}

// use is a cluster that runs at home, on LLC domain 0, CPUs 0-3.
func use(name string, cpu float64) sample.Use {
	home := 100 - cpu
	return sample.Use{
		Name: name, Path: "/" + name, Home: cosched.CPUs{0, 1, 2, 3}, Asked: "0-3", Weights: [2]int{4, 1000}, Threads: 7, CPU: cpu, AtHome: &home, Spilled: 3,
		LLCs: []sample.LLCLoad{{LLC: 0, Home: 4, Util: uint64(cpu * 1024), Runnable: 4096}, {LLC: 2, Util: 4096}},
		Load: []cosched.CPULoad{{CPU: 1, Home: true, Util: 1024}, {CPU: 8, Util: 512}},
	}
}

// interval is an interval of a machine with 4 LLC domains of 4 CPUs each.
func interval(uses ...sample.Use) *sample.Interval {
	v := &sample.Interval{Time: time.Unix(1e9, 0), Seconds: 1, IdleCPUs: 5.5, Total: use("", 3), Clusters: uses}
	for i := range 4 {
		v.LLCs = append(v.LLCs, sample.LLC{CPUs: cosched.CPUs{4 * i, 4*i + 1, 4*i + 2, 4*i + 3}, Idle: float64(i)})
	}
	v.CPUs = make([]sample.Idle, 16)
	return v
}

func several() *sample.Interval { return interval(use("a", 1), use("shop", 4), use("shop/till", 2)) }

// screen is a screen without a real terminal.
func screen(t *testing.T, width, height int) tcell.Screen {
	t.Helper()
	t.Setenv("LC_ALL", "C.UTF-8")
	s, err := tcell.NewTerminfoScreenFromTty(vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)}), tcell.OptSanitizeContent(true))
	if err == nil {
		err = s.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Fini)
	return s
}

// look draws the view and gives its lines.
func look(v *view, s tcell.Screen) []string {
	v.draw(s)
	width, height := s.Size()
	lines := make([]string, height)
	for y := range lines {
		for x := 0; x < width; {
			str, _, w := s.Get(x, y)
			lines[y] += str
			x += max(1, w)
		}
		lines[y] = strings.TrimRight(lines[y], " ")
	}
	return lines
}

func press(t *testing.T, v *view, keys ...any) {
	t.Helper()
	for _, k := range keys {
		var ev *tcell.EventKey
		switch k := k.(type) {
		case tcell.Key:
			ev = tcell.NewEventKey(k, "", 0)
		case string:
			ev = tcell.NewEventKey(tcell.KeyRune, k, 0)
		}
		if done, err := v.key(ev); done || err != nil {
			t.Fatalf("%v: %v, %v", k, done, err)
		}
	}
}

// The load is read only for clusters that are visible, once for each interval.
func TestLoadOnDemand(t *testing.T) {
	src := &tape{load: map[string]sample.Use{}}
	take := func(v *view) {
		now := interval()
		for i := range 40 {
			u := use(fmt.Sprintf("c%02d", i), 1)
			src.load[u.Path] = u
			u.LLCs, u.Load = nil, nil
			now.Clusters = append(now.Clusters, u)
		}
		v.take(now)
	}
	s, v := screen(t, 80, 10), newView(src, Options{})
	for range 2 {
		take(v)
		src.loaded = nil
		lines := look(v, s)
		look(v, s)
		if got := strings.Join(src.loaded, " "); got != "/c00 /c01 /c02 /c03" || !strings.Contains(lines[firstRow], "▂▂▂") {
			t.Errorf("loaded %s\n%s", got, lines[firstRow])
		}
	}
	press(t, v, tcell.KeyEnd, tcell.KeyEnter)
	src.loaded = nil
	if lines := look(v, s); strings.Join(src.loaded, " ") != "/c39" || !strings.Contains(strings.Join(lines, "\n"), "c39") {
		t.Errorf("one by CPU: loaded %v\n%s", src.loaded, strings.Join(lines, "\n"))
	}
	take(v)
	src.loadErr = errors.New("no luck")
	look(v, s)
	if v.failed == nil {
		t.Error("an error is lost")
	}
}

func names(lines []string) string {
	var list []string
	for _, l := range lines[firstRow : len(lines)-1] {
		if f := strings.Fields(l); len(f) > 0 {
			list = append(list, f[0])
		}
	}
	return strings.Join(list, " ")
}

func TestList(t *testing.T) {
	s := screen(t, 80, 24)
	v := newView(&tape{}, Options{Order: 1})
	v.take(several())
	lines := look(v, s)
	for y, want := range map[int]string{
		0:  " the tape  ",
		1:  "3.0 of 16 CPUs used by clusters, 97.0 % of it at home; 5.5 CPUs idle",
		2:  "/s: woken at home 0, spilled 3.0, overflowed 0; returned 0, out 0",
		3:  "NAME                      HOME   THR  CPUSv  HOME%  SPILL   RET 0   1   2   3",
		4:  "LLC domains, idle                                               ... ▂▂▂ ▄▄▄ ▆▆▆",
		5:  " shop                      0-3     7    4.0   96.0    3.0     0 ███ ... ███ ...",
		6:  " shop/till                 0-3     7    2.0   98.0    3.0     0 ▄▄▄ ... ███ ...",
		23: "? help  q quit  Enter by CPU  s sort: cpu  r reverse  / filter  space pause",
	} {
		if !strings.HasPrefix(lines[y], want) {
			t.Errorf("line %d is\n%q, want\n%q", y, lines[y], want)
		}
	}
	for _, tc := range []struct {
		keys []any
		want string
	}{
		{[]any{"r"}, "a shop/till shop"},
		{[]any{"s"}, "a shop/till shop"}, // by share at home, the best first
		{[]any{"S", "S"}, "shop/till shop a"},
		{[]any{"r"}, "a shop shop/till"},
		{[]any{"/", "T", "I", "x", tcell.KeyBackspace, tcell.KeyEnter}, "shop/till"},
		{[]any{tcell.KeyEscape}, "a shop shop/till"},
		{[]any{"/", "z", "z"}, `none of 3 clusters has "zz" in its name`},
		{[]any{tcell.KeyEscape}, "a shop shop/till"},
	} {
		press(t, v, tc.keys...)
		got := names(look(v, s))
		if strings.HasPrefix(tc.want, "none") {
			got = look(v, s)[firstRow]
		}
		if got != tc.want {
			t.Errorf("%v: %s, want %s", tc.keys, got, tc.want)
		}
	}
}

// The view itself uses no characters beyond ASCII if the terminal has no UTF-8, and no colours if it
// has none.
func TestPlainTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	s := screen(t, 80, 24)
	v := newView(&tape{}, Options{Order: 1})
	v.take(several())
	look(v, s)
	coloured := 0
	for y := range 24 {
		for x := range 80 {
			if _, style, _ := s.Get(x, y); style.GetForeground().Valid() || style.GetBackground().Valid() {
				coloured++
			}
		}
	}
	if coloured > 0 {
		t.Errorf("%d cells have a colour", coloured)
	}
	if _, style, _ := s.Get(65, 5); !style.HasUnderline() {
		t.Error("home is not underlined")
	}
	if _, style, _ := s.Get(73, 5); style.HasUnderline() || !style.HasBold() {
		t.Error("outside is not bold")
	}
	t.Setenv("LC_ALL", "C")
	ascii, err := tcell.NewTerminfoScreenFromTty(vt.NewMockTerm(), tcell.OptSanitizeContent(true))
	if err != nil || ascii.Init() != nil {
		t.Fatal(err)
	}
	defer ascii.Fini()
	for _, key := range []any{"x", "?", "x", tcell.KeyEnter} {
		press(t, v, key)
		for _, line := range look(v, ascii) {
			if strings.IndexFunc(line, func(r rune) bool { return r > 126 }) >= 0 {
				t.Errorf("%q", line)
			}
		}
	}
}

// A name cannot send commands to the terminal, and a wide name does not move any column.
func TestNames(t *testing.T) {
	s := screen(t, 80, 24)
	v := newView(&tape{}, Options{})
	v.take(interval(use("a\x1b[31mb", 1), use("\u5e97\u8217", 1), use("a/very/long/name/of/a/cluster/whose/end/says/more", 1)))
	lines := look(v, s)
	for y, want := range []string{"[31mb", "\u5e97", "~hose/end/says/more"} {
		if !strings.Contains(lines[firstRow+y], want) || strings.Contains(lines[firstRow+y], "\x1b") {
			t.Errorf("%q", lines[firstRow+y])
		}
		if str, _, _ := s.Get(29, firstRow+y); str != "3" {
			t.Errorf("the home of %q is not in its column: %q", want, str)
		}
	}
}

func TestCursor(t *testing.T) {
	s := screen(t, 80, 12) // six lines of clusters
	src := &tape{}
	v := newView(src, Options{})
	var uses []sample.Use
	for i := range 20 {
		uses = append(uses, use(fmt.Sprintf("c%02d", i), float64(i)))
	}
	v.take(interval(uses...))
	at := func() string {
		lines := look(v, s)
		for y := firstRow; y < 11; y++ {
			if _, style, _ := s.Get(2, y); style.HasReverse() {
				return strings.Fields(lines[y])[0]
			}
		}
		return ""
	}
	for _, tc := range []struct {
		key  any
		want string
	}{
		{"x", "c00"}, {tcell.KeyUp, "c00"}, {tcell.KeyDown, "c01"}, {"j", "c02"}, {"k", "c01"}, {tcell.KeyPgDn, "c07"}, {tcell.KeyEnd, "c19"},
		{tcell.KeyPgUp, "c13"}, {"r", "c13"}, {"r", "c13"}, {tcell.KeyHome, "c00"},
	} {
		press(t, v, tc.key)
		if got := at(); got != tc.want {
			t.Errorf("%v: on %q, want %s", tc.key, got, tc.want)
		}
	}
	// The cursor stays on its cluster, and near its place when the cluster is gone.
	press(t, v, tcell.KeyDown, tcell.KeyDown)
	uses = uses[1:]
	v.take(interval(uses...))
	if got := at(); got != "c02" {
		t.Errorf("one above is gone: on %s", got)
	}
	uses = append(uses[:1:1], uses[2:]...)
	v.take(interval(uses...))
	if got := at(); got != "c03" {
		t.Errorf("it is gone: on %s", got)
	}
	v.take(interval())
	if got := look(v, s)[firstRow]; got != "no clusters: cosched create NAME --home SPEC makes one" {
		t.Errorf("%q", got)
	}
	press(t, v, tcell.KeyDown, tcell.KeyEnter)
	if v.detail {
		t.Error("shows no cluster by CPU")
	}
}

func TestDetail(t *testing.T) {
	s := screen(t, 80, 24)
	v := newView(&tape{}, Options{Order: 1})
	v.take(several())
	press(t, v, tcell.KeyEnter)
	lines := look(v, s)
	for y, want := range map[int]string{
		4:  "shop  /shop",
		5:  "home 0-3, asked for 0-3; weights 4:1000; 7 threads",
		6:  "4.00 CPUs used, 96.0 % at home",
		11: "  0 0-3             4    4.00    0.00   0.0  __ ██ __ __",
		13: "  2 8-11            0    4.00    0.00   2.0  ▄▄ .. .. ..",
	} {
		if lines[y] != want {
			t.Errorf("line %d is\n%q, want\n%q", y, lines[y], want)
		}
	}
	// The view stays on the cluster while others are sorted before it, and when it is removed.
	now := interval(use("a", 9), use("shop", 1))
	now.Clusters[1].State = sample.StateRemoved
	v.take(now)
	for range 2 * lingers {
		if got := look(v, s)[4]; got != "shop was removed" {
			t.Fatalf("%q", got)
		}
		v.take(interval(use("a", 9)))
	}
	press(t, v, tcell.KeyEscape)
	if got := names(look(v, s)); !strings.HasPrefix(got, "a") {
		t.Error(got)
	}
	// With 300 CPUs in one domain, several lines.
	small := screen(t, 80, 12)
	now = interval(use("a", 9))
	now.LLCs = now.LLCs[:1]
	now.LLCs[0].CPUs = nil
	for cpu := range 300 {
		now.LLCs[0].CPUs = append(now.LLCs[0].CPUs, cpu)
	}
	v.take(now)
	press(t, v, tcell.KeyEnter, tcell.KeyEnd, tcell.KeyPgDn, tcell.KeyDown)
	if lines := look(v, small); len([]rune(lines[10])) != 45+300%35 {
		t.Errorf("the last line is %q", lines[10])
	}
}

// A removed cluster is shown for a while, a new one is marked.
func TestRemoved(t *testing.T) {
	s := screen(t, 80, 24)
	v := newView(&tape{}, Options{})
	now := interval(use("a", 1), use("b", 1), use("c", 1))
	now.Clusters[0].State, now.Clusters[1].State = sample.StateRemoved, sample.StateNew
	v.take(now)
	for i := range lingers + 1 {
		lines := look(v, s)
		if got := names(lines); (got == "c -a" || got == "+b c -a") != (i < lingers) {
			t.Errorf("after %d: %s", i, got)
		}
		if i == 0 && !strings.Contains(lines[firstRow+2], "removed") {
			t.Error(lines[firstRow+2])
		}
		v.take(interval(use("c", 1)))
	}
}

// Every screen fits at every size: nothing is drawn outside, and nothing panics.
func TestSizes(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {19, 3}, {20, 4}, {40, 8}, {80, 24}, {81, 25}, {300, 100}} {
		s := screen(t, size[0], size[1])
		for _, now := range []*sample.Interval{{}, interval(), several()} {
			v := newView(&tape{kept: true}, Options{})
			v.take(now)
			for _, k := range []any{"x", tcell.KeyRight, tcell.KeyDown, "?", "x", "/", "p", tcell.KeyEnter, tcell.KeyEnter, tcell.KeyPgDn, tcell.KeyPgUp, tcell.KeyEscape, tcell.KeyEscape} {
				press(t, v, k)
				if lines := look(v, s); len(lines) != size[1] {
					t.Errorf("%v: %d lines", size, len(lines))
				}
			}
		}
	}
	// The whole help fits on a screen of 80 x 24.
	s := screen(t, 80, 24)
	v := newView(&tape{kept: true}, Options{})
	press(t, v, "?")
	lines := look(v, s)
	if !strings.Contains(strings.Join(lines, ""), "a cluster that is new") {
		t.Error("the help is cut")
	}
}

func TestTime(t *testing.T) {
	src := &tape{kept: true}
	for i := range 200 {
		src.all = append(src.all, interval(use("a", float64(i))))
	}
	v := newView(src, Options{})
	for _, tc := range []struct {
		key    string
		at     int
		paused bool
	}{
		{" ", 0, true}, {" ", 0, false}, {">", 60, false}, {".", 61, true}, {",", 60, true}, {">", 120, true}, {"<", 60, true}, {"G", 199, true}, {".", 199, true}, {"g", 0, true}, {",", 0, true},
	} {
		press(t, v, tc.key)
		if src.at != tc.at || v.paused != tc.paused {
			t.Errorf("%q: at %d, paused %v, want %d, %v", tc.key, src.at, v.paused, tc.at, tc.paused)
		}
	}
	press(t, v, "+", "+", "-")
	if src.pace != 1 {
		t.Errorf("pace %d", src.pace)
	}
	// A source that is not kept cannot go back.
	src.kept = false
	press(t, v, "G", ".", "<")
	if src.at != 0 {
		t.Errorf("at %d", src.at)
	}
}

// The loop shows the intervals, handles keys, and ends.
func TestLoop(t *testing.T) {
	for _, end := range []struct {
		name string
		key  *tcell.EventKey
	}{{"q", tcell.NewEventKey(tcell.KeyRune, "q", 0)}, {"Ctrl-C", tcell.NewEventKey(tcell.KeyCtrlC, "", 0)}} {
		s := screen(t, 80, 24)
		src := &tape{all: []*sample.Interval{{}, several(), several()}, kept: true}
		s.EventQ() <- tcell.NewEventKey(tcell.KeyRune, ".", 0)
		s.EventQ() <- end.key
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		if err := loop(ctx, s, src, Options{}); err != nil || ctx.Err() != nil || src.at != 2 {
			t.Errorf("%s: %v, %v, at %d", end.name, err, ctx.Err(), src.at)
		}
		stop()
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	src := &tape{all: []*sample.Interval{{}, several()}, err: errors.New("removed"), kept: true}
	s := screen(t, 80, 24)
	s.EventQ() <- tcell.NewEventKey(tcell.KeyRune, ".", 0)
	if err := loop(ctx, s, src, Options{}); !errors.Is(err, src.err) {
		t.Errorf("a source that fails: %v", err)
	}
	src = &tape{all: []*sample.Interval{{}, several()}}
	if err := loop(ctx, screen(t, 80, 24), src, Options{Count: 1}); err != nil || src.at != 1 {
		t.Errorf("one interval: %v, at %d", err, src.at)
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.04: "0", 0.06: "0.1", 9.94: "9.9", 9.96: "10", 9999: "9999", 9999.6: "10k", 999_400: "999k", 999_501: "1M", 5e8: "500M"} {
		if got := short(n); got != want {
			t.Errorf("%v is %s, want %s", n, got, want)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	b.Setenv("LC_ALL", "C.UTF-8")
	s, err := tcell.NewTerminfoScreenFromTty(vt.NewMockTerm(vt.MockOptSize{X: 160, Y: 50}), tcell.OptSanitizeContent(true))
	if err != nil || s.Init() != nil {
		b.Fatal(err)
	}
	defer s.Fini()
	var uses []sample.Use
	for i := range 1000 {
		uses = append(uses, use(fmt.Sprintf("cluster%04d", i), float64(i%100)))
	}
	v := newView(&tape{}, Options{Order: 1})
	now := interval(uses...)
	v.take(now)
	b.ReportAllocs()
	for b.Loop() {
		v.draw(s)
	}
}
