package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Cell is a row's results with one policy, over all seeds.
type Cell struct {
	Row      string    `json:"row"`
	About    string    `json:"about"`
	Model    string    `json:"model"`
	Kernel   string    `json:"kernel"`
	Transfer float64   `json:"transfer"`
	Policy   Policy    `json:"policy"`
	Metric   string    `json:"metric"`
	Values   []float64 `json:"values"` // one for each seed
	Median   float64   `json:"median"`
	Least    float64   `json:"least"`
	Most     float64   `json:"most"`
	// Gain is by how much better the median is than the first policy's of the row, in
	// percent, and GainLeast and GainMost are those of single seeds, compared with the same seed.
	Gain      float64 `json:"gain"`
	GainLeast float64 `json:"gain_least"`
	GainMost  float64 `json:"gain_most"`
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

// gain of a value over another, in percent: of speed, whatever the metric.
func gain(metric string, value, over float64) float64 {
	if higherIsBetter[metric] {
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
			c = &Cell{Row: k.row, About: r.Run.Row.About, Model: r.Run.Row.Model, Kernel: k.kernel, Transfer: k.transfer,
				Policy: k.policy, Metric: r.Metric}
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
	fmt.Fprintln(t, "row\tmodel\tpolicy\tmedian\tleast\tmost\tagainst the first\tof single seeds\t")
	last := ""
	for _, c := range cells {
		row, model := c.Row, c.Model
		if row == last {
			row, model = "", ""
		}
		last = c.Row
		against, single := "", ""
		if row == "" {
			against = fmt.Sprintf("%+.1f %%", c.Gain)
			single = fmt.Sprintf("%+.1f to %+.1f %%", c.GainLeast, c.GainMost)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row, model, c.Label(), number(c.Median, c.Metric),
			number(c.Least, c.Metric), number(c.Most, c.Metric), against, single)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, Caveat)
	return err
}

func number(v float64, metric string) string {
	switch metric {
	case "ops_per_sec":
		return fmt.Sprintf("%.4g M/s", v/1e6)
	case "usec_p99":
		return fmt.Sprintf("%.4g us", v)
	}
	return fmt.Sprintf("%.4g ms", v)
}

// WriteRST prints cells as a table for the documentation.
func WriteRST(w io.Writer, cells []Cell) error {
	head := []string{"row", "model", "policy", "median", "least to most", "against none"}
	rows := [][]string{}
	last := ""
	for _, c := range cells {
		row, model, against := c.Row, c.Model, "\\"
		if row == last {
			// An empty first cell would join it to the line above.
			row, model = "\\", ""
			against = fmt.Sprintf("%+.1f %%", c.Gain)
		}
		last = c.Row
		rows = append(rows, []string{row, model, c.Label(), number(c.Median, c.Metric),
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
