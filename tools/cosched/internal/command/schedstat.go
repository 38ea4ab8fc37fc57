package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/schedstat"
)

func schedstatCmd(h cosched.Host) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedstat",
		Short: "record, report and compare what the scheduler counts",
		Long: `Reports what the load balancer did at each level of scheduling domains, and how long tasks
ran and waited, from the counters in /proc/schedstat, versions 15 to 17. The kernel needs
CONFIG_SCHEDSTATS, with kernel.sched_schedstats switched on. It does not need the controller.`,
		Example: `  sysctl kernel.sched_schedstats=1
  cosched schedstat record -o before.json -- make -j8
  cosched schedstat report before.json
  cosched schedstat diff before.json after.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(schedstatRecordCmd(h), schedstatReportCmd(h), schedstatDiffCmd())
	return cmd
}

func schedstatRecordCmd(h cosched.Host) *cobra.Command {
	var file string
	var duration time.Duration
	var hostname bool
	cmd := &cobra.Command{
		Use:   "record [-o FILE] (--for DURATION | [--] COMMAND [ARGUMENT...])",
		Short: "record the counters before and after a command",
		Long: `Writes a file with /proc/schedstat as it is before and after COMMAND, or before and after
the time of --for. These are the counters of the whole machine, not of COMMAND alone. An
existing file is replaced when the recording is complete, and kept if the recording fails.

With --for, an interrupt ends the recording early.

The exit status is the command's; 127 if it is not found, 126 if it cannot be executed,
125 if cosched fails.`,
		Example: `  cosched schedstat record -- make -j8
  cosched schedstat record -o night.json --for 10m`,
		DisableFlagsInUseLine: true,
		Annotations:           runsCommand,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			timed := cmd.Flags().Changed("for")
			switch {
			case file == "":
				return usage("no file to write to: give --output FILE")
			case timed && duration <= 0:
				return usage("--for %v: want a time above 0, such as 10s", duration)
			case timed == (len(args) > 0):
				return usage("want either a command or --for: give one of them")
			}
			var child *exec.Cmd
			if !timed {
				path, err := lookPath(args[0])
				if err != nil {
					return err
				}
				child = &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
			}
			// The command itself handles an interrupt from the terminal. What was counted until it
			// ends is recorded.
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)

			proc := schedstat.Source(h.Proc)
			r, err := proc.Start(hostname)
			if err != nil {
				return err
			}
			// Open the file before the command runs: if that fails, the command would run in vain.
			f, err := createOutput(file)
			if err != nil {
				return &cosched.Problem{Status: cosched.ExitCantCreate, Text: fmt.Sprintf("%s: %v", file, pathless(err)), Err: err}
			}
			defer f.discard()
			var status error
			if timed {
				select {
				case <-time.After(duration):
				case <-signals:
				}
			} else {
				r.Command = args
				n, err := await(child, signals)
				if err != nil {
					return err
				}
				r.ExitStatus = &n
				if n != 0 {
					status = exited(n)
				}
			}
			if err := r.Stop(proc); err != nil {
				return err
			}
			if err := f.finish(r.Write); err != nil {
				return &cosched.Problem{Status: cosched.ExitIO, Text: fmt.Sprintf("%s: %v", file, pathless(err)), Err: err}
			}
			return status
		}),
	}
	// The arguments after COMMAND belong to COMMAND.
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&file, "output", "o", "schedstat.json", "the `FILE` to write")
	cmd.Flags().DurationVar(&duration, "for", 0, "record for a `DURATION`, such as 10s or 5m, instead of a command")
	cmd.Flags().BoolVar(&hostname, "hostname", false, "record the machine's name as well")
	return cmd
}

// start starts a command, or sh if the command is a script without #!, see execute.
func start(child *exec.Cmd) (*exec.Cmd, error) {
	err := child.Start()
	if errors.Is(err, syscall.ENOEXEC) {
		child = &exec.Cmd{Path: "/bin/sh", Args: append([]string{"sh", child.Path}, child.Args[1:]...), Stdin: child.Stdin, Stdout: child.Stdout, Stderr: child.Stderr}
		err = child.Start()
	}
	if err != nil {
		return nil, cannotExecute(child.Path, err)
	}
	return child, nil
}

// await runs a command to its end and gives its exit status as a shell does: 128 plus the number
// of the signal for a command that a signal ended.
func await(child *exec.Cmd, signals <-chan os.Signal) (int, error) {
	child, err := start(child)
	if err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				// The terminal itself sends SIGINT and SIGQUIT to the command.
				if s == syscall.SIGTERM || s == syscall.SIGHUP {
					_ = child.Process.Signal(s)
				}
			case <-ended:
				return
			}
		}
	}()
	err = child.Wait()
	close(ended)
	if w, ok := child.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return 0, err
	}
	return child.ProcessState.ExitCode(), nil
}

func schedstatReportCmd(h cosched.Host) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report [FILE | BEFORE AFTER]",
		Short: "show what a recording counted",
		Long: `Shows what a recording counted, or what was counted between two copies of
/proc/schedstat, or what one copy or the running machine has counted since boot.

First, for each CPU and for all CPUs: the CPU time of tasks, the average length of a
timeslice and of the wait before it, and the number of timeslices; how often schedule() was
called, and the share of calls that left the CPU idle; wakeups issued on the CPU, and the
share of them that were placed on the same CPU; yields.

Then, for each level of domains, the calls of the load balancer on idle CPUs, on busy CPUs
and on CPUs about to become idle, each as a share of all calls, and their results:

  no busier group         no group of CPUs was busier, nothing to do
  no busier queue         a group was busier, but no CPU in it
  left or pinned          another CPU of the group balances, or affinity forbids all moves
  failed                  there was something to move, but nothing could be moved
  moved a task            one or more tasks were moved
  average imbalance       what there was to move, in the calls that found something

Linux has counters of balancing on exec and fork, and of passive balancing at wakeup, but
does not count any of these events: they are 0.`,
		Example: `  cosched schedstat report schedstat.json
  cosched schedstat report
  cosched schedstat report before.txt after.txt --json`,
		Args: cobra.MaximumNArgs(2),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var rec *schedstat.Recording
			var err error
			switch len(args) {
			case 0:
				rec, err = schedstat.Source(h.Proc).SinceBoot()
			case 1:
				rec, err = schedstat.Read(args[0])
			case 2:
				rec, err = schedstat.ReadPair(args[0], args[1])
			}
			if err != nil {
				return err
			}
			r, err := rec.Report()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, r, "  ")
			}
			return print(cmd, func(w io.Writer) { printReport(w, r) })
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// recorded describes where the figures of a report come from.
func recorded(r schedstat.Recorded) string {
	var parts []string
	if r.Command != nil {
		parts = append(parts, cosched.Printable(strings.Join(r.Command, " ")))
	}
	if r.ExitStatus != nil && *r.ExitStatus != 0 {
		parts = append(parts, fmt.Sprintf("exit status %d", *r.ExitStatus))
	}
	if r.Seconds > 0 {
		parts = append(parts, fmt.Sprintf("%.3f s", r.Seconds))
	}
	if !r.Started.IsZero() {
		parts = append(parts, r.Started.Format("2006-01-02 15:04:05 MST"))
	}
	if r.Kernel != "" {
		parts = append(parts, "Linux "+r.Kernel)
	}
	if r.Hostname != "" {
		parts = append(parts, r.Hostname)
	}
	return strings.Join(parts, ", ")
}

func printReport(w io.Writer, r *schedstat.Report) {
	if r.SinceBoot {
		fmt.Fprintln(w, "since boot; the balancer since the domains were built and kernel.sched_schedstats was switched on")
	}
	if line := recorded(r.Recorded); line != "" {
		fmt.Fprintln(w, line)
	}
	printNotes(w, "", r.Notes)
	fmt.Fprintln(w)
	table(w, func(w io.Writer) {
		fmt.Fprint(w, "CPU\tCPU s\tRUN ms\tWAIT ms\tTIMESLICES\tSCHEDULE()\tTO IDLE %\tWAKEUPS\tSAME CPU %\tYIELDS\n")
		for _, c := range r.CPUs {
			printRun(w, strconv.Itoa(*c.CPU), c)
		}
		printRun(w, "all", r.All)
	})
	for _, l := range r.Levels {
		fmt.Fprintln(w)
		printLevel(w, l)
	}
}

func printNotes(w io.Writer, of string, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(w, "note: %s%s\n", of, n)
	}
}

// of formats a share in percent.
func of(n, all uint64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", 100*float64(n)/float64(all))
}

func printRun(w io.Writer, name string, r schedstat.Run) {
	fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%d\t%d\t%s\t%d\t%s\t%d\n", name, time.Duration(r.RunNS).Seconds(), r.AverageRunMS.String(2), r.AverageWaitMS.String(2),
		r.Slices, r.Schedules, of(r.ToIdle, r.Schedules), r.Wakeups, of(r.WakeupsLocal, r.Wakeups), r.Yields)
}

func printLevel(w io.Writer, l *schedstat.Level) {
	size := strconv.Itoa(l.Span[0])
	if l.Span[1] != l.Span[0] {
		size = fmt.Sprintf("%d to %d", l.Span[0], l.Span[1])
	}
	domains := "domains"
	if l.Domains == 1 {
		domains = "domain"
	}
	fmt.Fprintf(w, "%s: CPU %s in %d %s of %s CPUs\n", l.Name, l.CPUs, l.Domains, domains, size)
	table(w, func(w io.Writer) {
		row := func(name string, cell func(b *schedstat.Balance) (number, share string)) {
			fmt.Fprint(w, name)
			for _, b := range l.Kinds() {
				n, share := cell(b)
				fmt.Fprintf(w, "\t%s\t%s", n, share)
			}
			fmt.Fprintln(w)
		}
		count := func(name string, n, all func(b *schedstat.Balance) uint64) {
			row(name, func(b *schedstat.Balance) (string, string) {
				return strconv.FormatUint(n(b), 10), of(n(b), all(b))
			})
		}
		calls := func(b *schedstat.Balance) uint64 { return b.Calls }
		moved := func(b *schedstat.Balance) uint64 { return b.Moved }
		fmt.Fprint(w, "CALLS OF THE BALANCER\tIDLE\t%\tBUSY\t%\tNEWLY IDLE\t%\n")
		count("calls, of all", calls, func(*schedstat.Balance) uint64 { return l.Calls() })
		count("  no busier group", func(b *schedstat.Balance) uint64 { return b.NoGroup }, calls)
		count("  no busier queue", func(b *schedstat.Balance) uint64 { return b.NoQueue }, calls)
		count("  left or pinned", func(b *schedstat.Balance) uint64 { return b.Left }, calls)
		count("  failed", func(b *schedstat.Balance) uint64 { return b.Failed }, calls)
		count("  moved a task", func(b *schedstat.Balance) uint64 { return b.Succeeded }, calls)
		row("tasks moved", func(b *schedstat.Balance) (string, string) { return strconv.FormatUint(b.Moved, 10), "" })
		count("  cache-hot ones", func(b *schedstat.Balance) uint64 { return b.Hot }, moved)
		for i, m := range l.Idle.Imbalances {
			if !slices.ContainsFunc(l.Kinds(), func(b *schedstat.Balance) bool { return b.Imbalances[i].Sum > 0 }) {
				continue
			}
			row(m.Name(), func(b *schedstat.Balance) (string, string) { return b.Imbalances[i].Average.String(3), "" })
		}
	})
	fmt.Fprintf(w, "active balancing: %d calls, %d failed, %d moved a task\n", l.Active.Calls, l.Active.Failed, l.Active.Moved)
	fmt.Fprintf(w, "on exec: %d calls, %d moved a task; on fork: %d calls, %d moved a task\n", l.Exec.Calls, l.Exec.Moved, l.Fork.Calls, l.Fork.Moved)
	fmt.Fprintf(w, "wakeups onto another CPU: %d, affine: %d, passive: %d\n", l.Wakeups.Remote, l.Wakeups.Affine, l.Wakeups.Passive)
}

func schedstatDiffCmd() *cobra.Command {
	var asJSON bool
	var top int
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "show what differs between two recordings",
		Long: `Compares two recordings, of a machine with and without the NUMA level for example, and
shows first what changed by the largest factor.

Figures of few events also differ by chance. The changes are therefore sorted by the end of
their 95 % confidence interval that is nearer to no change, under the assumption that
events are independent: 1000 to 2000 comes before 1 to 5. If the interval includes no
change, the line is left out; JSON has all lines.

Counts are per second. Recordings that do not say how long they took, such as copies of
/proc/schedstat, are compared by shares and averages alone.`,
		Example: `  cosched schedstat diff before.json after.json
  cosched schedstat diff --json before.json after.json`,
		Args: cobra.ExactArgs(2),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if top < 0 {
				return usage("--top %d: want 0, for all, or more", top)
			}
			var reports [2]*schedstat.Report
			for i, name := range args {
				rec, err := schedstat.Read(name)
				if err == nil {
					reports[i], err = rec.Report()
				}
				if err != nil {
					return err
				}
			}
			d := schedstat.Compare(args[0], reports[0], args[1], reports[1])
			if asJSON {
				return printJSON(cmd, d, "  ")
			}
			return print(cmd, func(w io.Writer) { printDiff(w, d, top) })
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVarP(&top, "top", "n", 20, "print this `NUMBER` of changes, 0 for all")
	return cmd
}

func printDiff(w io.Writer, d *schedstat.Diff, top int) {
	table(w, func(w io.Writer) {
		fmt.Fprintf(w, "A\t%s\t%s\n", d.A.Name, recorded(d.A.Recorded))
		fmt.Fprintf(w, "B\t%s\t%s\n", d.B.Name, recorded(d.B.Recorded))
	})
	printNotes(w, "A: ", d.A.Notes)
	printNotes(w, "B: ", d.B.Notes)
	for _, o := range d.Only {
		fmt.Fprintf(w, "%s is in %s only, with %d calls of the balancer\n", o.Level, o.In, o.Calls)
	}
	shown, rest := 0, 0
	fmt.Fprintln(w)
	table(w, func(w io.Writer) {
		fmt.Fprint(w, "CHANGE\tA\tB\tWHERE\tWHAT\n")
		for _, c := range d.Changes {
			switch {
			case !c.Changed():
				rest++
			case top == 0 || shown < top:
				shown++
				where := c.Level
				if c.Kind != "" {
					where += ", " + c.Kind
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", factor(c), number(c.A), number(c.B), where, c.What)
			}
		}
	})
	fmt.Fprintf(w, "\n%d more changed; %d that differ by no more than chance\n", len(d.Changes)-rest-shown, rest)
}

// factor formats a change in percent, or as a multiple if it is large.
func factor(c schedstat.Change) string {
	f := c.Factor
	switch {
	case !f.OK:
		return "from 0"
	case f.Value == 0:
		return "to 0"
	case f.Value >= 2:
		return fmt.Sprintf("x %.2f", f.Value)
	case f.Value <= 0.5:
		return fmt.Sprintf("/ %.2f", 1/f.Value)
	}
	return fmt.Sprintf("%+.1f %%", 100*(f.Value-1))
}

// number formats four digits, or all digits before the point if there are more.
func number(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
