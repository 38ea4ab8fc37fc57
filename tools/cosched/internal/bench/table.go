package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Cell is a row's results with one policy, over all seeds.
type Cell struct {
	Row      string    `json:"row"`
	About    string    `json:"about"`
	Machine  string    `json:"machine"`
	Kernel   string    `json:"kernel"`
	Transfer float64   `json:"transfer"`
	Policy   Policy    `json:"policy"`
	Metric   string    `json:"metric"`
	Values   []float64 `json:"values"` // one for each seed
	Median   float64   `json:"median"`
	Least    float64   `json:"least"`
	Most     float64   `json:"most"`
	// Gain is by how much better the median is than the first policy's of the row, in Unit:
	// percent, or what the metric is in if it is best at zero. GainLeast and GainMost are
	// those of single seeds, compared with the same seed.
	Gain      float64 `json:"gain"`
	GainLeast float64 `json:"gain_least"`
	GainMost  float64 `json:"gain_most"`
	Unit      string  `json:"unit"`
}

// median of some numbers; of an even number of them, the mean of the two in the middle.
func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// gain of a value over another, in percent of speed, whatever the metric; of what is
// best at zero, how much less it is.
func gain(metric string, value, over float64) float64 {
	switch m := metrics[metric]; {
	case m.atZero != "":
		return over - value
	case m.higherIsBetter:
		return 100 * (value/over - 1)
	}
	return 100 * (over/value - 1)
}

// Cells sums up results, in their order.
func Cells(results []Result) []Cell {
	type id struct {
		row, kernel string
		transfer    float64
		policy      Policy
	}
	var order []id
	cells := map[id]*Cell{}
	for _, r := range results {
		k := id{r.Run.Row.Name, r.Run.Kernel, r.Run.Transfer, r.Run.Policy}
		c := cells[k]
		if c == nil {
			c = &Cell{Row: k.row, About: r.Run.Row.About, Machine: r.Run.Row.Machine(), Kernel: k.kernel, Transfer: k.transfer,
				Policy: k.policy, Metric: r.Metric, Unit: cmp.Or(metrics[r.Metric].unit, "%")}
			cells[k] = c
			order = append(order, k)
		}
		c.Values = append(c.Values, r.Value)
	}
	out := make([]Cell, 0, len(order))
	base := map[id]*Cell{} // of each row and cost, its first
	for _, k := range order {
		c := cells[k]
		c.Median, c.Least, c.Most = median(c.Values), slices.Min(c.Values), slices.Max(c.Values)
		first := id{row: k.row, transfer: k.transfer}
		if base[first] == nil {
			base[first] = c
		}
		b := base[first]
		c.Gain = gain(c.Metric, c.Median, b.Median)
		c.GainLeast, c.GainMost = c.Gain, c.Gain
		if len(c.Values) == len(b.Values) {
			var all []float64
			for i, v := range c.Values {
				all = append(all, gain(c.Metric, v, b.Values[i]))
			}
			c.GainLeast, c.GainMost = slices.Min(all), slices.Max(all)
		}
		out = append(out, *c)
	}
	return out
}

// Caveat belongs to each table and plot.
const Caveat = "Machine models in virtual time: one scheduler against another, not how fast hardware is."

// Label names a cell beside the row.
func (c Cell) Label() string {
	s := string(c.Policy)
	if c.Kernel != "test" {
		s += ", " + c.Kernel
	}
	if c.Transfer != 1 {
		s += fmt.Sprintf(", transfers × %g", c.Transfer)
	}
	return s
}

// WriteTable prints cells for people.
func WriteTable(w io.Writer, cells []Cell) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\tmachine\tpolicy\tmedian\tleast\tmost\tagainst the first\tof single seeds\t")
	last := ""
	for _, c := range cells {
		row, machine := c.Row, c.Machine
		if row == last {
			row, machine = "", ""
		}
		last = c.Row
		against, single := "", ""
		if row == "" {
			against = c.difference(c.Gain, c.Unit)
			single = c.difference(c.GainLeast, "") + " to " + c.difference(c.GainMost, c.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row, machine, c.Label(), number(c.Median, c.Metric),
			number(c.Least, c.Metric), number(c.Most, c.Metric), against, single)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, Caveat)
	return err
}

func number(v float64, metric string) string {
	m := metrics[metric]
	return fmt.Sprintf(m.format, v*m.scale)
}

// difference tells of a gain in words where less is better and a sign would say more:
// idle time that is 2 points less.
func (c Cell) difference(gain float64, unit string) string {
	if unit != "" {
		unit = " " + unit
	}
	if metrics[c.Metric].atZero == "" {
		return fmt.Sprintf("%+.1f%s", gain, unit)
	}
	digits := 2
	if c.Unit == "/s" {
		digits = 0
	}
	text := fmt.Sprintf("%.*f%s", digits, math.Abs(gain), unit)
	switch {
	case !strings.ContainsAny(text, "123456789"):
		return text
	case gain > 0:
		return text + " less"
	}
	return text + " more"
}

// WriteRST prints cells as a table for the documentation.
func WriteRST(w io.Writer, cells []Cell) error {
	head := []string{"row", "machine", "policy", "median", "least to most", "against the first"}
	rows := [][]string{}
	last := ""
	for _, c := range cells {
		row, machine, against := c.Row, c.Machine, "\\"
		if row == last {
			// An empty first cell would join it to the line above.
			row, machine = "\\", ""
			against = c.difference(c.Gain, c.Unit)
		}
		last = c.Row
		rows = append(rows, []string{row, machine, c.Label(), number(c.Median, c.Metric),
			number(c.Least, c.Metric) + " to " + number(c.Most, c.Metric), against})
	}
	width := make([]int, len(head))
	for _, r := range append([][]string{head}, rows...) {
		for i, f := range r {
			width[i] = max(width[i], len([]rune(f)))
		}
	}
	line := func(f []string) string {
		var s strings.Builder
		for i, v := range f {
			s.WriteString(v + strings.Repeat(" ", width[i]-len([]rune(v))+2))
		}
		return strings.TrimRight(s.String(), " ") + "\n"
	}
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = strings.Repeat("=", width[i])
	}
	var s strings.Builder
	s.WriteString(line(rule) + line(head) + line(rule))
	for _, r := range rows {
		s.WriteString(line(r))
	}
	s.WriteString(line(rule))
	_, err := io.WriteString(w, s.String())
	return err
}
