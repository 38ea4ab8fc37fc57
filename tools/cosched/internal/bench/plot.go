package bench

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that people with any kind of colour vision tell apart: Okabe and Ito, 2008.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
}

// spread is the bars' whiskers.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

// shifted draws them where their bars are.
type shifted struct {
	*plotter.YErrorBars
	by vg.Length
}

func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	s.YErrorBars.Plot(draw.Crop(c, s.by, s.by, 0, 0), p)
}

// Plot draws each policy's gain over the first of its row, with the least and most of
// single seeds, into files; the extension of each says in which format: .png or .svg.
func Plot(title string, cells []Cell, files ...string) error {
	var rows, labels []string
	index := func(list *[]string, s string) int {
		for i, v := range *list {
			if v == s {
				return i
			}
		}
		*list = append(*list, s)
		return len(*list) - 1
	}
	type bar struct{ row, label int }
	at := map[bar]Cell{}
	first := map[string]bool{}
	for _, c := range cells {
		key := fmt.Sprint(c.Row, c.Transfer)
		row := index(&rows, c.Row)
		if !first[key] {
			first[key] = true // it is what the others are compared with
			continue
		}
		at[bar{row, index(&labels, c.Label())}] = c
	}
	if len(labels) == 0 {
		return fmt.Errorf("nothing to compare: each row has one policy")
	}
	p := plot.New()
	p.Title.Text = title
	p.Y.Label.Text = "gain over none, %"
	p.X.Label.Text = Caveat
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
			values[r] = c.Gain
			s.XYs = append(s.XYs, plotter.XY{X: float64(r), Y: c.Gain})
			s.YErrors = append(s.YErrors, struct{ Low, High float64 }{max(0, c.Gain-c.GainLeast), max(0, c.GainMost-c.Gain)})
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color = palette[l%len(palette)]
		bars.LineStyle.Width = 0
		bars.Offset = offset
		p.Add(bars)
		p.Legend.Add(label, bars)
		whiskers, err := plotter.NewYErrorBars(s)
		if err != nil {
			return err
		}
		p.Add(shifted{whiskers, offset})
	}
	p.NominalX(rows...)
	size := vg.Length(len(rows)) * (width*vg.Length(len(labels)) + 40)
	for _, f := range files {
		if err := p.Save(max(size, 16*vg.Centimeter), 11*vg.Centimeter, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}
