// Package acts is the part of the demonstration that runs in the guest: it
// makes two clusters, puts them under load, and reads how the kernel places
// their threads. It invents nothing: every figure comes from cosched.stat,
// cosched.load or /proc.
package acts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/demo"
)

// Config says where the guest's files and programs are.
type Config struct {
	Cgroup    string // mount point of cgroup v2
	Proc      string // mount point of procfs
	SysCPU    string // CPU directory of sysfs
	StressNG  string // path of stress-ng
	Warehouse string // path of the sharing workload
	Out       io.Writer
}

const (
	// interval between two readings. A reading costs the guest's CPUs some
	// milliseconds under emulation; more often would show up as load.
	interval = 250 * time.Millisecond
	// started is the CPU time after which a worker counts as up.
	started = userHz / 10
	// patience bounds each wait for the guest.
	patience = 40 * time.Second
)

// stage is the guest: two clusters and what is known about them.
type stage struct {
	ctx   context.Context
	cfg   Config
	llcs  []cosched.CPUs
	llcOf map[int]int // LLC domain of each CPU
	shop  *cluster
	batch *cluster
}

// cluster is one of the two cgroups, with the cgroups of its jobs below it.
type cluster struct {
	name  string
	group cosched.Group
}

// job is a program that runs in a cgroup of its own.
type job struct {
	name   string
	group  cosched.Group
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan error
}

func newStage(ctx context.Context, cfg Config) (*stage, error) {
	llcs, err := cosched.LLCs(cfg.SysCPU)
	if err != nil {
		return nil, err
	}
	s := &stage{ctx: ctx, cfg: cfg, llcs: llcs, llcOf: make(map[int]int)}
	for i, l := range llcs {
		for _, cpu := range l {
			s.llcOf[cpu] = i
		}
	}
	if len(llcs) != 4 || slices.ContainsFunc(llcs, func(l cosched.CPUs) bool { return len(l) != 4 }) {
		return nil, fmt.Errorf("the acts are written for 4 LLC domains of 4 CPUs; this guest has %v", llcs)
	}
	return s, nil
}

func (s *stage) hello(acts int) error {
	release, err := os.ReadFile(filepath.Join(s.cfg.Proc, "sys/kernel/osrelease"))
	if err != nil {
		return err
	}
	h := demo.Hello{Kernel: strings.TrimSpace(string(release)), CPUs: len(s.llcOf), Acts: acts}
	for _, l := range s.llcs {
		h.LLCs = append(h.LLCs, l.String())
	}
	return demo.Send(s.cfg.Out, demo.Event{Hello: &h})
}

// act is one act under way.
type act struct {
	*stage
	began  time.Time
	result demo.Result
}

func (s *stage) begin(n int, title, see string) (*act, error) {
	a := &act{stage: s, began: time.Now(), result: demo.Result{N: n, Title: title, See: see, OK: true}}
	return a, demo.Send(s.cfg.Out, demo.Event{Begin: &demo.Begin{N: n, Title: title, See: see}})
}

func (a *act) end() error {
	return demo.Send(a.cfg.Out, demo.Event{Result: &a.result})
}

func (a *act) note(format string, args ...any) error {
	return demo.Send(a.cfg.Out, demo.Event{Note: fmt.Sprintf(format, args...)})
}

// say reports a command; what it does has been done, or is done next.
func (a *act) say(format string, args ...any) error {
	cmd := fmt.Sprintf(format, args...)
	a.result.Commands = append(a.result.Commands, cmd)
	return demo.Send(a.cfg.Out, demo.Event{Cmd: cmd})
}

// check records a figure that decides whether the act showed what it promises.
func (a *act) check(ok bool, what, got, want, source string) {
	a.result.Checks = append(a.result.Checks, demo.Check{What: what, Got: got, Want: want, Source: source, OK: ok})
	a.result.OK = a.result.OK && ok
}

// atLeast checks a percentage.
func (a *act) atLeast(what string, got, want float64, source string) {
	a.check(got >= want, what, percent(got), "at least "+percent(want), source)
}

func (a *act) atMost(what string, got, want float64, source string) {
	a.check(got <= want, what, percent(got), "at most "+percent(want), source)
}

func percent(p float64) string { return fmt.Sprintf("%.1f %%", p) }

// write shows and does `echo value > file`.
func (a *act) write(g cosched.Group, file, value string) error {
	echo := "echo"
	if value != "" {
		echo += " " + value
	}
	if err := a.say("%s > %s", echo, g.Path(file)); err != nil {
		return err
	}
	return g.Write(file, value)
}

// mkdir shows and makes a cgroup.
func (a *act) mkdir(g cosched.Group) error {
	if err := a.say("mkdir %s", g); err != nil {
		return err
	}
	return os.Mkdir(string(g), 0o755)
}

// start runs a program in a new cgroup below a cluster and waits until as many
// of its threads as it has workers have run.
func (a *act) start(c *cluster, name string, workers int, argv ...string) (*job, error) {
	j := &job{name: name, group: cosched.Group(c.group.Path(name)), ended: make(chan error, 1)}
	if err := a.mkdir(j.group); err != nil {
		return nil, err
	}
	dir, err := os.Open(string(j.group))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	shown := append([]string{filepath.Base(argv[0])}, argv[1:]...)
	if err := a.say("%s &   # in %s", strings.Join(shown, " "), j.group); err != nil {
		return nil, err
	}
	j.cmd = exec.CommandContext(a.ctx, argv[0], argv[1:]...)
	j.cmd.Stdout, j.cmd.Stderr = &j.output, &j.output
	j.cmd.Dir = "/tmp"
	// The clone itself puts the child into the cgroup: it never runs elsewhere.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s in %s: %w", argv[0], j.group, err)
	}
	go func() { j.ended <- j.cmd.Wait() }()
	if err := a.note("waiting for %d workers of %s", workers, shown[0]); err != nil {
		return nil, err
	}
	return j, a.wait(fmt.Sprintf("%d workers of %s to run", workers, shown[0]), func() (bool, error) {
		select {
		case err := <-j.ended:
			return false, fmt.Errorf("%s ended early (%v): %s", argv[0], err, strings.TrimSpace(j.output.String()))
		default:
		}
		running, err := a.workers(j)
		return len(running) >= workers, err
	})
}

// workers gives the threads of a job that have run, without its first process,
// which only waits for them.
func (s *stage) workers(j *job) (map[int]threadStat, error) {
	all, err := s.threads(j.group)
	for tid, t := range all {
		if t.ticks < started || tid == j.cmd.Process.Pid {
			delete(all, tid)
		}
	}
	return all, err
}

// stop kills everything in a job's cgroup and removes it.
func (a *act) stop(j *job) error {
	if err := a.write(j.group, "cgroup.kill", "1"); err != nil {
		return err
	}
	err := a.wait("the processes in "+string(j.group)+" to end", func() (bool, error) {
		b, err := os.ReadFile(j.group.Path("cgroup.procs"))
		return len(b) == 0, err
	})
	if err != nil {
		return err
	}
	return a.wait(string(j.group)+" to be removable", func() (bool, error) {
		err := os.Remove(string(j.group))
		if errors.Is(err, syscall.EBUSY) {
			return false, nil
		}
		return err == nil, err
	})
}

// wait polls until a condition holds, and fails if it does not in time.
func (s *stage) wait(what string, done func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", patience, what)
		}
		if err := s.sleep(20 * time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *stage) sleep(d time.Duration) error {
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// threads reads every thread in a cgroup and the cgroups below it.
func (s *stage) threads(g cosched.Group) (map[int]threadStat, error) {
	all := make(map[int]threadStat)
	err := filepath.WalkDir(string(g), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.threads"))
		if err != nil {
			return err
		}
		tids, err := parseTIDs(b)
		if err != nil {
			return fmt.Errorf("%s/cgroup.threads: %w", path, err)
		}
		for _, tid := range tids {
			t, err := readThreadStat(s.cfg.Proc, tid)
			if gone(err) {
				continue
			}
			if err != nil {
				return err
			}
			all[tid] = t
		}
		return nil
	})
	return all, err
}

// gone tells that a thread ended between listing and reading it.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// window is what was read over a stretch of time.
type window struct {
	wall     time.Duration
	idle     float64 // of the time of all CPUs, in percent
	clusters map[*cluster]*clusterWindow
}

// clusterWindow is what a cluster did in a window.
type clusterWindow struct {
	home  cosched.CPUs
	stat  cosched.Stat   // counted in the window
	util  []uint64       // of cosched.load, by LLC domain, summed over the readings
	ticks map[int]uint64 // CPU time by the CPU where a thread was last seen, from /proc
}

// watch reads both clusters for some time, reporting each reading.
func (a *act) watch(d time.Duration) (*window, error) {
	w := &window{clusters: make(map[*cluster]*clusterWindow)}
	clusters := []*cluster{a.shop, a.batch}
	ticks := make(map[*cluster]map[int]threadStat)
	stat := make(map[*cluster]cosched.Stat)
	for _, c := range clusters {
		cw := &clusterWindow{util: make([]uint64, len(a.llcs)), ticks: make(map[int]uint64)}
		w.clusters[c] = cw
		var err error
		if cw.home, err = c.group.Effective(); err != nil {
			return nil, err
		}
		if ticks[c], err = a.threads(c.group); err != nil {
			return nil, err
		}
		if stat[c], err = c.group.Stat(); err != nil {
			return nil, err
		}
	}
	first, err := a.readIdle()
	if err != nil {
		return nil, err
	}
	last := first
	for last.at.Sub(first.at) < d {
		if err := a.sleep(interval); err != nil {
			return nil, err
		}
		now, err := a.readIdle()
		if err != nil {
			return nil, err
		}
		live := demo.Sample{
			Seconds: now.at.Sub(a.began).Seconds(),
			Busy:    float64(len(a.llcOf)) * (1 - now.since(last)/100),
		}
		last = now
		for _, c := range clusters {
			cw := w.clusters[c]
			part := clusterWindow{home: cw.home, util: make([]uint64, len(a.llcs)), ticks: make(map[int]uint64)}
			now, err := a.threads(c.group)
			if err != nil {
				return nil, err
			}
			for tid, t := range now {
				part.ticks[t.cpu] += t.ticks - ticks[c][tid].ticks
			}
			ticks[c] = now
			load, err := c.group.Load()
			if err != nil {
				return nil, err
			}
			for i, l := range load.LLCs {
				if i >= len(part.util) {
					return nil, fmt.Errorf("%s has more LLC domains than sysfs", c.group.Path(cosched.FileLoad))
				}
				part.util[i] = l.Util
			}
			live.Rows = append(live.Rows, a.row(c, &part, ""))
			for cpu, n := range part.ticks {
				cw.ticks[cpu] += n
			}
			for i, n := range part.util {
				cw.util[i] += n
			}
		}
		if err := demo.Send(a.cfg.Out, demo.Event{Sample: &live}); err != nil {
			return nil, err
		}
	}
	for _, c := range clusters {
		now, err := c.group.Stat()
		if err != nil {
			return nil, err
		}
		w.clusters[c].stat = now.Sub(stat[c])
	}
	w.wall, w.idle = last.at.Sub(first.at), last.since(first)
	return w, nil
}

// row makes a line of the heat map: by cosched.load where a cluster exists, by
// the time in /proc where the cgroup has no preference and so no cluster.
func (s *stage) row(c *cluster, cw *clusterWindow, when string) demo.Row {
	r := demo.Row{Cluster: c.name, When: when, Home: cw.home.String(), Source: "/proc"}
	parts := cw.byLLC(s)
	ran := shares(parts) != nil
	if len(cw.home) > 0 {
		r.Source, parts = cosched.FileLoad, cw.util
	}
	// Load outlives the thread that made it for a while.
	if ran {
		r.Share = shares(parts)
	}
	return r
}

// byLLC sums the CPU time in /proc by LLC domain.
func (cw *clusterWindow) byLLC(s *stage) []uint64 {
	parts := make([]uint64, len(s.llcs))
	for cpu, n := range cw.ticks {
		if i, ok := s.llcOf[cpu]; ok {
			parts[i] += n
		}
	}
	return parts
}

// show adds the line of a measured window to the act's result.
func (a *act) show(w *window, when string) {
	for _, c := range []*cluster{a.shop, a.batch} {
		a.result.Rows = append(a.result.Rows, a.row(c, w.clusters[c], when))
	}
}

// homeShare gives the share of a window's CPU time that cosched.stat counted at
// home; 0 where there was none.
func (cw *clusterWindow) homeShare() float64 {
	p, _ := cw.stat.HomeShare()
	return p
}

// shares turns parts into percentages of their sum; nil where that is nothing.
func shares(parts []uint64) []float64 {
	var sum uint64
	for _, p := range parts {
		sum += p
	}
	if sum == 0 {
		return nil
	}
	out := make([]float64, len(parts))
	for i, p := range parts {
		out[i] = 100 * float64(p) / float64(sum)
	}
	return out
}

// idleReading is the idle time of all CPUs at a moment.
type idleReading struct {
	at  time.Time
	sum uint64 // in 1/userHz s
	n   int
}

func (s *stage) readIdle() (idleReading, error) {
	b, err := os.ReadFile(filepath.Join(s.cfg.Proc, "stat"))
	if err != nil {
		return idleReading{}, err
	}
	r := idleReading{at: time.Now()}
	idle, err := parseIdle(b)
	for _, n := range idle {
		r.sum += n
	}
	r.n = len(idle)
	return r, err
}

// since gives the idle share of all CPUs' time since an earlier reading, in percent.
func (r idleReading) since(before idleReading) float64 {
	wall := r.at.Sub(before.at).Seconds() * float64(r.n)
	if wall <= 0 || r.sum < before.sum {
		return 0
	}
	return min(100, 100*float64(r.sum-before.sum)/userHz/wall)
}

// quiet keeps the Go runtime from being a load of its own on the guest's CPUs.
func quiet() { runtime.GOMAXPROCS(2) }
