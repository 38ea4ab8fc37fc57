package top

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/gdamore/tcell/v3"

	"cosched.io/cosched/internal/sample"
)

func interrupts() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// lingers is the number of intervals for which a removed cluster is still shown.
const lingers = 5

// view is the state of what is shown.
type view struct {
	src Source
	now *sample.Interval

	filter  string
	order   int
	reverse bool
	paused  bool
	editing bool // the user is typing the filter
	help    bool
	detail  bool // show one cluster by CPU

	selected string // path of the cluster that the cursor stays on, once the cursor was moved
	cursor   int    // index of the cursor in the list
	top      int    // first line shown of the list, or of the cluster by CPU
	left     int    // first LLC domain of the heat map
	page     int    // lines of the list that fit, when it was last drawn

	failed error // an error of reading while drawing

	gone   map[string]*ghost
	shown  int  // intervals that had rates
	retime bool // the time until the next step changed
}

// ghost is a removed cluster, with its last figures.
type ghost struct {
	sample.Use
	left int // for how many more intervals it is shown
}

func newView(src Source, o Options) *view {
	return &view{src: src, now: &sample.Interval{}, filter: o.Filter, order: o.Order, reverse: o.Reverse, gone: map[string]*ghost{}}
}

// take shows another interval.
func (v *view) take(now *sample.Interval) {
	for path, g := range v.gone {
		if g.left--; g.left == 0 && !(v.detail && path == v.selected) {
			delete(v.gone, path)
		}
	}
	for _, u := range now.Clusters {
		delete(v.gone, u.Path)
		if u.State == sample.StateRemoved {
			v.gone[u.Path] = &ghost{u, lingers}
		}
	}
	v.now = now
	if now.Seconds > 0 {
		v.shown++
	}
}

// load reads the load of a cluster that is drawn.
func (v *view) load(u *sample.Use) {
	if err := v.src.Load(u); err != nil && v.failed == nil {
		v.failed = err
	}
}

// step goes n intervals on, or back if n is negative.
func (v *view) step(n int) error {
	now, err := v.src.Step(n)
	if err == nil && now != nil {
		if n != 1 {
			clear(v.gone)
		}
		v.take(now)
	}
	return err
}

// list gives the clusters that are shown, in order, with those removed recently at the end.
func (v *view) list() []*sample.Use {
	list := v.now.Select(v.filter, v.order, v.reverse)
	list = slices.DeleteFunc(list, func(u *sample.Use) bool { return u.State == sample.StateRemoved })
	var ghosts sample.Interval
	for _, path := range slices.Sorted(maps.Keys(v.gone)) {
		ghosts.Clusters = append(ghosts.Clusters, v.gone[path].Use)
	}
	return append(list, ghosts.Select(v.filter, v.order, v.reverse)...)
}

// place puts the cursor on the selected cluster, or leaves it where it was if that cluster is gone.
func (v *view) place(list []*sample.Use) {
	for i, u := range list {
		if u.Path == v.selected {
			v.cursor = i
			return
		}
	}
	v.cursor = max(0, min(v.cursor, len(list)-1))
	if !v.detail {
		v.selected = ""
	}
}

// move moves the cursor, or scrolls the cluster by CPU.
func (v *view) move(by int) {
	if v.detail {
		v.top = max(0, v.top+by)
		return
	}
	list := v.list()
	v.place(list)
	if len(list) > 0 {
		v.cursor = max(0, min(v.cursor+by, len(list)-1))
		v.selected = list[v.cursor].Path
	}
}

// key handles a key, and reports whether it ends the view.
func (v *view) key(ev *tcell.EventKey) (done bool, err error) {
	if ev.Key() == tcell.KeyCtrlC {
		return true, nil
	}
	if v.editing {
		v.edit(ev)
		return false, nil
	}
	if v.help {
		v.help = false // any key
		return false, nil
	}
	switch ev.Key() {
	case tcell.KeyUp:
		v.move(-1)
	case tcell.KeyDown:
		v.move(1)
	case tcell.KeyPgUp:
		v.move(-v.page)
	case tcell.KeyPgDn:
		v.move(v.page)
	case tcell.KeyHome:
		v.move(-1 << 30)
	case tcell.KeyEnd:
		v.move(1 << 30)
	case tcell.KeyLeft:
		v.left = max(0, v.left-1)
	case tcell.KeyRight:
		v.left++
	case tcell.KeyEnter:
		list := v.list()
		v.place(list)
		if !v.detail && len(list) > 0 {
			v.detail, v.top, v.selected = true, 0, list[v.cursor].Path
		}
	case tcell.KeyEscape, tcell.KeyBackspace:
		if v.detail {
			v.detail, v.top = false, 0
		} else {
			v.filter = ""
		}
	case tcell.KeyRune:
		return v.letter(ev.Str())
	}
	return false, nil
}

// seek is how many intervals < and > go: a minute at the default pace.
const seek = 60

func (v *view) letter(s string) (done bool, err error) {
	switch s {
	case "q":
		return true, nil
	case "?", "h":
		v.help = true
	case "k":
		v.move(-1)
	case "j":
		v.move(1)
	case "s":
		v.order = (v.order + 1) % len(sample.Orders)
	case "S":
		v.order = (v.order + len(sample.Orders) - 1) % len(sample.Orders)
	case "r":
		v.reverse = !v.reverse
	case "/":
		v.editing = !v.detail
	case " ":
		v.paused = !v.paused
	case "+":
		v.src.Pace(true)
		v.retime = true
	case "-":
		v.src.Pace(false)
		v.retime = true
	case ".", ",", "<", ">", "g", "G":
		if !v.src.Kept() {
			return false, nil
		}
		n := map[string]int{".": 1, ",": -1, "<": -seek, ">": seek, "g": -1 << 30, "G": 1 << 30}[s]
		if s == "." || s == "," {
			v.paused = true
		}
		v.retime = true
		return false, v.step(n)
	}
	return false, nil
}

// edit handles a key while the filter is typed. The filter takes effect at once.
func (v *view) edit(ev *tcell.EventKey) {
	switch ev.Key() {
	case tcell.KeyEnter:
		v.editing = false
	case tcell.KeyEscape:
		v.editing, v.filter = false, ""
	case tcell.KeyBackspace:
		if r := []rune(v.filter); len(r) > 0 {
			v.filter = string(r[:len(r)-1])
		}
	case tcell.KeyRune:
		v.filter += ev.Str()
	}
}
