package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cosched.io/cosched/internal/detect"
	"cosched.io/cosched/internal/detect/cost"
	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("cost", "measure from outside what cosched detect costs a program", runCost)
}

const costUsage = `usage: coslab cost [OPTIONS]

Runs a program with 256 threads that take locks, and observes it again and again as cosched
detect does, with pauses in between. Each observation is called a look, and lasts from the
start of the observing process to its end. The CPU time that the program needs for a lock
during a look is compared with the CPU time just before and after. To correct for the speed of
the CPUs, it is measured relative to the CPU time that another program needs for loops at the
same time. Needs root and eBPF. If there is other load on the machine, it takes more looks
until the confidence interval is narrow. --nothing shows what the method itself reports if
there is nothing to find. With --faults, 32 threads fault on pages of shared memory, they are
observed as by detect --faults, and the CPU time for a fault is measured.

options:
`

// costReport is the result of the measurement.
type costReport struct {
	Time    time.Time   `json:"time"`
	Kernel  string      `json:"kernel"`
	CPUs    int         `json:"cpus"` // number of CPUs that this process may use
	Nothing bool        `json:"nothing"`
	Faults  bool        `json:"faults"` // page faults are measured, instead of locks
	Loops   int         `json:"loops"`
	For     string      `json:"for"`
	Rest    string      `json:"rest"`
	Limit   float64     `json:"limit_percent"`
	Watched watched     `json:"watched"`
	CPU     cost.Median `json:"cpu_percent"`
	Raw     cost.Median `json:"raw_cpu_percent"`
	Speed   cost.Median `json:"speed_percent"`
	Said    cost.Median `json:"said_percent"`
	Own     cost.Median `json:"own_percent"`
	Rate    cost.Median `json:"work_per_second"`
	Each    cost.Median `json:"work_per_cpu_second"`
	Pairs   []cost.Pair `json:"pairs"`
}

// watched is the number of events that detect observed.
type watched struct {
	LockCalls   uint64 `json:"lock_calls"`
	SystemCalls uint64 `json:"system_calls"`
	PageFaults  uint64 `json:"page_faults"`
}

func runCost(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab cost", flag.ContinueOnError)
	looks := fs.Int("looks", 100, "`number` of looks, at least 6")
	lasting := fs.Duration("for", time.Second, "how long detect observes in each look, a `time`")
	rest := fs.Duration("rest", 1500*time.Millisecond, "mean `time` between two looks")
	limit := fs.Float64("limit", 5, "`percent` that detect may cost")
	loops := fs.Int("loops", 700, "work between two locks or faults, as a `number` of loops")
	nothing := fs.Bool("nothing", false, "do not observe: sleep instead")
	faults := fs.Bool("faults", false, "measure the cost of page faults instead of locks")
	pid := fs.Int("pid", 0, "only observe the process with this `PID`, once, and print the cost that detect reports")
	asJSON := fs.Bool("json", false, "print JSON, with each look")
	out := fs.String("out", "", "also write the JSON to this `file`")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), costUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *looks < 6 || *loops < 1 || *rest < 100*time.Millisecond {
		return errors.New("--looks must be at least 6, --loops at least 1 and --rest at least 100ms")
	}
	if *pid != 0 {
		return observe(ctx, *pid, *lasting, *limit, *faults)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	root, err := kbuild.FindRoot()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "coslab-cost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	share := filepath.Join(dir, "share")
	source := filepath.Join(root, "tools/cosched/internal/command/testdata/share.c")
	if out, err := exec.CommandContext(ctx, "gcc", "-O2", "-pthread", "-o", share, source).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", source, err, out)
	}
	mode, unit := "steady", "lock"
	if *faults {
		mode, unit = "faults", "fault"
	}
	worker, err := startWorker(ctx, share, mode, *loops)
	if err != nil {
		return err
	}
	defer worker.stop()
	speed, err := startWorker(ctx, share, "speed", burst)
	if err != nil {
		return err
	}
	defer speed.stop()
	r := costReport{Time: time.Now().UTC().Truncate(time.Second), Nothing: *nothing, Faults: *faults, Loops: *loops,
		For: lasting.String(), Rest: rest.String(), Limit: *limit}
	var u unix.Utsname
	var mask unix.CPUSet
	if err := errors.Join(unix.Uname(&u), unix.SchedGetaffinity(0, &mask)); err != nil {
		return err
	}
	r.Kernel, r.CPUs = unix.ByteSliceToString(u.Release[:]), mask.Count()
	argv := []string{self, "cost", "--for", lasting.String(),
		"--limit", strconv.FormatFloat(*limit, 'g', -1, 64), "--pid", strconv.Itoa(worker.cmd.Process.Pid),
		"--faults=" + strconv.FormatBool(*faults)}
	if *nothing {
		argv = []string{"sleep", strconv.FormatFloat(lasting.Seconds(), 'g', -1, 64)}
	}
	var list []cost.Look
	for i := range *looks {
		// Up to half more or less, so that the looks do not run in step with anything else on the
		// machine.
		if err := pause(ctx, *rest/2+rand.N(*rest)); err != nil {
			return err
		}
		l, saw, err := look(ctx, argv, !*nothing)
		if err != nil {
			return err
		}
		list = append(list, l)
		r.Watched.LockCalls += saw.LockCalls
		r.Watched.SystemCalls += saw.SystemCalls
		r.Watched.PageFaults += saw.PageFaults
		if !*asJSON {
			fmt.Fprintf(os.Stderr, "\rlook %d of %d", i+1, *looks)
		}
	}
	if !*asJSON {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	if err := pause(ctx, *rest); err != nil {
		return err
	}
	points, err := worker.stop()
	if err != nil {
		return err
	}
	speeds, err := speed.stop()
	if err != nil {
		return err
	}
	if r.Pairs, err = cost.Compare(points, speeds, list); err != nil {
		return err
	}
	for _, m := range []struct {
		to *cost.Median
		of func(cost.Pair) float64
	}{
		{&r.CPU, func(p cost.Pair) float64 { return p.CPU }},
		{&r.Raw, func(p cost.Pair) float64 { return p.Raw }},
		{&r.Speed, func(p cost.Pair) float64 { return p.Speed }},
		{&r.Said, func(p cost.Pair) float64 { return p.Said }},
		{&r.Own, func(p cost.Pair) float64 { return p.Own }},
		{&r.Rate, func(p cost.Pair) float64 { return p.Rate }},
		{&r.Each, func(p cost.Pair) float64 { return p.Each }},
	} {
		if *m.to, err = cost.MedianOf(r.Pairs, m.of); err != nil {
			return err
		}
	}
	if *out != "" {
		var b bytes.Buffer
		if err := errors.Join(printJSON(&b, r), os.WriteFile(*out, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	if *asJSON {
		return printJSON(os.Stdout, r)
	}
	fmt.Printf("%d looks of %s, %s between; Linux %s, %d CPUs; medians, with their intervals of 95 %%\n", len(r.Pairs), r.For, r.Rest, r.Kernel, r.CPUs)
	fmt.Printf("detect saw %d lock calls, %d system calls, %d page faults\n", r.Watched.LockCalls, r.Watched.SystemCalls, r.Watched.PageFaults)
	for _, line := range []struct {
		m    cost.Median
		unit string
		what string
	}{
		{r.CPU, "%", "more CPU time for a " + unit + " while observed"},
		{r.Raw, "%", "the same, without the correction for the speed of the CPUs"},
		{r.Said, "%", "as detect reports it"},
		{r.Speed, "%", "fewer " + unit + "s in the same time, with the CPU time of cosched"},
		{r.Own, "%", "of one CPU used by cosched"},
		{r.Rate, " ", unit + "s a second while observed"},
		{r.Each, " ", unit + "s per second of CPU time while observed"},
	} {
		digits := 1
		if line.unit == " " {
			digits = 0
		}
		fmt.Printf("%9.*f %s  (%.*f to %.*f)  %s\n", digits, line.m.Median, line.unit, digits, line.m.Low, digits, line.m.High, line.what)
	}
	return nil
}

// observe does what cosched detect does, except that it does not look for groups in what it
// observed. detect does that afterwards, and on a busy machine it would take longer.
func observe(ctx context.Context, pid int, lasting time.Duration, limit float64, faults bool) error {
	c, err := detect.Open(limit/100, faults)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Observe(detect.Processes("/proc", []int{pid}, func() {})); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	var last detect.Overhead
	// The interval is the same as in cosched detect.
	if err := c.Run(ctx, 500*time.Millisecond, func(_ *detect.Sample, o detect.Overhead) { last = o }); err != nil {
		return err
	}
	return printJSON(os.Stdout, struct {
		detect.Overhead
		Share float64 `json:"overhead_share"`
	}{last, last.Share()})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano()), err
}

// look runs the observing program. If says is set, saw is what that program prints.
func look(ctx context.Context, argv []string, says bool) (l cost.Look, saw watched, err error) {
	if l.From, err = monotonic(); err != nil {
		return l, saw, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return l, saw, fmt.Errorf("%v: %w\n%s", argv, err, stderr.Bytes())
	}
	if l.To, err = monotonic(); err != nil {
		return l, saw, err
	}
	l.Own = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if !says {
		return l, saw, nil
	}
	said := struct {
		*watched
		Share float64 `json:"overhead_share"`
	}{watched: &saw}
	if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
		return l, saw, fmt.Errorf("%v: %w", argv, err)
	}
	l.Said = said.Share
	return l, saw, nil
}

// worker is the program that is observed, and what it reports.
type worker struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	once   sync.Once
	read   chan error
	points []cost.Point
}

// reports is the time between two reports of the program, in ms: short compared with looks that
// last a second, and long enough that reporting costs almost nothing.
const reports = 20

// burst is how many loops the other program does at a time: a third of a millisecond, so that the
// system calls between the bursts, which may be observed, cost almost nothing in comparison.
const burst = 1000000

func startWorker(ctx context.Context, share, mode string, loops int) (*worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{cancel: cancel, read: make(chan error, 1)}
	w.cmd = exec.CommandContext(ctx, share, mode, strconv.Itoa(loops), strconv.Itoa(reports))
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var p cost.Point
			if _, err := fmt.Sscan(lines.Text(), &p.Time, &p.Work, &p.CPU); err != nil {
				w.read <- fmt.Errorf("%s prints %q: %w", share, lines.Text(), err)
				return
			}
			w.points = append(w.points, p)
		}
		w.read <- lines.Err()
	}()
	return w, nil
}

// stop ends the program and gives what it reported.
func (w *worker) stop() (points []cost.Point, err error) {
	w.once.Do(func() {
		w.cancel()
		err = <-w.read
		// The program was killed, so an error is expected.
		_ = w.cmd.Wait()
	})
	return w.points, err
}
