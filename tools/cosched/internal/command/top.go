package command

import (
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
	"cosched.io/cosched/internal/top"
)

// live takes samples of this machine.
type live struct {
	*sample.Sampler
	name     string
	interval time.Duration
	was      *sample.Sample
}

func (l *live) Title() string       { return "cosched top " + l.name }
func (l *live) Position() string    { return "every " + l.interval.String() }
func (l *live) Wait() time.Duration { return l.interval }
func (l *live) Kept() bool          { return false }

// Pace halves or doubles the time between samples.
func (l *live) Pace(faster bool) {
	if faster {
		l.interval = max(100*time.Millisecond, l.interval/2)
	} else {
		l.interval = min(time.Minute, l.interval*2)
	}
}

func (l *live) Step(int) (*sample.Interval, error) {
	now, err := l.Read()
	if err != nil {
		return nil, err
	}
	v := sample.Between(l.was, now)
	l.was = now
	return v, nil
}

// terminal reports whether standard input and output are a terminal that the view can be drawn on.
func terminal(cmd *cobra.Command) bool {
	f, ok := cmd.OutOrStdout().(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdin.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

const keysHelp = `
Keys: arrows select a cluster or scroll the heat map, Enter shows the cluster by CPU,
/ filters, s sorts, ? shows all keys, q quits.`

func topCmd(h cosched.Host) *cobra.Command {
	var p pace
	var c choice
	var asJSON, asText bool
	cmd := &cobra.Command{
		Use:   "top [NAME]",
		Short: "watch where clusters run",
		Long: `Shows the clusters of the base, or NAME and those below it, every second: CPU time, its
share at home, spilled wakeups, returned strays, and a heat map of the LLC domains that the
clusters run on. If standard input or output is not a terminal, it prints tables, as
cosched stat --watch does, or, with --json, one object per line.
` + keysHelp,
		Example: `  cosched top
  cosched top shop --interval 5s --sort home
  cosched top --json --count 1 | jq .idle_cpus`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			order, err := c.order()
			if err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			s, err := sampler(h, args)
			if err != nil {
				return err
			}
			defer s.Close()
			src := &live{Sampler: s, interval: p.interval}
			if len(args) > 0 {
				src.name = args[0]
			}
			s.OnDemand = !asJSON
			// The program does one thing at a time. Garbage collection, of a megabyte for each sample
			// of 1,000 clusters, must not use every idle CPU, nor run for every third sample.
			runtime.GOMAXPROCS(2)
			debug.SetGCPercent(400)
			if !asJSON && !asText && terminal(cmd) {
				return top.Run(src, top.Options{Filter: c.filter, Order: order, Reverse: c.reverse, Count: p.count})
			}
			ctx, stop := interrupted()
			defer stop()
			if _, err := src.Step(1); err != nil {
				return err
			}
			tick := time.NewTicker(p.interval)
			defer tick.Stop()
			for n := 0; p.count == 0 || n < p.count; n++ {
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
				}
				v, err := src.Step(1)
				if err == nil {
					err = c.show(cmd, v, asJSON, n == 0)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
	p.flags(cmd, "intervals")
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, a line for each interval")
	cmd.Flags().BoolVar(&asText, "plain", false, "print tables, even on a terminal")
	return cmd
}
