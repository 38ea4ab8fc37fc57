package demo

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// View shows a run as its events arrive. On a terminal the heat map is redrawn in
// place. Otherwise one plain line per second is printed.
type View struct {
	mu     sync.Mutex
	w      io.Writer
	term   Terminal
	report Report

	begin  *Begin
	drawn  int     // lines of the live part now on the terminal
	sample *Sample // the last one of this act
	plain  float64 // when the last plain line was printed, in seconds of the act
	status string  // what is being waited for
	since  time.Time
}

// Terminal is what the output can do.
type Terminal struct {
	Redraw bool // it is a terminal that understands cursor movement
	Color  bool // and colors are wanted
	Width  int  // columns; 0 for unlimited
}

// NewView makes a view on w.
func NewView(w io.Writer, t Terminal) *View { return &View{w: w, term: t} }

// Status shows what is being waited for. On a terminal, the time beside it counts up
// with each Tick, until the next Status or the next event.
func (v *View) Status(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.setStatus(fmt.Sprintf(format, args...))
}

func (v *View) setStatus(s string) {
	v.status, v.since = s, time.Now()
	if v.term.Redraw {
		v.draw()
	} else if s != "" {
		v.print(s)
	}
}

// Tick brings the time beside the status up to date.
func (v *View) Tick() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.term.Redraw && v.status != "" {
		v.draw()
	}
}

func (v *View) print(lines ...string) {
	v.erase()
	for _, l := range lines {
		fmt.Fprintln(v.w, l)
	}
}

// erase takes the live part off the terminal.
func (v *View) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

// draw replaces the live part.
func (v *View) draw() {
	var lines []string
	if v.sample != nil {
		lines = append(v.heatMap(v.sample.Rows),
			fmt.Sprintf("  %4.1f of %d CPUs busy, %.0f s", v.sample.Busy, v.report.Hello.CPUs, v.sample.Seconds))
	}
	if v.status != "" {
		lines = append(lines, fmt.Sprintf("  %s ... %d s", v.status, int(time.Since(v.since).Seconds())))
	}
	// One write, so that the terminal does not show it half erased.
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", v.drawn)
	}
	for _, l := range lines {
		// A line that wraps would be two lines, and the next erase would miss one.
		b.WriteString(clip(l, v.term.Width) + "\n")
	}
	v.drawn = len(lines)
	io.WriteString(v.w, b.String())
}

// Event takes in one event and shows it.
func (v *View) Event(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status = ""
	switch {
	case e.Hello != nil:
		if v.report.Hello.Acts > 0 {
			// The guest failed because of the emulator, and runs again from
			// the start. What was printed about that must not be erased.
			v.drawn = 0
			v.print("", "The guest was started again.")
		}
		v.report = Report{Hello: *e.Hello}
		v.print(fmt.Sprintf("Linux %s runs: %d CPUs in %d LLC domains (%s).", e.Hello.Kernel, e.Hello.CPUs,
			len(e.Hello.LLCs), strings.Join(e.Hello.LLCs, ", ")),
			"The CPUs are emulated: the figures show where threads run, not how fast.", "")
	case e.Begin != nil:
		v.begin, v.sample, v.plain = e.Begin, nil, 0
		v.print(v.bold(fmt.Sprintf("Act %d of %d: %s", e.Begin.N, v.report.Hello.Acts, e.Begin.Title)))
		v.print(wrap("To be seen: "+e.Begin.See, "  ", v.columns())...)
	case e.Cmd != "":
		v.print("  # " + e.Cmd)
	case e.Note != "":
		// Without a terminal, the lines of the heat map are enough.
		if v.term.Redraw {
			v.setStatus(e.Note)
		}
	case e.Sample != nil:
		v.showSample(e.Sample)
	case e.Result != nil:
		v.report.Acts = append(v.report.Acts, *e.Result)
		v.print(v.heatMap(e.Result.Rows)...)
		for _, c := range e.Result.Checks {
			v.print(v.checkLine(c))
		}
		v.print("")
		v.begin, v.sample = nil, nil
	case e.Error != "":
		v.report.Error = e.Error
	}
}

// plainInterval is the time between plain lines, in seconds. Samples come several
// times a second, which would be too many lines in a log.
const plainInterval = 1.0

func (v *View) showSample(s *Sample) {
	v.sample = s
	if v.term.Redraw {
		v.draw()
		return
	}
	if s.Seconds < v.plain+plainInterval {
		return
	}
	v.plain = s.Seconds
	line := fmt.Sprintf("  %5.1f s  %4.1f CPUs busy", s.Seconds, s.Busy)
	for _, r := range s.Rows {
		line += "  " + r.Cluster
		if r.Share == nil {
			line += " -"
		}
		for _, p := range r.Share {
			line += fmt.Sprintf(" %3.0f", p)
		}
		if r.Share != nil {
			line += " %"
		}
	}
	v.print(line)
}

// Finish prints the final table and the checks that failed, and gives the report. err
// is what kept the guest from reporting, if anything did.
func (v *View) Finish(err error) Report {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status, v.sample = "", nil
	v.erase()
	r := &v.report
	if r.Error == "" && err != nil {
		r.Error = err.Error()
	}
	if r.Error == "" && len(r.Acts) != r.Hello.Acts {
		r.Error = fmt.Sprintf("the guest played %d of %d acts", len(r.Acts), r.Hello.Acts)
	}
	if len(r.Acts) > 0 {
		v.print(v.table()...)
	}
	shown := 0
	var differed []string
	for _, a := range r.Acts {
		if a.OK {
			shown++
		}
		for _, c := range a.Checks {
			if !c.OK {
				differed = append(differed, fmt.Sprintf("  act %d: %s: %s, expected %s (%s)", a.N, c.What, c.Got, c.Want, c.Source))
			}
		}
	}
	if len(r.Acts) > 0 {
		v.print("", fmt.Sprintf("%d of %d acts showed what they promise.", shown, r.Hello.Acts))
	}
	if len(differed) > 0 {
		v.print("What differed:")
		v.print(differed...)
	}
	if r.Error != "" {
		v.print("The demonstration stopped: " + r.Error)
	}
	r.OK = r.Error == "" && shown == r.Hello.Acts && shown > 0
	return *r
}

func (v *View) checkLine(c Check) string {
	return fmt.Sprintf("  %s %s: %s, expected %s (%s)", v.mark(c.OK), c.What, c.Got, c.Want, c.Source)
}

const (
	nameWidth = 7
	homeWidth = 7
	cellWidth = 12
)

// heatMap gives the lines of clusters by LLC domains, with a heading and the source.
func (v *View) heatMap(rows []Row) []string {
	if len(rows) == 0 {
		return nil
	}
	when := whenWidth(rows)
	lines := append([]string{v.heatHead(when)}, v.heatRows(rows, when)...)
	return append(lines, "  "+strings.Repeat(" ", nameWidth+when+homeWidth)+"share of its CPU time, from "+sources(rows))
}

// whenWidth is the width of the column that names the part of an act.
func whenWidth(rows []Row) int {
	width := 0
	for _, r := range rows {
		if r.When != "" {
			width = max(width, utf8.RuneCountInString(r.When)+2)
		}
	}
	return width
}

// sources names the files that rows were read from.
func sources(rows []Row) string {
	var all []string
	for _, r := range rows {
		if !slices.Contains(all, r.Source) {
			all = append(all, r.Source)
		}
	}
	return strings.Join(all, ", ")
}

func (v *View) heatHead(when int) string {
	head := "  " + pad("", nameWidth+when) + pad("home", homeWidth)
	for i, cpus := range v.report.Hello.LLCs {
		head += pad(fmt.Sprintf("llc%d %s", i, cpus), cellWidth)
	}
	return strings.TrimRight(head, " ")
}

func (v *View) heatRows(rows []Row, when int) []string {
	var lines []string
	for _, r := range rows {
		home := r.Home
		if home == "" {
			home = "none"
		}
		line := "  " + pad(r.Cluster, nameWidth) + pad(r.When, when) + pad(home, homeWidth)
		for i := range v.report.Hello.LLCs {
			if i < len(r.Share) {
				line += v.cell(r.Share[i]) + " "
			} else {
				line += pad("    -", cellWidth)
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// table gives the final heat map of all acts, under one heading.
func (v *View) table() []string {
	var rows []Row
	for _, a := range v.report.Acts {
		rows = append(rows, a.Rows...)
	}
	when := whenWidth(rows)
	lines := []string{v.bold("Share of each cluster's CPU time by LLC domain"), v.heatHead(when)}
	for _, a := range v.report.Acts {
		lines = append(lines, fmt.Sprintf("%s %d %s (%s)", v.mark(a.OK), a.N, a.Title, sources(a.Rows)))
		lines = append(lines, v.heatRows(a.Rows, when)...)
	}
	return lines
}

// heat is the background of a cell, from cold to hot, in the palette of 256 colors.
var heat = [...]int{236, 52, 52, 88, 88, 124, 124, 160, 196, 202, 208}

// cell formats a percentage in cellWidth-1 columns, as a shade and as a number.
func (v *View) cell(p float64) string {
	// Round as the number is printed, so that equal numbers have the same shade.
	p = math.Round(min(100, max(0, p)))
	num := fmt.Sprintf("%3.0f %%", p)
	if v.term.Color {
		level, text := int(p)/10, 231
		if level >= 9 {
			text = 16 // black on the brightest
		}
		return fmt.Sprintf("\x1b[48;5;%d;38;5;%dm  %s\x1b[0m", heat[level], text, pad(num, cellWidth-1-2))
	}
	shade := "·"
	switch {
	case p >= 75:
		shade = "█"
	case p >= 50:
		shade = "▓"
	case p >= 25:
		shade = "▒"
	case p >= 1:
		shade = "░"
	}
	return strings.Repeat(shade, cellWidth-1-1-len(num)) + " " + num
}

func (v *View) mark(ok bool) string {
	m, color := "✗", 31
	if ok {
		m, color = "✓", 32
	}
	if v.term.Color {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, m)
	}
	return m
}

func (v *View) bold(s string) string {
	if v.term.Color {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

// columns is the width that text is wrapped to.
func (v *View) columns() int {
	if v.term.Width > 0 && v.term.Width < 80 {
		return v.term.Width
	}
	return 80
}

func pad(s string, width int) string {
	if n := width - utf8.RuneCountInString(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// clip cuts a line to a number of columns, not counting escape sequences.
func clip(s string, width int) string {
	if width <= 0 {
		return s
	}
	n, escape := 0, false
	for i, r := range s {
		switch {
		case escape:
			escape = r != 'm'
		case r == '\x1b':
			escape = true
		case n == width:
			return s[:i] + "\x1b[0m"
		default:
			n++
		}
	}
	return s
}

// wrap breaks text at blanks into lines with at most the given number of columns.
func wrap(text, indent string, columns int) []string {
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		if line != indent && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			lines = append(lines, line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
