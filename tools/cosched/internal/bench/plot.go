package bench

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"cosched.io/cosched/internal/drawing"
)

// spread is the data of the whiskers of bars.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

// shifted draws whiskers at the horizontal position of their bars.
type shifted struct {
	*plotter.YErrorBars
	by vg.Length
}

func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	s.YErrorBars.Plot(draw.Crop(c, s.by, s.by, 0, 0), p)
}

// panel is one plot: the bars that share a Y axis.
type panel struct {
	label string
	bars  func(Cell) (height, least, most float64)
	cells []Cell
}

// panels returns the plots: one of the gains over the first policy of each row, and, for
// each metric that is best at zero, one of its values, including those of the first policy.
// Close to zero, a difference says less than the value that is left.
func panels(cells []Cell) []*panel {
	var list []*panel
	add := func(label string, c Cell, bars func(Cell) (float64, float64, float64)) {
		i := slices.IndexFunc(list, func(p *panel) bool { return p.label == label })
		if i < 0 {
			i = len(list)
			list = append(list, &panel{label: label, bars: bars})
		}
		list[i].cells = append(list[i].cells, c)
	}
	first := map[string]bool{}
	for _, c := range cells {
		key := fmt.Sprint(c.Row, c.Transfer)
		switch label := metrics[c.Metric].atZero; {
		case label != "":
			add(label, c, func(c Cell) (float64, float64, float64) { return c.Median, c.Least, c.Most })
		case first[key]:
			add("gain over none, %", c, func(c Cell) (float64, float64, float64) { return c.Gain, c.GainLeast, c.GainMost })
		}
		first[key] = true // the first cell is what the others are compared with
	}
	return list
}

// ErrNothingToCompare is the error of Plot if each row has one policy only.
var ErrNothingToCompare = errors.New("nothing to compare: each row has one policy")

// Plot draws the gain of each policy over the first one of its row, with the least and the
// most gain of single seeds, into files. If the metric is best at zero, it draws values
// instead. The extension of each file says its format: .png or .svg.
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
		if err := drawing.Save(plots, size, 11*vg.Centimeter*vg.Length(len(plots)), f); err != nil {
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
			values[r] = height
			s.XYs = append(s.XYs, plotter.XY{X: float64(r), Y: height})
			s.YErrors = append(s.YErrors, struct{ Low, High float64 }{max(0, height-least), max(0, most-height)})
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, 0, err
		}
		bars.Color = drawing.Palette[slices.Index(colours, label)%len(drawing.Palette)]
		bars.LineStyle.Width = 0
		bars.Offset = offset
		p.Add(bars)
		p.Legend.Add(label, bars)
		whiskers, err := plotter.NewYErrorBars(s)
		if err != nil {
			return nil, 0, err
		}
		p.Add(shifted{whiskers, offset})
	}
	p.NominalX(rows...)
	return p, vg.Length(len(rows)) * (width*vg.Length(len(labels)) + 40), nil
}
