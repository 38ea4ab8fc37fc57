package command

import (
	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

func dumpCmd(h cosched.Host) *cobra.Command {
	var asJSON, openMetrics, prometheus bool
	cmd := &cobra.Command{
		Use:   "dump [NAME]",
		Short: "print all figures for programs, as JSON or metrics",
		Long: `Prints all that is known of the clusters now: counters since they were made, the load
on each LLC domain and CPU, and the idle time of each CPU. The clusters are those of
the base, or NAME and those below it.

It is one sample, as cosched record writes them; Documentation/admin-guide/cosched-command.rst
describes it. --openmetrics is for what reads OpenMetrics 1.0. The textfile collector of
Prometheus's node exporter does not: --prometheus is for it, in the text format 0.0.4.
It may read at any time, so give it a file that is complete.`,
		Example: `  cosched dump | jq -r '.clusters[] | "\(.name) \(.stat.wakeups_spilled)"'
  cosched dump --openmetrics
  cd /var/lib/node_exporter && cosched dump --prometheus > cosched.prom.new && mv cosched.prom.new cosched.prom`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if asJSON && openMetrics || asJSON && prometheus || openMetrics && prometheus {
				return usage("--json, --openmetrics and --prometheus are formats: give one")
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
			switch {
			case openMetrics:
				return print(cmd, now.OpenMetrics)
			case prometheus:
				return print(cmd, now.Prometheus)
			}
			return printJSON(cmd, now, "  ")
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, the default")
	cmd.Flags().BoolVar(&openMetrics, "openmetrics", false, "print OpenMetrics 1.0 text")
	cmd.Flags().BoolVar(&prometheus, "prometheus", false, "print Prometheus text, format 0.0.4")
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
