// Package chart draws a recording: the CPU time that clusters used, the share of it at
// home, the moves of tasks, and where the clusters ran.
package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/drawing"
	"cosched.io/cosched/internal/sample"
)

const (
	// curves is how many clusters have a curve: more could not be told apart.
	curves = 6
	// rows is how many clusters the heat map has: more could not be read.
	rows = 24
	// points is how many points a curve has at most, which is the width of the plot. If
	// there are more, they are averaged.
	points = 600
)

// Chart takes in the intervals of a recording.
type Chart struct {
	filter   string
	times    []float64
	idle     []float64
	moves    [3][]float64 // spilled, returned, taken out by the load balancer
	clusters map[string]*series
	size     []int // CPUs of each LLC domain
}

// series has the values of one cluster. For times when the cluster was not there, they are
// NaN.
type series struct {
	name        string
	cpu, atHome []float64
	sum         float64   // of cpu
	util        []float64 // the sum over time, by LLC domain
	home        []int     // CPUs of each domain that are home, as of the last interval
	seen        int       // number of intervals
}

// New makes a chart of the clusters whose name contains the text filter.
func New(filter string) *Chart {
	return &Chart{filter: filter, clusters: map[string]*series{}}
}

// Add takes in an interval.
func (c *Chart) Add(v *sample.Interval) {
	if v.Seconds == 0 {
		return
	}
	n := len(c.times)
	c.times = append(c.times, float64(v.Time.UnixMilli())/1000)
	c.idle = append(c.idle, v.IdleCPUs)
	for i, n := range []float64{v.Total.Spilled + v.Total.Overflowed, v.Total.Returned + v.Total.Swapped, v.Total.Pushed + v.Total.Pulled} {
		c.moves[i] = append(c.moves[i], n)
	}
	for i, d := range v.LLCs {
		if i == len(c.size) {
			c.size = append(c.size, 0)
		}
		c.size[i] = max(c.size[i], len(d.CPUs))
	}
	for _, u := range v.Select(c.filter, 0, false) {
		if u.State == sample.StateRemoved {
			continue
		}
		s := c.clusters[u.Path]
		if s == nil {
			s = &series{name: cosched.Printable(u.Name)}
			c.clusters[u.Path] = s
		}
		s.cpu, s.atHome = pad(s.cpu, n), pad(s.atHome, n)
		s.cpu = append(s.cpu, u.CPU)
		atHome := math.NaN()
		if u.AtHome != nil {
			atHome = *u.AtHome
		}
		s.atHome = append(s.atHome, atHome)
		s.sum += u.CPU
		s.seen++
		s.home = make([]int, len(c.size))
		for len(s.util) < len(c.size) {
			s.util = append(s.util, 0)
		}
		for _, l := range u.LLCs {
			if l.LLC < len(c.size) {
				s.util[l.LLC] += float64(l.Util) / 1024
				s.home[l.LLC] = l.Home
			}
		}
	}
}

func pad(values []float64, n int) []float64 {
	for len(values) < n {
		values = append(values, math.NaN())
	}
	return values
}

// Empty reports that there is nothing to draw.
func (c *Chart) Empty() bool { return len(c.times) == 0 }

// NoCluster reports that no cluster was ever selected.
func (c *Chart) NoCluster() bool { return len(c.clusters) == 0 }

// Draw writes the chart into a file, in the format that its extension says: .png or .svg.
func (c *Chart) Draw(title, file string) error {
	list := make([]*series, 0, len(c.clusters))
	for _, s := range c.clusters {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *series) int { return cmp.Or(cmp.Compare(b.sum, a.sum), cmp.Compare(a.name, b.name)) })

	used := panel("CPUs")
	used.Title.Text = title
	share := panel("at home, %")
	share.Y.Min, share.Y.Max = 0, 100
	for i, s := range list[:min(curves, len(list))] {
		if err := c.curve(used, s.name, s.cpu, drawing.Palette[i], false); err != nil {
			return err
		}
		if err := c.curve(share, "", s.atHome, drawing.Palette[i], false); err != nil {
			return err
		}
	}
	if err := c.curve(used, "idle", c.idle, color.Gray{0x80}, true); err != nil {
		return err
	}
	moved := panel("a second")
	for i, name := range []string{"spilled", "returned", "taken out"} {
		if err := c.curve(moved, name, c.moves[i], drawing.Palette[i], false); err != nil {
			return err
		}
	}
	moved.X.Label.Text = "UTC"
	plots := [][]*plot.Plot{{used}, {share}, {moved}}
	for _, p := range plots {
		// Make room for the legend beside the curves.
		p[0].X.Min, p[0].X.Max = c.times[0], c.times[0]+1.2*max(1, c.times[len(c.times)-1]-c.times[0])
	}
	if len(list) > 0 && len(c.size) > 0 {
		heat, err := c.heat(list[:min(rows, len(list))])
		if err != nil {
			return err
		}
		plots = append(plots, []*plot.Plot{heat})
	}
	return drawing.Save(plots, 24*vg.Centimeter, 7*vg.Centimeter*vg.Length(len(plots)), file)
}

// panel makes a plot over the time of day.
func panel(label string) *plot.Plot {
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = label, 0
	p.X.Tick.Marker = plot.TimeTicks{Format: "15:04:05"}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// curve adds a curve to a plot, in pieces if values are missing between. If there are too
// many points, each group of them is averaged.
func (c *Chart) curve(p *plot.Plot, name string, values []float64, colour color.Color, dashed bool) error {
	group := (len(c.times) + points - 1) / points
	var piece plotter.XYs
	style := draw.LineStyle{Color: colour, Width: vg.Points(1.5)}
	if dashed {
		style.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	flush := func() error {
		if len(piece) == 0 {
			return nil
		}
		if len(piece) == 1 { // a line needs two ends
			piece = append(piece, piece[0])
		}
		line, err := plotter.NewLine(piece)
		if err != nil {
			return err
		}
		line.LineStyle = style
		p.Add(line)
		if name != "" {
			p.Legend.Add(name, line)
			name = ""
		}
		piece = nil
		return nil
	}
	for i := 0; i < len(values); i += group {
		var x, y, n float64
		for j := i; j < min(i+group, len(values)); j++ {
			if !math.IsNaN(values[j]) {
				x, y, n = x+c.times[j], y+values[j], n+1
			}
		}
		if n == 0 {
			if err := flush(); err != nil {
				return err
			}
			continue
		}
		piece = append(piece, plotter.XY{X: x / n, Y: y / n})
	}
	return flush()
}

// heat draws where clusters ran, the first cluster at the top.
func (c *Chart) heat(list []*series) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text = "LLC domain: the mean share of its CPUs that the cluster ran on, white 0, blue 1; dots are home"
	p.Add(plotter.NewHeatMap(grid{c, list}, ramp{}))
	var names, domains []string
	var homes plotter.XYs
	for i := range list {
		s := list[len(list)-1-i]
		names = append(names, clip(s.name))
		for d, n := range s.home {
			if n > 0 {
				homes = append(homes, plotter.XY{X: float64(d), Y: float64(i)})
			}
		}
	}
	for d := range c.size {
		domains = append(domains, fmt.Sprint(d))
	}
	if homes != nil {
		dots, err := plotter.NewScatter(homes)
		if err != nil {
			return nil, err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: drawing.Palette[1], Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	p.NominalX(domains...)
	p.NominalY(names...)
	return p, nil
}

// clip shortens a name to what has room beside the map. It keeps the end of the name, which
// says more than the beginning.
func clip(name string) string {
	const most = 24
	if r := []rune(name); len(r) > most {
		return "..." + string(r[len(r)-most+3:])
	}
	return strings.TrimSpace(name)
}

// grid is the heat map's values.
type grid struct {
	*Chart
	list []*series
}

func (g grid) Dims() (columns, rows int) { return len(g.size), len(g.list) }
func (g grid) X(column int) float64      { return float64(column) }
func (g grid) Y(row int) float64         { return float64(row) }
func (g grid) Z(column, row int) float64 {
	s := g.list[len(g.list)-1-row]
	if column >= len(s.util) || s.seen == 0 || g.size[column] == 0 {
		return 0
	}
	return min(1, s.util[column]/float64(s.seen)/float64(g.size[column]))
}

// Min and Max are fixed, so that white and blue mean the same in all charts.
func (grid) Min() float64 { return 0 }
func (grid) Max() float64 { return 1 }

// ramp is the colours between white and the palette's blue.
type ramp struct{}

func (ramp) Colors() []color.Color {
	const n = 32
	r, g, b, _ := drawing.Palette[0].RGBA()
	var all []color.Color
	for i := range n {
		mix := func(c uint32) uint8 { return uint8(255 - (255-float64(c>>8))*float64(i)/(n-1)) }
		all = append(all, color.RGBA{mix(r), mix(g), mix(b), 255})
	}
	return all
}
