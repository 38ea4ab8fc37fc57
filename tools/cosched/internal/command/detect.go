package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/detect"
)

// detectInterval is how often the counts are taken from the kernel. The groups of every other
// interval are compared with those of the remaining ones, so the interval is short enough that
// there are several of them even in a short observation.
const detectInterval = 500 * time.Millisecond

// detection holds the options of detect.
type detection struct {
	pids    []int
	cgroup  string
	lasting time.Duration
	limit   float64
	faults  bool
	asJSON  bool
	plot    string
	apply   string
	follow  bool
}

func detectCmd(h cosched.Host) *cobra.Command {
	var d detection
	cmd := &cobra.Command{
		Use:   "detect --pid PID[,PID...] | --cgroup PATH | -- COMMAND [ARGUMENT...]",
		Short: "find threads that share locks, and make clusters of them",
		Long: `Counts which threads use which lock and which threads wake each other, on any kernel with
eBPF. It groups the threads that share more with each other than with others, by Louvain's
method. If all threads share alike, it says so and gives no groups.

It observes futexes, also in shared memory; calls of pthread_mutex_lock and other
functions of the C library that take locks; and wakeups in system calls, through pipes,
sockets and the like. With --faults it also observes page faults in memory that is shared
without locks. The cost to the observed processes is measured, and kept below --limit by
observing only part of the time. With --follow, it looks for groups after each --for.

All threads of a process are observed, and the processes that it starts. Needs root.`,
		Example: `  cosched detect --pid $(pidof -s mysqld)
  cosched detect --cgroup /sys/fs/cgroup/system.slice/postgresql.service --for 30s
  cosched detect --faults -- ./shop --jobs 8
  cosched detect --plot locks.png -- java -jar shop.jar
  cosched detect --pid 4711 --apply shop --follow`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if err := d.check(args, cmd.Flags().Changed("for")); err != nil {
				return err
			}
			return d.run(h, cmd, args)
		}),
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the arguments after COMMAND belong to COMMAND
	f.IntSliceVar(&d.pids, "pid", nil, "observe these processes, `PID[,PID...]`")
	f.StringVar(&d.cgroup, "cgroup", "", "observe the processes in the cgroup at `PATH`, and below it")
	f.DurationVar(&d.lasting, "for", 10*time.Second, "how long to observe, a `time`; without --for, COMMAND is\nobserved to its end unless --apply or --follow is given")
	f.Float64Var(&d.limit, "limit", 5, "`percent` of their CPU time that the observed processes may lose")
	f.BoolVar(&d.faults, "faults", false, "count page faults too: in shared memory, and where NUMA\nbalancing finds out which thread uses which memory")
	f.BoolVar(&d.asJSON, "json", false, "print JSON")
	f.StringVar(&d.plot, "plot", "", "write the matrix as a heat map to `FILE`.png or .svg")
	f.StringVar(&d.apply, "apply", "", "put each group into a cluster, `NAME`/1, NAME/2, ...")
	f.BoolVar(&d.follow, "follow", false, "continue until interrupted, and report what changes")
	_ = cmd.RegisterFlagCompletionFunc("apply", names(h, true))
	_ = cmd.RegisterFlagCompletionFunc("pid", cobra.NoFileCompletions)
	_ = cmd.MarkFlagDirname("cgroup")
	_ = cmd.MarkFlagFilename("plot", "png", "svg")
	return cmd
}

// check finds wrong usage. A command without --for is observed to its end, unless its threads
// are to be moved (--apply): at its end there would be no threads left to move.
func (d *detection) check(args []string, timed bool) error {
	ways := 0
	for _, given := range []bool{len(d.pids) > 0, d.cgroup != "", len(args) > 0} {
		if given {
			ways++
		}
	}
	for _, pid := range d.pids {
		if pid < 1 {
			return usage("--pid %d is not the number of a process", pid)
		}
	}
	switch {
	case ways != 1:
		return usage("give what to observe: exactly one of --pid, --cgroup and a command after --")
	case d.lasting < time.Second:
		return usage("--for %v: too short to see anything: give at least 1s", d.lasting)
	case !(d.limit > 0 && d.limit <= 100):
		return usage("--limit %v is not a percentage above 0 and up to 100", d.limit)
	case d.plot != "" && !detect.CanPlot(d.plot):
		return usage("--plot %s: want a file name that ends in .png or .svg", d.plot)
	}
	if len(args) > 0 && !timed && !d.follow && d.apply == "" {
		d.lasting = 0
	}
	return nil
}

// interval is what was observed in one interval, and what that cost.
type interval struct {
	sample   *detect.Sample
	overhead detect.Overhead
}

func (d *detection) run(h cosched.Host, cmd *cobra.Command, args []string) error {
	note := func(text string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), cosched.Printable(text))
	}
	clusters := &detect.Clusters{Host: h, Name: d.apply, Note: note}
	if d.apply != "" {
		if err := clusters.Prepare(); err != nil {
			return err
		}
	}
	if err := d.observe(h, cmd, args, clusters, note); err != nil {
		return clusters.Undo(err)
	}
	return nil
}

func (d *detection) observe(h cosched.Host, cmd *cobra.Command, args []string, clusters *detect.Clusters, note func(string)) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, unix.SIGTERM)
	defer stop()
	observing, end := context.WithCancel(ctx)
	defer end()
	collector, err := detect.Open(d.limit/100, d.faults)
	if err != nil {
		return d.unavailable(err)
	}
	defer collector.Close()
	var command *exec.Cmd
	ended := make(chan error, 1)
	switch {
	case len(args) > 0:
		path, err := lookPath(args[0])
		if err != nil {
			return err
		}
		if err := collector.ObserveChildren(); err != nil {
			return err
		}
		command = &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
		if d.asJSON {
			command.Stdout = cmd.ErrOrStderr()
		}
		detect.Leisurely(func() { command, err = start(command) })
		if err != nil {
			return err
		}
		go func() {
			ended <- command.Wait()
			end()
		}()
	case d.cgroup != "":
		err = collector.Observe(detect.Cgroup(h.Proc, d.cgroup))
	default:
		err = collector.Observe(detect.Processes(h.Proc, d.pids, end))
	}
	if err != nil {
		return err
	}

	// The search for groups can take longer than an interval. The collector continues meanwhile.
	intervals := make(chan interval, 1024)
	failed := make(chan error, 1)
	go func() {
		failed <- collector.Run(observing, detectInterval, func(s *detect.Sample, o detect.Overhead) { intervals <- interval{s, o} })
		close(intervals)
	}()
	look := &looks{d: d, h: h, cmd: cmd, clusters: clusters, tracker: detect.NewTracker()}
	err = look.all(intervals, end)
	end()
	for range intervals { // empty the channel, so that the collector can end
	}
	if err := errors.Join(err, <-failed); err != nil {
		return err
	}
	for _, why := range collector.Unwatched() {
		note("calls of lock functions are not observed in " + why)
	}
	if command != nil {
		select {
		case <-ended:
		default:
			// From here on, a signal ends this process as any other.
			stop()
			note(fmt.Sprintf("observing has ended; waiting for %s (PID %d)", args[0], command.Process.Pid))
			<-ended
		}
	}
	return nil
}

// unavailable says why the kernel does not accept the eBPF programs that count.
func (d *detection) unavailable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &cosched.Problem{Status: cosched.ExitNoPerm, Err: err, Text: fmt.Sprintf("eBPF: %v: be root", err)}
	}
	return &cosched.Problem{Status: cosched.ExitUnavailable, Err: err,
		Text: fmt.Sprintf("eBPF: %v: needs Linux 5.17 with CONFIG_DEBUG_INFO_BTF, CONFIG_BPF_EVENTS and CONFIG_UPROBE_EVENTS", err)}
}

// looks holds the state of the searches for groups in what was observed so far.
type looks struct {
	d        *detection
	h        cosched.Host
	cmd      *cobra.Command
	clusters *detect.Clusters
	tracker  *detect.Tracker
	n        int
}

// all collects intervals and looks for groups at the end of --for or, with --follow, after each
// --for.
func (l *looks) all(intervals <-chan interval, end func()) error {
	all, halves := detect.NewSample(), [2]*detect.Sample{detect.NewSample(), detect.NewSample()}
	var last detect.Overhead
	var lookedAt time.Duration
	alive := func(t detect.Thread) bool { return l.alive(t.TID) }
	odd := 0
	for i := range intervals {
		all.Add(i.sample)
		halves[odd].Add(i.sample)
		odd = 1 - odd
		last = i.overhead
		if l.d.lasting == 0 || last.Time-lookedAt < l.d.lasting {
			continue
		}
		if !l.d.follow {
			break
		}
		lookedAt = last.Time
		if err := l.look(all, halves, last); err != nil {
			return err
		}
		// Older observations count less and less.
		for _, s := range []*detect.Sample{all, halves[0], halves[1]} {
			s.Age(alive)
		}
	}
	end()
	if l.d.follow && l.n > 0 {
		return nil
	}
	return l.look(all, halves, last)
}

func (l *looks) alive(tid int) bool {
	_, err := os.Stat(filepath.Join(l.h.Proc, strconv.Itoa(tid)))
	return err == nil
}

// found is what look prints as JSON.
type found struct {
	detect.View
	Lost     detect.Lost     `json:"lost"`
	Overhead detect.Overhead `json:"overhead"`
	Share    float64         `json:"overhead_share"`
	Changes  []detect.Change `json:"changes,omitempty"`
}

func (l *looks) look(all *detect.Sample, halves [2]*detect.Sample, o detect.Overhead) error {
	l.n++
	var r *detect.Report
	detect.Leisurely(func() { r = detect.Find(all, halves) })
	if err := o.UpdateOwn(); err != nil {
		return err
	}
	changes := l.tracker.Update(r.Groups, l.alive)
	if l.d.apply != "" {
		if err := l.clusters.Apply(changes, l.tracker.Groups()); err != nil {
			return err
		}
		if len(r.Groups) > 0 && len(l.tracker.Groups()) == 0 {
			l.clusters.Note("the threads of all groups have ended, so no clusters are made: observe for less time with --for")
		}
	}
	if !l.d.follow {
		changes = nil // they say the same as the groups
	}
	// What was found is printed even if it cannot be plotted.
	err := l.print(r, all.Lost, o, changes)
	if l.d.plot != "" {
		err = errors.Join(err, writePlot(l.d.plot, r))
	}
	return err
}

func (l *looks) print(r *detect.Report, lost detect.Lost, o detect.Overhead, changes []detect.Change) error {
	if l.d.asJSON {
		indent := "  "
		if l.d.follow {
			indent = "" // each report is one line
		}
		return printJSON(l.cmd, found{r.View(), lost, o, o.Share(), changes}, indent)
	}
	return print(l.cmd, func(w io.Writer) {
		if l.n == 1 {
			r.Print(w, width(l.cmd.OutOrStdout()))
		} else {
			fmt.Fprintf(w, "%s\n", time.Now().Format(time.TimeOnly))
		}
		if l.d.follow {
			detect.PrintChanges(w, changes)
		}
		fmt.Fprintln(w)
		o.Print(w)
		lost.Print(w)
	})
}

// width is the width of the terminal, or 80 columns if the output is not a terminal.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

func writePlot(file string, r *detect.Report) error {
	var b bytes.Buffer
	if err := r.Plot(&b, filepath.Ext(file)); err != nil {
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return &cosched.Problem{Status: cosched.ExitCantCreate, Text: err.Error() + ": name a writable place for the plot", Err: err}
	}
	return nil
}
