// Package openmetrics writes metrics in the OpenMetrics 1.0 text format, or in the older
// Prometheus text format. Prometheus's own library has both formats, but would bring
// protocol buffers for these few lines.
package openmetrics

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"cosched.io/cosched"
)

// Family is one metric: its name, type, unit, help and points. The labels of a point are
// names and values in turn.
type Family struct {
	Name, Kind, Unit, Help string
	Points                 func(point func(value float64, labels ...string))
}

// suffixes are what each type of metric adds to the names of its points.
var suffixes = map[string]string{"counter": "_total", "info": "_info", "gauge": ""}

// escape escapes the values of labels.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// valid gives a text in UTF-8, as both formats require it: readers refuse a whole file for one byte
// that is not, and the name of a cgroup may have any bytes.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return cosched.Printable(s)
}

// Write writes families in OpenMetrics 1.0, followed by the end marker.
func Write(w io.Writer, families []Family) {
	for _, f := range families {
		fmt.Fprintf(w, "# TYPE %s %s\n", f.Name, f.Kind)
		if f.Unit != "" {
			fmt.Fprintf(w, "# UNIT %s %s\n", f.Name, f.Unit)
		}
		fmt.Fprintf(w, "# HELP %s %s\n", f.Name, f.Help)
		f.points(w)
	}
	fmt.Fprintln(w, "# EOF")
}

// WritePrometheus writes families in the Prometheus text format 0.0.4. That format has no
// type info and no units, and the name of a family is that of its points.
func WritePrometheus(w io.Writer, families []Family) {
	for _, f := range families {
		kind := f.Kind
		if kind == "info" {
			kind = "gauge"
		}
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.pointName(), f.Help, f.pointName(), kind)
		f.points(w)
	}
}

func (f Family) pointName() string { return f.Name + suffixes[f.Kind] }

// points writes the points, which are the same in both formats.
func (f Family) points(w io.Writer) {
	f.Points(func(value float64, labels ...string) {
		fmt.Fprint(w, f.pointName())
		for i := 0; i < len(labels); i += 2 {
			before := ","
			if i == 0 {
				before = "{"
			}
			fmt.Fprintf(w, `%s%s="%s"`, before, labels[i], escape.Replace(valid(labels[i+1])))
		}
		if len(labels) > 0 {
			fmt.Fprint(w, "}")
		}
		fmt.Fprintf(w, " %v\n", value)
	})
}
