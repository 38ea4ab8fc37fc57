package command

import (
	"io"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

func dumpCmd(h cosched.Host) *cobra.Command {
	var asJSON, metrics bool
	cmd := &cobra.Command{
		Use:   "dump [NAME]",
		Short: "print all figures for programs, as JSON or OpenMetrics",
		Long: `Prints all that is known of the clusters now: counters since they were made, the load
on each LLC domain and CPU, and the idle time of each CPU. The clusters are those of
the base, or NAME and those below it.

It is one sample, as cosched record writes them; Documentation/admin-guide/cosched-command.rst
describes it. With --openmetrics it is what Prometheus and others collect, for example
as a file for the textfile collector of its node exporter.`,
		Example: `  cosched dump | jq -r '.clusters[] | "\(.name) \(.stat.wakeups_spilled)"'
  cosched dump --openmetrics > /var/lib/node_exporter/cosched.prom`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if asJSON && metrics {
				return usage("--json and --openmetrics are two formats: give one")
			}
			s, err := sampler(h, args)
			if err != nil {
				return err
			}
			defer s.Close()
			now, err := s.Read()
			if err != nil {
				return err
			}
			if metrics {
				return print(cmd, func(w io.Writer) { now.OpenMetrics(w) })
			}
			return printJSON(cmd, now, "  ")
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, the default")
	cmd.Flags().BoolVar(&metrics, "openmetrics", false, "print OpenMetrics text")
	return cmd
}

// sampler is of the clusters of the base, or of one and those below it.
func sampler(h cosched.Host, args []string) (*sample.Sampler, error) {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	return sample.New(h, name)
}
