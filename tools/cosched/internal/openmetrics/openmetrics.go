// Package openmetrics writes metrics in OpenMetrics 1.0 text format. The library that has
// it, Prometheus's, brings protocol buffers for these few lines.
package openmetrics

import (
	"fmt"
	"io"
	"strings"
)

// Family is one metric: its name, type, unit and help, and its points. Labels are names
// and values by turns.
type Family struct {
	Name, Kind, Unit, Help string
	Points                 func(point func(value float64, labels ...string))
}

// suffixes are what a type of metric adds to the names of its points.
var suffixes = map[string]string{"counter": "_total", "info": "_info", "gauge": ""}

// escape is for the values of labels.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Write writes families, and the end.
func Write(w io.Writer, families []Family) {
	for _, f := range families {
		fmt.Fprintf(w, "# TYPE %s %s\n", f.Name, f.Kind)
		if f.Unit != "" {
			fmt.Fprintf(w, "# UNIT %s %s\n", f.Name, f.Unit)
		}
		fmt.Fprintf(w, "# HELP %s %s\n", f.Name, f.Help)
		f.Points(func(value float64, labels ...string) {
			fmt.Fprintf(w, "%s%s", f.Name, suffixes[f.Kind])
			for i := 0; i < len(labels); i += 2 {
				before := ","
				if i == 0 {
					before = "{"
				}
				fmt.Fprintf(w, `%s%s="%s"`, before, labels[i], escape.Replace(labels[i+1]))
			}
			if len(labels) > 0 {
				fmt.Fprint(w, "}")
			}
			fmt.Fprintf(w, " %v\n", value)
		})
	}
	fmt.Fprintln(w, "# EOF")
}
