package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
	"cosched.io/cosched/internal/top"
)

// pace is how often samples are taken, and how many.
type pace struct {
	interval time.Duration
	count    int
}

func (p *pace) flags(cmd *cobra.Command, ends string) {
	cmd.Flags().DurationVar(&p.interval, "interval", time.Second, "the `time` between samples, such as 500ms or 5s")
	cmd.Flags().IntVar(&p.count, "count", 0, "end after this `number` of "+ends)
}

func (p pace) check() error {
	if p.interval < time.Millisecond || p.count < 0 {
		return usage("--interval must be at least 1ms, --count at least 0")
	}
	return nil
}

// interrupted gives a context that ends on an interrupt or a signal to terminate or hang up.
func interrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

func recordCmd(h cosched.Host) *cobra.Command {
	var p pace
	var output string
	var add bool
	cmd := &cobra.Command{
		Use:   "record -o FILE [NAME]",
		Short: "record what top shows into a file",
		Long: `Writes samples of the clusters of the base, or of NAME and those below it, to FILE until it
is interrupted or --count samples are taken. cosched replay shows them, cosched plot draws
them. A FILE whose name ends in .gz is compressed, to about a tenth.

FILE consists of lines of JSON; Documentation/admin-guide/cosched-command.rst describes
them. If cosched or the machine dies, FILE has all lines but perhaps the last. Only one
cosched record can write to FILE at a time.`,
		Example: `  cosched record -o monday.gz
  cosched record -o monday.gz --append --interval 10s
  ssh server cosched record -o - | cosched replay -`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) (err error) {
			if output == "" {
				return usage("no file to write to: give --output FILE, - for standard output")
			}
			if err := p.check(); err != nil {
				return err
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
			w, done, err := recordTo(cmd, output, add)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			failed := func(err error) error {
				if output == "-" {
					output = "standard output"
				}
				return &cosched.Problem{Status: cosched.ExitIO, Text: fmt.Sprintf("%s: %v", output, pathless(err)), Err: err}
			}
			ctx, stop := interrupted()
			defer stop()
			tick := time.NewTicker(p.interval)
			defer tick.Stop()
			if err := w.Line(sample.NewHeader(s.Top())); err != nil {
				return failed(err)
			}
			for n := 1; ; n++ {
				if err := w.Line(now); err != nil {
					return failed(err)
				}
				if n == p.count {
					return nil
				}
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
				}
				if now, err = s.Read(); err != nil {
					return err
				}
			}
		}),
	}
	p.flags(cmd, "samples")
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `FILE` to write, - for standard output")
	cmd.Flags().BoolVar(&add, "append", false, "add to an existing recording")
	_ = cmd.RegisterFlagCompletionFunc("output", anyFile)
	return cmd
}

func anyFile(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// oneFile completes the first argument.
func oneFile(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// pathless strips the file name from an error, for messages that name the file already.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// recordTo opens the file, or standard output, that a recording is written to.
func recordTo(cmd *cobra.Command, output string, add bool) (w *sample.Writer, done func() error, err error) {
	if output == "-" {
		return sample.NewWriter(cmd.OutOrStdout(), false), func() error { return nil }, nil
	}
	var f *os.File
	compressed, torn := strings.HasSuffix(output, ".gz"), false
	if add {
		f, compressed, torn, err = sample.Append(output)
	}
	if !add || errors.Is(err, fs.ErrNotExist) {
		f, err = sample.Create(output)
	}
	var p *cosched.Problem
	switch {
	case errors.As(err, &p):
		return nil, nil, err
	case errors.Is(err, fs.ErrExist):
		return nil, nil, &cosched.Problem{Status: cosched.ExitCantCreate, Text: output + " is there already: --append adds to it", Err: err}
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, &cosched.Problem{Status: cosched.ExitNoPerm, Text: fmt.Sprintf("%s: %v", output, pathless(err)), Err: err}
	case err != nil:
		return nil, nil, &cosched.Problem{Status: cosched.ExitCantCreate, Text: fmt.Sprintf("%s: %v", output, pathless(err)), Err: err}
	}
	if torn {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s: its last line was not complete and was cut off\n", cmd.CommandPath(), output)
	}
	return sample.NewWriter(f, compressed), f.Close, nil
}

// choice is which clusters are shown, and in what order.
type choice struct {
	sort, filter string
	reverse      bool
	rows         int
}

func (c *choice) flags(cmd *cobra.Command) {
	var all []string
	for _, o := range sample.Orders {
		all = append(all, o.Name)
	}
	cmd.Flags().StringVar(&c.sort, "sort", "cpu", "sort by `WHAT`: "+strings.Join(all, ", "))
	cmd.Flags().BoolVarP(&c.reverse, "reverse", "r", false, "sort the other way")
	cmd.Flags().StringVar(&c.filter, "filter", "", "only clusters with this `TEXT` in their name")
	cmd.Flags().IntVar(&c.rows, "rows", 0, "print at most this `number` of clusters; ignored by the view on a terminal")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

func (c choice) order() (int, error) {
	i, ok := sample.FindOrder(c.sort)
	if !ok {
		return 0, usage("--sort %s: want name, cpu, home, spilled, returned or threads", c.sort)
	}
	if c.rows < 0 {
		return 0, usage("--rows must be at least 0")
	}
	return i, nil
}

// show prints what happened in an interval, for people or programs.
func (c choice) show(cmd *cobra.Command, v *sample.Interval, asJSON, first bool) error {
	order, err := c.order()
	if err != nil {
		return err
	}
	list := v.Select(c.filter, order, c.reverse)
	if c.rows > 0 {
		list = list[:min(c.rows, len(list))]
	}
	if asJSON {
		shown := *v
		shown.Clusters = make([]sample.Use, 0, len(list))
		for _, u := range list {
			shown.Clusters = append(shown.Clusters, *u)
		}
		b, err := json.Marshal(shown)
		if err != nil {
			return err
		}
		return print(cmd, func(w io.Writer) { fmt.Fprintf(w, "%s\n", b) })
	}
	return print(cmd, func(w io.Writer) {
		if !first {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n", v.Time.Format(time.DateTime), v.Summary())
		if len(list) == 0 {
			fmt.Fprintln(w, v.WhyEmpty(c.filter))
			return
		}
		table(w, func(w io.Writer) {
			fmt.Fprint(w, "NAME\tHOME\tTHREADS\tCPUS\tAT HOME %\tWAKEUPS\tSPILLED\tOVERFLOW\tRETURNED\tSWAPPED\tPUSHED\tPULLED\tHOMES\t\n")
			for _, u := range list {
				fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%s", cosched.Printable(u.Name), dash(u.Home.String()), u.Threads, u.CPU, u.HomeText())
				for _, n := range []float64{u.Wakeups, u.Spilled, u.Overflowed, u.Returned, u.Swapped, u.Pushed, u.Pulled, u.HomeChanges} {
					fmt.Fprintf(w, "\t%.0f", n)
				}
				fmt.Fprintf(w, "\t%s\n", u.State)
			}
		})
	})
}

func replayCmd(cosched.Host) *cobra.Command {
	var asJSON, asText bool
	var c choice
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "show a recording as top would have",
		Long: `Plays what cosched record wrote to FILE in the view of cosched top, where it can be paused
and moved through, step by step or in larger jumps. If standard input or output is not a
terminal, it prints a table for each interval or, with --json, one object per line. If FILE
is -, it reads standard input, and prints as well.
` + keysHelp + `
Space pauses and continues. Comma and full stop go one step back and forward, < and > sixty
steps. g and G go to the beginning and the end. + and - change the speed.`,
		Example: `  cosched replay monday.gz
  cosched replay monday.gz --json | jq -r '[.time, .total.at_home_percent] | @csv'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: oneFile,
		RunE: run(func(cmd *cobra.Command, args []string) error {
			order, err := c.order()
			if err != nil {
				return err
			}
			if !asJSON && !asText && args[0] != "-" && terminal(cmd) {
				return play(cmd, args[0], top.Options{Filter: c.filter, Order: order, Reverse: c.reverse})
			}
			first := true
			return intervals(cmd, args[0], func(v *sample.Interval) error {
				err := c.show(cmd, v, asJSON, first)
				first = false
				return err
			})
		}),
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, a line for each interval")
	cmd.Flags().BoolVar(&asText, "plain", false, "print tables, even on a terminal")
	return cmd
}

// openRecording opens a file.
func openRecording(name string) (*os.File, error) {
	f, err := os.Open(name)
	status := cosched.ExitNoInput
	if errors.Is(err, fs.ErrPermission) {
		status = cosched.ExitNoPerm
	}
	if err != nil {
		return nil, &cosched.Problem{Status: status, Text: fmt.Sprintf("%s: %v: cosched record -o %s makes one", name, pathless(err), name), Err: err}
	}
	return f, nil
}

// intervals calls f for each interval of a recording, and for a sample without a neighbour, which
// counts as an interval without rates.
func intervals(cmd *cobra.Command, name string, f func(*sample.Interval) error) error {
	from := cmd.InOrStdin()
	if name == "-" {
		name = "standard input"
	} else {
		file, err := openRecording(name)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	r, err := sample.NewReader(from, name)
	if err != nil {
		return err
	}
	var was *sample.Sample
	alone, any := false, false
	for {
		now, begins, err := r.Next()
		if err != nil && err != io.EOF {
			return err
		}
		if alone && (begins || err == io.EOF) {
			if err := f(sample.Between(nil, was)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		any = true
		if !begins {
			if err := f(sample.Between(was, now)); err != nil {
				return err
			}
		}
		was, alone = now, begins
	}
	if r.Torn() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s: its last line is not complete and was left out\n", cmd.CommandPath(), name)
	}
	if !any {
		return &cosched.Problem{Status: cosched.ExitData, Text: name + ": a recording without samples: it was stopped before the first"}
	}
	return nil
}
