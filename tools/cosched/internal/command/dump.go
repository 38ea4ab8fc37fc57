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
		Long: `Prints all current figures of the clusters: counters since they were made, the load on
each LLC domain and CPU, and the idle time of each CPU. The clusters are those of the
base, or NAME and those below it.

The output is one sample, as cosched record writes it;
Documentation/admin-guide/cosched-command.rst describes it. --openmetrics is for programs
that read OpenMetrics 1.0. The textfile collector of Prometheus's node exporter does not
read that: for it, --prometheus prints the text format 0.0.4. The collector may read its
file at any time, so write to another file first and then rename it.`,
		Example: `  cosched dump | jq -r '.clusters[] | "\(.name) \(.stat.wakeups_spilled)"'
  cosched dump --openmetrics
  cd /var/lib/node_exporter && cosched dump --prometheus > cosched.prom.new && mv cosched.prom.new cosched.prom`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if asJSON && openMetrics || asJSON && prometheus || openMetrics && prometheus {
				return usage("--json, --openmetrics and --prometheus are different formats: give one")
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

// sampler reads the clusters of the base, or one cluster and those below it.
func sampler(h cosched.Host, args []string) (*sample.Sampler, error) {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	return sample.New(h, name)
}
