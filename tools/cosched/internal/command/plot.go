package command

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/chart"
	"cosched.io/cosched/internal/sample"
)

func plotCmd(cosched.Host) *cobra.Command {
	var output, title, filter string
	cmd := &cobra.Command{
		Use:   "plot RECORDING -o FILE",
		Short: "draw a recording as PNG or SVG",
		Long: `Draws a recording of cosched record into FILE, whose name ends in .png or .svg. If RECORDING
is -, reads standard input. The plot shows the CPU time and the share at home of the six
clusters that ran most, the idle CPUs, spilled wakeups and returned strays, and a heat map
of clusters by LLC domain.`,
		Example: `  cosched plot monday.gz -o monday.svg
  cosched plot monday.gz -o shop.png --filter shop --title 'the shop, 21 November'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: oneFile,
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if ext := filepath.Ext(output); !slices.Contains([]string{".png", ".svg"}, ext) {
				return usage("--output %q: want a file that ends in .png or .svg", output)
			}
			c := chart.New(filter)
			if err := intervals(cmd, args[0], func(v *sample.Interval) error { c.Add(v); return nil }); err != nil {
				return err
			}
			if c.Empty() {
				return &cosched.Problem{Status: cosched.ExitData, Text: args[0] + ": nothing to draw, as a plot needs at least two samples"}
			}
			if filter != "" && c.NoCluster() {
				return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%s: none of its clusters has %q in its name; cosched replay shows them", args[0], filter)}
			}
			if title == "" {
				title = filepath.Base(args[0])
			}
			if err := c.Draw(title, output); err != nil {
				return &cosched.Problem{Status: cosched.ExitCantCreate, Text: fmt.Sprintf("%s: %v", output, pathless(err)), Err: err}
			}
			return nil
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `FILE` to draw into, .png or .svg")
	cmd.Flags().StringVar(&title, "title", "", "the `TEXT` above the plot, instead of the recording's name")
	cmd.Flags().StringVar(&filter, "filter", "", "only clusters with this `TEXT` in their name")
	_ = cmd.RegisterFlagCompletionFunc("output", anyFile)
	return cmd
}
