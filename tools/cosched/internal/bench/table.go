package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"
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
	Mean     float64   `json:"mean"`
	// Error is the standard error of Mean; 0 for a single seed, which does not tell it.
	Error float64 `json:"standard_error"`
	// Gain is by how much the median is better than that of the row's first policy, in
	// Unit: percent, or the metric's own unit if it is best at zero. GainLeast and GainMost
	// are the least and the most of the gains of single seeds, each compared with the same
	// seed.
	Gain      float64 `json:"gain"`
	GainLeast float64 `json:"gain_least"`
	GainMost  float64 `json:"gain_most"`
	Unit      string  `json:"unit"`
	// Over is what the gain is over: the policy of the row's first cell, and its kernel
	// unless that is "test". First is set in that cell itself.
	Over  string `json:"over"`
	First bool   `json:"first,omitempty"`
	// Repeat is the command that runs the row again; results of earlier versions do not have
	// it.
	Repeat string `json:"repeat,omitempty"`
}

// median returns the median of some numbers. If their number is even, that is the mean of
// the two in the middle.
func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// meanOf returns the mean of some numbers, with its standard error.
func meanOf(values []float64) (mean, stdError float64) {
	mean, stdDev := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return mean, 0
	}
	return mean, stat.StdErr(stdDev, float64(len(values)))
}

// gain returns how much better a value is than another one: in percent of speed, whatever
// the metric, or, if the metric is best at zero, by how much it is less.
func gain(metric string, value, over float64) float64 {
	switch m := metrics[metric]; {
	case m.atZero != "":
		return over - value
	case m.higherIsBetter:
		return 100 * (value/over - 1)
	}
	return 100 * (over/value - 1)
}

// Read reads results that were written as JSON, of one suite.
func Read(r io.Reader) ([]Result, error) {
	var list []Result
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("it has no results")
	}
	for i := range list {
		r := &list[i]
		if _, known := metrics[r.Metric]; !known || r.Run.Row.Name == "" || r.Run.Policy == "" {
			return nil, fmt.Errorf("its result %d is none of a run: row %q, policy %q, metric %q", i+1, r.Run.Row.Name, r.Run.Policy, r.Metric)
		}
		if r.Suite == "" {
			// Files of earlier versions have the name in the command only.
			_, after, _ := strings.Cut(r.Command, " --suite ")
			r.Suite, _, _ = strings.Cut(after, " ")
		}
	}
	return list, nil
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
				Policy: k.policy, Metric: r.Metric, Unit: cmp.Or(metrics[r.Metric].unit, "%"), Repeat: r.Repeat}
			cells[k] = c
			order = append(order, k)
		}
		c.Values = append(c.Values, r.Value)
	}
	out := make([]Cell, 0, len(order))
	base := map[id]*Cell{} // the first cell of each row and transfer cost
	for _, k := range order {
		c := cells[k]
		c.Median, c.Least, c.Most = median(c.Values), slices.Min(c.Values), slices.Max(c.Values)
		c.Mean, c.Error = meanOf(c.Values)
		first := id{row: k.row, transfer: k.transfer}
		if base[first] == nil {
			base[first] = c
		}
		b := base[first]
		c.Over, c.First = b.placement(), b == c
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

// placement returns the policy, and the kernel unless that is the usual one.
func (c Cell) placement() string {
	if c.Kernel != "test" {
		return string(c.Policy) + ", " + c.Kernel
	}
	return string(c.Policy)
}

// Label names a cell within its row.
func (c Cell) Label() string {
	s := c.placement()
	if c.Transfer != 1 {
		s += fmt.Sprintf(", transfers × %g", c.Transfer)
	}
	return s
}

// WriteTable prints cells for people, and below them the command that repeats each row.
func WriteTable(w io.Writer, cells []Cell) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\tmachine\tpolicy\tmedian\tleast\tmost\tmean\tagainst the first\tof single seeds\t")
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row, machine, c.Label(), number(c.Median, c.Metric),
			number(c.Least, c.Metric), number(c.Most, c.Metric), c.mean(), against, single)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text := Caveat + "\n"
	var commands []string
	for _, c := range cells {
		if c.Repeat != "" {
			index(&commands, c.Repeat)
		}
	}
	if len(commands) > 0 {
		text += "\nTo run a row again:\n  " + strings.Join(commands, "\n  ") + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func number(v float64, metric string) string {
	m := metrics[metric]
	return fmt.Sprintf(m.format, v*m.scale)
}

// mean formats the mean with its standard error, to two digits of the latter.
func (c Cell) mean() string {
	m := metrics[c.Metric]
	stdError := c.Error * m.scale
	if stdError == 0 {
		return strings.Fields(number(c.Mean, c.Metric))[0]
	}
	digits := max(0, 1-int(math.Floor(math.Log10(stdError))))
	return fmt.Sprintf("%.*f ± %.*f", digits, c.Mean*m.scale, digits, stdError)
}

// unit returns the unit of a metric's values as they are printed.
func unit(metric string) string {
	return strings.Fields(number(0, metric))[1]
}

// difference formats a gain. If less of the metric is better, it does so in words, such as
// idle time that is 2 points less, because a plus sign would say more.
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
			// An empty first cell would join the row to the line above.
			row, machine = "\\", ""
			against = c.difference(c.Gain, c.Unit)
		}
		last = c.Row
		rows = append(rows, []string{row, machine, c.Label(), number(c.Median, c.Metric),
			number(c.Least, c.Metric) + " to " + number(c.Most, c.Metric), against})
	}
	return writeRSTTable(w, head, rows)
}

// WriteMeansRST prints the means of cells with their standard errors as a table for the
// documentation, a line for each row and metric and a column for each policy.
func WriteMeansRST(w io.Writer, cells []Cell) error {
	head := []string{"row", "unit"}
	column := map[string]int{}
	type id struct{ row, metric string }
	var order []id
	lines := map[id]map[string]string{}
	for _, c := range cells {
		label := c.Label()
		if column[label] == 0 {
			column[label] = len(head)
			head = append(head, label)
		}
		k := id{c.Row, c.Metric}
		if lines[k] == nil {
			lines[k] = map[string]string{}
			order = append(order, k)
		}
		lines[k][label] = c.mean()
	}
	var rows [][]string
	for _, k := range order {
		f := make([]string, len(head))
		f[0], f[1] = "``"+k.row+"``", unit(k.metric)
		for label, i := range column {
			f[i] = cmp.Or(lines[k][label], "\\")
		}
		rows = append(rows, f)
	}
	return writeRSTTable(w, head, rows)
}

// Ratio is how the mean of a cell compares with that of another policy, in the same row, on
// the same kernel and with the same cost of transfers.
type Ratio struct {
	Row      string  `json:"row"`
	Kernel   string  `json:"kernel"`
	Transfer float64 `json:"transfer"`
	Policy   Policy  `json:"policy"`
	Against  Policy  `json:"against"`
	// Value is speed in percent of that of the other policy, whatever the metric; if the
	// metric is best at zero, it is the difference of the means, in the metric's unit.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Error is the standard error of Value, from those of both means, which are taken to be
	// independent; 0 if one of them has a single seed, which does not tell it.
	Error float64 `json:"standard_error"`

	label string // of the cell
}

// Ratios compares the means of cells with those of a policy, in all rows that have it.
func Ratios(cells []Cell, against Policy) ([]Ratio, error) {
	type id struct {
		row, kernel string
		transfer    float64
	}
	base := map[id]Cell{}
	for _, c := range cells {
		if c.Policy == against {
			base[id{c.Row, c.Kernel, c.Transfer}] = c
		}
	}
	if len(base) == 0 {
		return nil, fmt.Errorf("no row has results with policy %q", against)
	}
	var list []Ratio
	for _, c := range cells {
		b, ok := base[id{c.Row, c.Kernel, c.Transfer}]
		if !ok || c.Policy == against {
			continue
		}
		m := metrics[c.Metric]
		r := Ratio{Row: c.Row, Kernel: c.Kernel, Transfer: c.Transfer, Policy: c.Policy, Against: against,
			Unit: cmp.Or(m.unit, "%"), label: c.Label()}
		known := len(c.Values) > 1 && len(b.Values) > 1
		switch {
		case m.atZero != "":
			r.Value = c.Mean - b.Mean
			if known {
				r.Error = math.Hypot(c.Error, b.Error)
			}
		default:
			r.Value = 100 * c.Mean / b.Mean
			if !m.higherIsBetter {
				r.Value = 100 * b.Mean / c.Mean
			}
			if known {
				r.Error = r.Value * math.Hypot(c.Error/c.Mean, b.Error/b.Mean)
			}
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("only policy %q has results: nothing to compare it with", against)
	}
	return list, nil
}

// WriteRatios prints what Ratios returns as a table for people.
func WriteRatios(w io.Writer, list []Ratio) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "row\tpolicy\tmean against %s\t\n", list[0].Against)
	last := ""
	for _, r := range list {
		row := r.Row
		if row == last {
			row = ""
		}
		last = r.Row
		format := "%.1f ± %.1f %s"
		if r.Unit != "%" {
			format = "%+.2f ± %.2f %s"
		}
		fmt.Fprintf(t, "%s\t%s\t"+format+"\t\n", row, r.label, r.Value, r.Error, r.Unit)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, "Percent of speed, whatever the unit, with the standard error; differences of what is best at zero.\n"+Caveat+"\n")
	return err
}

func writeRSTTable(w io.Writer, head []string, rows [][]string) error {
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
