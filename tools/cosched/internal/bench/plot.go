package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"cosched.io/cosched/internal/drawing"
)

// spread is the data of bars, or of points, and of their whiskers.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

// shifted draws something at the horizontal position of the bars that it belongs to.
type shifted struct {
	plot.Plotter
	by vg.Length
}

func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	s.Plotter.Plot(draw.Crop(c, s.by, s.by, 0, 0), p)
}

// panel is one plot: the bars that share a Y axis, or, if the axis is logarithmic, points.
type panel struct {
	label string
	log   bool
	bars  func(Cell) (height, least, most float64)
	cells []Cell
}

// panels returns the plots: for each policy that rows begin with, one of the gains over it,
// and for some metrics one of their values, including those of the first policy. Values are
// drawn if they are best at zero, as a difference close to zero says less than the value
// that is left; and if they are times that differ by orders of magnitude, as gains in such
// times would leave all other bars without height.
func panels(cells []Cell) []*panel {
	var list []*panel
	add := func(one panel, c Cell) {
		i := slices.IndexFunc(list, func(p *panel) bool { return p.label == one.label })
		if i < 0 {
			i = len(list)
			list = append(list, &one)
		}
		list[i].cells = append(list[i].cells, c)
	}
	values := func(c Cell) (float64, float64, float64) { return c.Median, c.Least, c.Most }
	gains := func(c Cell) (float64, float64, float64) { return c.Gain, c.GainLeast, c.GainMost }
	for _, c := range cells {
		switch m := metrics[c.Metric]; {
		case m.atZero != "":
			add(panel{label: m.atZero, bars: values}, c)
		case m.times != "":
			add(panel{label: m.times, log: true, bars: values}, c)
		case !c.First:
			add(panel{label: "gain over " + c.Over + ", %", bars: gains}, c)
		}
	}
	return list
}

// ErrNothingToCompare is the error of Plot if there are gains to draw only, and each row has
// one policy.
var ErrNothingToCompare = errors.New("nothing to compare: each row has one policy")

// Plot draws the gain of each policy over the first one of its row, with the least and the
// most gain of single seeds, into files. Of some metrics it draws values instead. The
// extension of each file says its format: .png or .svg.
func Plot(title string, cells []Cell, files ...string) error {
	list := panels(cells)
	if len(list) == 0 {
		return ErrNothingToCompare
	}
	// A label has the same colour in all plots.
	var colours []string
	for _, one := range list {
		for _, c := range one.cells {
			index(&colours, c.Label())
		}
	}
	var plots [][]*plot.Plot
	size := 16 * vg.Centimeter
	for i, one := range list {
		p, width, err := one.draw(colours)
		if err != nil {
			return err
		}
		if i == 0 {
			p.Title.Text = title
		}
		if i == len(list)-1 {
			p.X.Label.Text = Caveat
		}
		plots = append(plots, []*plot.Plot{p})
		size = max(size, width)
	}
	for _, f := range files {
		if err := drawing.Save(plots, size, panelHeight*vg.Length(len(plots)), f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// index returns the index of s in a list. If s is not there, it is added.
func index(list *[]string, s string) int {
	if i := slices.Index(*list, s); i >= 0 {
		return i
	}
	*list = append(*list, s)
	return len(*list) - 1
}

const (
	panelHeight = 11 * vg.Centimeter
	// legendShare is how much of a panel's height a line of the legend takes.
	legendShare = 0.05
)

// draw makes the plot, and returns the width that it needs.
func (one *panel) draw(colours []string) (*plot.Plot, vg.Length, error) {
	var rows, labels []string
	type bar struct{ row, label int }
	at := map[bar]Cell{}
	for _, c := range one.cells {
		at[bar{index(&rows, c.Row), index(&labels, c.Label())}] = c
	}
	p := plot.New()
	p.Y.Label.Text = one.label
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	width := vg.Points(min(20, 60/float64(len(labels))))
	bottom, top := math.Inf(1), math.Inf(-1)
	for l, label := range labels {
		values := make(plotter.Values, len(rows))
		var s spread
		offset := width * vg.Length(float64(l)-float64(len(labels)-1)/2)
		for r := range rows {
			c, ok := at[bar{r, l}]
			if !ok {
				continue
			}
			height, least, most := one.bars(c)
			if one.log {
				// With plot.LogScale, plot would make room for the axis's label where it is not.
				height, least, most = math.Log10(height), math.Log10(least), math.Log10(most)
			}
			values[r] = height
			s.XYs = append(s.XYs, plotter.XY{X: float64(r), Y: height})
			s.YErrors = append(s.YErrors, struct{ Low, High float64 }{max(0, height-least), max(0, most-height)})
			bottom, top = min(bottom, height, least), max(top, height, most)
		}
		colour := drawing.Palette[slices.Index(colours, label)%len(drawing.Palette)]
		if one.log {
			points, err := plotter.NewScatter(s)
			if err != nil {
				return nil, 0, err
			}
			points.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
			p.Add(shifted{points, offset})
			p.Legend.Add(label, points)
		} else {
			bars, err := plotter.NewBarChart(values, width)
			if err != nil {
				return nil, 0, err
			}
			bars.Color = colour
			bars.LineStyle.Width = 0
			bars.Offset = offset
			p.Add(bars)
			p.Legend.Add(label, bars)
		}
		whiskers, err := plotter.NewYErrorBars(s)
		if err != nil {
			return nil, 0, err
		}
		p.Add(shifted{whiskers, offset})
	}
	p.NominalX(rows...)
	p.X.Min, p.X.Max = -0.5, float64(len(rows))-0.5
	// Above the bars, there is room for the legend.
	room := 1 / (1 - legendShare*float64(min(len(labels), 10)))
	p.Y.Tick.Marker = plot.TickerFunc(linearTicks)
	if one.log {
		p.Y.Tick.Marker = plot.TickerFunc(logTicks)
		bottom, top = bottom-0.1, top+0.1
	} else {
		bottom, top = min(0, bottom), max(0, top)
		if bottom < 0 {
			bottom -= 0.05 * (top - bottom)
		}
	}
	p.Y.Min, p.Y.Max = bottom, bottom+(top-bottom)*room
	return p, vg.Length(len(rows)) * (width*vg.Length(len(labels)) + 40), nil
}

// linearTicks labels four to ten multiples of a round number. plot.DefaultTicks may leave out
// zero, which is what gains are compared with.
func linearTicks(least, most float64) []plot.Tick {
	unit := math.Pow10(int(math.Floor(math.Log10(most - least))))
	switch n := (most - least) / unit; {
	case n < 2:
		unit /= 5
	case n < 4:
		unit /= 2
	}
	digits := max(0, -int(math.Floor(math.Log10(unit))))
	var ticks []plot.Tick
	for k := math.Ceil(least / unit); k*unit <= most; k++ {
		// Adding 0 turns -0 into 0.
		ticks = append(ticks, plot.Tick{Value: k * unit, Label: strconv.FormatFloat(k*unit+0, 'f', digits, 64)})
	}
	return ticks
}

// logTicks marks each digit of each power of ten, and labels 1, 2 and 5, on an axis of
// logarithms to base 10.
func logTicks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for power := int(math.Floor(least)); float64(power) <= most; power++ {
		for digit := 1.0; digit < 10; digit++ {
			t := plot.Tick{Value: float64(power) + math.Log10(digit)}
			if t.Value < least || t.Value > most {
				continue // plot would make room for its label
			}
			if digit == 1 || digit == 2 || digit == 5 {
				t.Label = strconv.FormatFloat(digit*math.Pow10(power), 'f', max(0, -power), 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
