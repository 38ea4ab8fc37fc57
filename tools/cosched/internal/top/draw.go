package top

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

// Ramps of characters for shares, from almost nothing to everything. The digits are tenths, for
// terminals that can only show ASCII.
var (
	blocks = []rune("▁▂▃▄▅▆▇█")
	digits = []rune("123456789")
)

// canvas draws on a screen. The character of a cell carries the information. Colours, if the
// terminal has them and NO_COLOR is not set, only make it easier to find.
type canvas struct {
	tcell.Screen
	width, height int
	ramp          []rune
	colours       bool
}

func newCanvas(s tcell.Screen) canvas {
	c := canvas{Screen: s, ramp: digits, colours: s.Colors() > 0}
	c.width, c.height = s.Size()
	if set := strings.ReplaceAll(strings.ToUpper(s.CharacterSet()), "-", ""); set == "UTF8" {
		c.ramp = blocks
	}
	return c
}

var (
	plain   = tcell.StyleDefault
	bar     = plain.Reverse(true)
	strong  = plain.Bold(true)
	faint   = plain.Dim(true)
	inHome  = plain.Foreground(color.Green)
	outside = plain.Foreground(color.Yellow)
	far     = plain.Foreground(color.Red)
)

// text draws a text in a line from x on, clipped to the width, and gives the column after it.
func (c canvas) text(x, y int, style tcell.Style, format string, args ...any) int {
	s := cosched.Printable(fmt.Sprintf(format, args...))
	for s != "" && x < c.width {
		rest, width := c.Put(x, y, s, style)
		if len(rest) == len(s) {
			break
		}
		s, x = rest, x+max(1, width)
	}
	return x
}

// fill draws a text in a line, and gives the whole width of the line one style.
func (c canvas) fill(y int, style tcell.Style, format string, args ...any) {
	for x := c.text(0, y, style, format, args...); x < c.width; x++ {
		c.Put(x, y, " ", style)
	}
}

// fit shortens or pads a text to a width. It keeps the end of the text, as the end of a name says
// more than its beginning.
func fit(s string, width int) string {
	n := utf8.RuneCountInString(s)
	switch {
	case n <= width:
		return s + strings.Repeat(" ", width-n)
	case width <= 1:
		return strings.Repeat(" ", width)
	}
	r := []rune(s)
	return "~" + string(r[n-width+1:])
}

// share draws a cell of a heat map: how much of a domain or a CPU is used. An underscore is home that
// is not used. A dot is neither used nor home.
func (c canvas) share(x, y, width int, used float64, home bool) {
	r, style := '.', faint
	switch {
	case used > little:
		r = c.step(used)
		switch {
		case home:
			style = inHome
		case used >= 0.5:
			style = far
		default:
			style = outside
		}
	case home:
		r, style = '_', inHome
	}
	if !c.colours {
		style = plain.Underline(home).Bold(!home && r != '.')
	}
	// A wide column has a gap before the next one.
	for i := range max(1, width-1) {
		c.Put(x+i, y, string(r), style)
	}
}

// little is the share up to which a cell is shown as not used: load that still decays after a thread
// has left.
const little = 0.005

// step gives the character of a share that is more than little.
func (c canvas) step(share float64) rune {
	level := int(share*float64(len(c.ramp)) + 0.5)
	return c.ramp[max(1, min(level, len(c.ramp)))-1]
}

func (v *view) draw(s tcell.Screen) {
	s.Clear()
	s.HideCursor()
	c := newCanvas(s)
	if c.width < 20 || c.height < 4 {
		c.text(0, 0, plain, "too small")
		return
	}
	list := v.list()
	v.place(list)
	v.drawHead(c)
	switch {
	case v.help:
		v.drawHelp(c)
	case v.detail:
		v.drawDetail(c, list)
	default:
		v.drawList(c, list)
	}
	v.drawFoot(c)
}

// drawHead draws the title line, and the figures of all clusters together.
func (v *view) drawHead(c canvas) {
	state := ""
	if v.paused {
		state = "  PAUSED"
	}
	when := ""
	if !v.now.Time.IsZero() {
		when = v.now.Time.Local().Format("15:04:05 MST")
	}
	c.fill(0, bar, " %s  %s  %s%s", v.src.Title(), when, v.src.Position(), state)
	if v.now.Seconds == 0 {
		c.text(0, 1, plain, "%d clusters; rates are shown with the next sample", len(v.now.Clusters))
		return
	}
	t := &v.now.Total
	c.text(0, 1, plain, "%.1f of %d CPUs used by clusters, %s %% of it at home; %.1f CPUs idle", t.CPU, len(v.now.CPUs), t.HomeText(), v.now.IdleCPUs)
	c.text(0, 2, plain, "/s: woken at home %s, spilled %s, overflowed %s; returned %s, out %s",
		short(t.Wakeups), short(t.Spilled), short(t.Overflowed), short(t.Returned+t.Swapped), short(t.Pushed+t.Pulled))
}

// firstRow is the line where the list begins. The line above it shows how idle each domain is, and
// the line above that the names of the columns.
const firstRow = 5

// columns are the columns between the name and the heat map.
var columns = []struct {
	name  string
	width int
	order string // name in sample.Orders; the column is marked if it is sorted by that
	value func(*sample.Use) string
}{
	{"HOME", 9, "", func(u *sample.Use) string { return u.Home.String() }},
	{"THR", 5, "threads", func(u *sample.Use) string { return fmt.Sprint(u.Threads) }},
	{"CPUS", 6, "cpu", func(u *sample.Use) string { return fmt.Sprintf("%.1f", u.CPU) }},
	{"HOME%", 6, "home", (*sample.Use).HomeText},
	{"SPILL", 6, "spilled", func(u *sample.Use) string { return short(u.Spilled + u.Overflowed) }},
	{"RET", 5, "returned", func(u *sample.Use) string { return short(u.Returned + u.Swapped) }},
}

// short formats a number in at most four columns.
func short(n float64) string {
	switch {
	case n < 0.05:
		return "0"
	case n < 9.95:
		return fmt.Sprintf("%.1f", n)
	case n < 9999.5:
		return fmt.Sprintf("%.0f", n)
	case n < 999_500:
		return fmt.Sprintf("%.0fk", n/1000)
	}
	return fmt.Sprintf("%.0fM", n/1e6)
}

// layout says how wide the name and each domain of the heat map are, and how many fit.
func (c canvas) layout(domains int) (name, heat, cell, fit int) {
	left := 0
	for _, col := range columns {
		left += col.width + 1
	}
	name = 14
	// The heat map gets the remaining width first, up to 4 columns for each domain; then the name.
	room := max(0, c.width-left-name-1)
	cell = 1
	if domains > 0 {
		cell = max(1, min(4, room/domains))
	}
	if extra := room - cell*domains; extra > 0 {
		name += min(extra, 26)
	}
	heat = name + 1 + left
	return name, heat, cell, max(0, (c.width-heat)/cell)
}

func (v *view) drawList(c canvas, list []*sample.Use) {
	domains := len(v.now.LLCs)
	name, heat, cell, room := c.layout(domains)
	v.left = max(0, min(v.left, domains-room))
	v.page = max(1, c.height-firstRow-1)

	// Names of the columns and domains.
	order := sample.Orders[v.order].Name
	mark := func(title, of string) string {
		if of != order {
			return title
		} else if v.reverse {
			return title + "^"
		}
		return title + "v"
	}
	c.fill(3, bar, "%s", "")
	x := c.text(0, 3, bar, "%s ", fit(mark("NAME", "name"), name))
	for _, col := range columns {
		title := mark(col.name, col.order)
		x = c.text(x, 3, bar, "%*s ", col.width, title)
	}
	for i := v.left; i < min(domains, v.left+room); i++ {
		label := fmt.Sprint(i)
		if len(label) > max(1, cell-1) { // keep the last digits
			label = label[len(label)-max(1, cell-1):]
		}
		c.text(heat+(i-v.left)*cell, 3, bar, "%s", label)
	}
	// How idle each domain is.
	c.text(0, 4, faint, "%s", fit("LLC domains, idle", heat-1))
	for i := v.left; i < min(domains, v.left+room); i++ {
		if d := v.now.LLCs[i]; len(d.CPUs) > 0 {
			c.idle(heat+(i-v.left)*cell, 4, cell, d.Idle/float64(len(d.CPUs)))
		}
	}
	if len(list) == 0 {
		c.text(0, firstRow, strong, "%s", v.now.WhyEmpty(v.filter))
		return
	}
	if v.cursor < v.top {
		v.top = v.cursor
	}
	v.top = max(0, min(max(v.top, v.cursor-v.page+1), len(list)-v.page))
	for i := v.top; i < min(len(list), v.top+v.page); i++ {
		u, y := list[i], firstRow+i-v.top
		style := plain
		if u.State == sample.StateRemoved {
			style = faint
		}
		if i == v.cursor {
			style = bar
		}
		c.text(0, y, style, "%s%s ", sign(u.State), fit(cosched.Printable(u.Name), name-1))
		// Not the column after the name, as the name may have wide characters.
		x := name + 1
		if u.State == sample.StateRemoved {
			c.text(x, y, style, "removed")
			continue
		}
		for _, col := range columns {
			text := col.value(u)
			if len(text) > col.width {
				text = fit(text, col.width)
			}
			c.text(x, y, style, "%*s ", col.width, text)
			x += col.width + 1
		}
		v.load(u)
		v.drawHeat(c, u, y, heat, cell, room)
	}
}

func (c canvas) idle(x, y, width int, idle float64) {
	r := '.'
	if idle > little {
		r = c.step(idle)
	}
	for i := range max(1, width-1) {
		c.Put(x+i, y, string(r), faint)
	}
}

func sign(s sample.State) string {
	switch s {
	case sample.StateNew:
		return "+"
	case sample.StateRemoved:
		return "-"
	}
	return " "
}

// drawHeat draws a cluster's use of each domain, as a share of its CPUs.
func (v *view) drawHeat(c canvas, u *sample.Use, y, heat, cell, room int) {
	next := 0
	for i := range v.now.LLCs {
		var l sample.LLCLoad
		if next < len(u.LLCs) && u.LLCs[next].LLC == i {
			l = u.LLCs[next]
			next++
		}
		if i < v.left || i >= v.left+room || len(v.now.LLCs[i].CPUs) == 0 {
			continue
		}
		c.share(heat+(i-v.left)*cell, y, cell, float64(l.Util)/1024/float64(len(v.now.LLCs[i].CPUs)), l.Home > 0)
	}
}

// drawDetail draws one cluster by CPU.
func (v *view) drawDetail(c canvas, list []*sample.Use) {
	var u *sample.Use
	for i := range list {
		if list[i].Path == v.selected {
			u = list[i]
		}
	}
	if u == nil { // the filter hides it, or the recording begins later
		for i := range v.now.Clusters {
			if v.now.Clusters[i].Path == v.selected && v.now.Clusters[i].State != sample.StateRemoved {
				u = &v.now.Clusters[i]
			}
		}
	}
	if u == nil {
		c.text(0, 4, strong, "%s does not exist now: Esc goes back", v.selected)
		return
	}
	v.load(u)
	lines := []func(y int){
		func(y int) {
			x := c.text(0, y, strong, "%s", u.Name)
			if u.State == sample.StateRemoved {
				c.text(x, y, strong, " was removed")
			} else {
				c.text(x, y, plain, "  %s", u.Path)
			}
		},
		func(y int) {
			c.text(0, y, plain, "home %s, asked for %s; weights %d:%d; %d threads", dash(u.Home.String()), dash(u.Asked), u.Weights[0], u.Weights[1], u.Threads)
		},
		func(y int) { c.text(0, y, plain, "%.2f CPUs used, %s %% at home", u.CPU, u.HomeText()) },
		func(y int) {
			c.text(0, y, plain, "a second: %s wakeups at home, %s spilled, %s overflowed; %s changes of home",
				short(u.Wakeups), short(u.Spilled), short(u.Overflowed), short(u.HomeChanges))
		},
		func(y int) {
			c.text(0, y, plain, "          %s strays returned, %s swapped; %s tasks pushed out, %s pulled out",
				short(u.Returned), short(u.Swapped), short(u.Pushed), short(u.Pulled))
		},
		func(int) {},
		func(y int) {
			c.fill(y, bar, "%3s %-12s %4s %7s %7s %5s  %s", "LLC", "CPUS", "HOME", "RUNNING", "WAITING", "IDLE", "BY CPU")
		},
	}
	const by = 45 // the column where the CPUs begin
	load, home := map[int]float64{}, map[int]bool{}
	for _, cpu := range u.Home {
		home[cpu] = true
	}
	for _, l := range u.Load {
		load[l.CPU], home[l.CPU] = float64(l.Util)/1024, l.Home
	}
	next := 0
	for i, d := range v.now.LLCs {
		var l sample.LLCLoad
		if next < len(u.LLCs) && u.LLCs[next].LLC == i {
			l = u.LLCs[next]
			next++
		}
		room := max(1, c.width-by)
		cell := max(1, min(3, room/max(1, len(d.CPUs))))
		per := max(1, room/cell)
		for first := 0; first == 0 || first < len(d.CPUs); first += per {
			lines = append(lines, func(y int) {
				if first == 0 {
					c.text(0, y, plain, "%3d %-12s %4d %7.2f %7.2f %5.1f", i, fit(d.CPUs.String(), 12), l.Home, float64(l.Util)/1024, waiting(l), d.Idle)
				}
				for n, cpu := range d.CPUs[first:min(first+per, len(d.CPUs))] {
					c.share(by+n*cell, y, cell, load[cpu], home[cpu])
				}
			})
		}
	}
	const first = 4
	room := max(1, c.height-first-1)
	v.page = room
	v.top = max(0, min(v.top, len(lines)-room))
	for i, line := range lines[v.top:min(len(lines), v.top+room)] {
		line(first + i)
	}
}

// waiting is how many threads waited, that is, were runnable but did not run.
func waiting(l sample.LLCLoad) float64 {
	return max(0, float64(l.Runnable)-float64(l.Util)) / 1024
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (v *view) drawFoot(c canvas) {
	y := c.height - 1
	switch {
	case v.editing:
		x := c.text(0, y, bar, "filter: %s", v.filter)
		for i := x; i < c.width; i++ {
			c.Put(i, y, " ", bar)
		}
		c.ShowCursor(x, y)
	case v.help:
		c.fill(y, bar, "any key goes back")
	case v.detail:
		c.fill(y, bar, "? help  q quit  Esc back  up/down scroll%s", v.keys())
	default:
		filter := ""
		if v.filter != "" {
			filter = fmt.Sprintf(" (%s)", v.filter)
		}
		c.fill(y, bar, "? help  q quit  Enter by CPU  s sort: %s  r reverse  / filter%s%s", sample.Orders[v.order].Name, filter, v.keys())
	}
}

func (v *view) keys() string {
	if v.src.Kept() {
		return "  space , . < >"
	}
	return "  space pause"
}

func (v *view) drawHelp(c canvas) {
	ramp := string(c.ramp)
	help := []string{
		"up down pgup pgdn j k  select a cluster      Enter  show by CPU, Esc back",
		"left right             more LLC domains      / TEXT  filter, Esc clears it",
		"s S  sort by the next or previous column     r  reverse the order",
		"space  pause           + -  faster, slower   q  quit",
	}
	if v.src.Kept() {
		help = append(help, ", .  one step back, on   < >  60 steps back, on   g G  beginning, end")
	}
	help = append(help,
		"",
		"CPUS   CPU time per second     HOME%  share of it at home     THR  threads",
		"SPILL  wakeups placed outside, on an idle CPU or in a shorter queue, a second",
		"RET    strays moved home or swapped, a second",
		"",
		"On the right, LLC domains: the share of its CPUs that the cluster runs on,",
		"  "+ramp+"  up to all of them; _ home, not used; . not home, not used.",
		"  Green: at home; yellow: outside; red: outside, half of the CPUs or more.",
		"  Without colours, home is underlined, outside is bold. Above: idle share.",
		"+ a cluster that is new   - a cluster that was removed",
	)
	for i, line := range help {
		if y := 4 + i; y < c.height-1 {
			c.text(1, y, plain, "%s", line)
		}
	}
}
