package detect

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"cosched.io/cosched"
)

// Print writes the groups, what they share, and the matrix sorted by group.
func (r *Report) Print(w io.Writer, width int) {
	m := r.Matrix
	if r.Why != "" {
		fmt.Fprintf(w, "No groups: %s.\n", r.Why)
	} else {
		fmt.Fprintf(w, "%d groups of %d threads.\n", len(r.Groups), len(m.Threads)-len(r.Alone))
	}
	if len(m.Threads) == 0 {
		return
	}
	fmt.Fprintf(w, "Modularity %.3f; by chance %.3f, standard deviation %.4f.", r.Modularity, r.Null.Mean, r.Null.Deviation)
	fmt.Fprintf(w, " The halves of the time agree by %.2f (adjusted Rand index).\n", r.Agreement)
	if len(r.Groups) > 0 {
		fmt.Fprintln(w)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprint(table, "GROUP\tTHREADS\tINSIDE %\tIN/OUT\tNAMES\tTIDS\n")
		for i, g := range r.Groups {
			ratio := "-"
			if g.Ratio != nil {
				ratio = fmt.Sprintf("%.1f", *g.Ratio)
			}
			fmt.Fprintf(table, "%d\t%d\t%.1f\t%s\t%s\t%s\n", i+1, len(g.Threads), 100*g.Inside, ratio, names(g.Threads), tids(g.Threads))
		}
		if len(r.Alone) > 0 {
			fmt.Fprintf(table, "none\t%d\t\t\t%s\t%s\n", len(r.Alone), names(r.Alone), tids(r.Alone))
		}
		table.Flush()
		r.groupTable(w)
	}
	fmt.Fprintln(w)
	r.heatMap(w, width)
}

// names lists the names of threads, the most frequent first.
func names(threads []Thread) string {
	count := map[string]int{}
	var list []string
	for _, t := range threads {
		name := cosched.Printable(t.Name)
		if count[name]++; count[name] == 1 {
			list = append(list, name)
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return count[b] - count[a] })
	const most = 3
	if len(list) > most {
		return strings.Join(list[:most], ",") + ",..."
	}
	return strings.Join(list, ",")
}

// tids lists the numbers of threads in the form in which CPUs are listed.
func tids(threads []Thread) string {
	var set cosched.CPUs
	for _, t := range threads {
		set = append(set, t.TID)
	}
	slices.Sort(set)
	return set.String()
}

// groupTable writes what groups share with each other, like the paper's Table 6.
func (r *Report) groupTable(w io.Writer) {
	if len(r.Groups) > 16 { // wider than most screens
		return
	}
	fmt.Fprint(w, "\nShared by the threads of two groups, and inside of each:\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "GROUP\t")
	for i := range r.Groups {
		fmt.Fprintf(table, "%d\t", i+1)
	}
	fmt.Fprintln(table)
	for i, a := range r.Groups {
		fmt.Fprintf(table, "%d\t", i+1)
		for _, b := range r.Groups {
			sum := 0.0
			for _, x := range a.members {
				for _, y := range b.members {
					sum += r.Matrix.Shared[x][y]
				}
			}
			fmt.Fprintf(table, "%.0f\t", sum)
		}
		fmt.Fprintln(table)
	}
	table.Flush()
}

// ordered returns what the threads share, in the order of the groups.
func (r *Report) ordered() [][]float64 {
	w := square(len(r.order))
	for i, a := range r.order {
		for j, b := range r.order {
			w[i][j] = r.Matrix.Shared[a][b]
		}
	}
	return w
}

// heatMap writes the matrix with one or two characters for each pair of threads, or for
// several pairs if it would not fit otherwise.
func (r *Report) heatMap(w io.Writer, width int) {
	const shades = " ░▒▓█"
	full := r.ordered()
	n := len(full)
	const label = 7
	wide := 2 // makes a cell about as wide as it is high
	if 2*n+label > width {
		wide = 1
	}
	cells := max(1, min(n, (width-label)/wide))
	sum, pairs := square(cells), square(cells)
	most := 0.0
	for i := range n {
		for j := range n {
			if i == j {
				continue
			}
			a, b := i*cells/n, j*cells/n
			sum[a][b] += full[i][j]
			pairs[a][b]++
			most = max(most, sum[a][b]/pairs[a][b])
		}
	}
	most = 0
	for a := range cells {
		for b := range cells {
			if pairs[a][b] > 0 {
				sum[a][b] /= pairs[a][b]
				most = max(most, sum[a][b])
			}
		}
	}
	fmt.Fprintf(w, "%*s┌%s┐\n", label-2, "", strings.Repeat("─", wide*cells))
	at := -1
	for a := range cells {
		group := ""
		if g := r.groupAt(a * n / cells); g != at {
			if at = g; g < len(r.Groups) {
				group = fmt.Sprint(g + 1)
			}
		}
		fmt.Fprintf(w, "%*s│", label-2, group+" ")
		for b := range cells {
			shade := ' '
			if sum[a][b] > 0 {
				// Whatever is shared is visible.
				shade = []rune(shades)[1+min(3, int(4*sum[a][b]/most))]
			}
			fmt.Fprint(w, strings.Repeat(string(shade), wide))
		}
		fmt.Fprintln(w, "│")
	}
	fmt.Fprintf(w, "%*s└%s┘\n", label-2, "", strings.Repeat("─", wide*cells))
	fmt.Fprintf(w, "%*s█ a pair of threads shares up to %.0f", label-2, "", most)
	if cells < n {
		fmt.Fprint(w, " on average")
	}
	fmt.Fprintln(w)
}

// groupAt returns the group of a position in the order.
func (r *Report) groupAt(place int) int {
	g, _ := slices.BinarySearch(r.ends, place+1)
	return g
}

// grid is the matrix as a plot needs it, with the first row at the top.
type grid [][]float64

func (g grid) Dims() (c, r int)   { return len(g), len(g) }
func (g grid) X(c int) float64    { return float64(c) }
func (g grid) Y(r int) float64    { return float64(r) }
func (g grid) Z(c, r int) float64 { return g[len(g)-1-r][c] }

// plotFormats are the formats of Plot.
var plotFormats = []string{".png", ".svg"}

// CanPlot reports whether a file's name has the extension of a format that Plot writes.
func CanPlot(file string) bool { return slices.Contains(plotFormats, filepath.Ext(file)) }

// Plot writes the matrix as a heat map, like the paper's Figure 1.
func (r *Report) Plot(w io.Writer, format string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("What %d threads share", len(r.order))
	if n := len(r.Groups); n > 0 {
		p.Title.Text += fmt.Sprintf(", in %d groups", n)
	}
	p.X.Label.Text, p.Y.Label.Text = "thread, by group", "thread, by group"
	if len(r.order) > 0 {
		h := plotter.NewHeatMap(grid(r.ordered()), moreland.ExtendedBlackBody().Palette(255))
		if h.Max == h.Min { // otherwise there is no scale
			h.Max++
		}
		h.NaN = color.Black
		p.Add(h)
	}
	var ticks, down []plot.Tick
	begin := 0
	for i, end := range r.ends {
		at := float64(begin+end-1) / 2
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprint(i + 1)})
		down = append(down, plot.Tick{Value: float64(len(r.order)-1) - at, Label: fmt.Sprint(i + 1)})
		begin = end
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(ticks), plot.ConstantTicks(down)
	c, err := p.WriterTo(6*vg.Inch, 6*vg.Inch, strings.TrimPrefix(format, "."))
	if err != nil {
		return err
	}
	_, err = c.WriteTo(w)
	return err
}

// View is a report with its matrix, in the order of the groups, in the form that is written
// as JSON.
type View struct {
	*Report
	Seldom  []Thread    `json:"seldom"` // seen too seldom to be in the matrix
	Threads []Thread    `json:"threads"`
	Shared  [][]float64 `json:"shared"`
}

// View returns the report in the form that is written as JSON.
func (r *Report) View() View {
	v := View{r, append([]Thread{}, r.Matrix.Seldom...), []Thread{}, r.ordered()}
	for _, i := range r.order {
		v.Threads = append(v.Threads, r.Matrix.Threads[i])
	}
	return v
}

// PrintChanges writes which threads went to which cluster.
func PrintChanges(w io.Writer, changes []Change) {
	byWay := map[[2]int][]Thread{}
	var ways [][2]int
	for _, c := range changes {
		way := [2]int{c.From, c.To}
		if byWay[way] == nil {
			ways = append(ways, way)
		}
		byWay[way] = append(byWay[way], c.Thread)
	}
	for _, way := range ways {
		switch list := tids(byWay[way]); {
		case way[0] == 0:
			fmt.Fprintf(w, "cluster %d: joined by %s\n", way[1], list)
		case way[1] == 0:
			fmt.Fprintf(w, "cluster %d: left by %s\n", way[0], list)
		default:
			fmt.Fprintf(w, "cluster %d: joined by %s of cluster %d\n", way[1], list, way[0])
		}
	}
}

// Print writes what was lost, if anything.
func (l Lost) Print(w io.Writer) {
	if l != (Lost{}) {
		fmt.Fprintf(w, "Not counted, as the kernel's maps were full: %d uses of locks, %d faults, %d wakeups; %d processes not observed.\n", l.Uses, l.Faults, l.Wakes, l.Targets)
	}
}

// Print writes what observing cost.
func (o Overhead) Print(w io.Writer) {
	percent := func(part, of time.Duration) float64 {
		if of == 0 {
			return 0
		}
		return 100 * part.Seconds() / of.Seconds()
	}
	fmt.Fprintf(w, "Cost: %.1f %% of the observed %v of CPU time, limit %.1f %%.\n", 100*o.Share(), o.CPU.Round(time.Millisecond), 100*o.Limit)
	if o.Calls > 0 || o.CallsOpen > 0 {
		each := o.Trap
		if o.Calls > 0 {
			each += o.CallsTime / time.Duration(o.Calls)
		}
		fmt.Fprintf(w, "  %d calls of lock functions, %.1f µs each, watched %.1f %% of the time\n", o.Calls,
			float64(each.Nanoseconds())/1e3, percent(o.CallsOpen, o.Time))
	}
	each := math.NaN()
	if o.Events > 0 {
		each = float64(o.eventsCost().Nanoseconds()) / float64(o.Events)
	}
	what := "system calls and wakeups"
	if o.Faults > 0 {
		what = fmt.Sprintf("system calls, wakeups and page faults (%d)", o.Faults)
	}
	fmt.Fprintf(w, "  %d %s of all processes, %.0f ns each, watched %.1f %% of the time\n", o.Events, what, each, percent(o.EventsOpen, o.Time))
	fmt.Fprintf(w, "  cosched itself: %v of CPU time in %v\n", o.Own.Round(time.Millisecond), o.Time.Round(time.Millisecond))
}
