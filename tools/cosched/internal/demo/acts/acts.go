package acts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/demo"
)

const (
	// settle is the time that placement gets after a change, measure the
	// time that a figure is taken over.
	settle  = 1500 * time.Millisecond
	measure = 4 * time.Second

	// atHome is the share of its CPU time that a cluster with as many threads
	// as home CPUs must spend at home. Not all: other CPUs are idle here, and
	// a thread takes one of them when something else runs at home.
	atHome = 95
	// nearHard is the share that weights of 4 1000 must keep at home. Not all:
	// a CPU that idles is used whatever the weights say.
	nearHard = 90
	// noIdle is the idle time, of all CPUs, that counts as none: less than one
	// CPU of 16 is worth. What remains are the moments before a CPU finds its
	// next thread, long ones where emulated CPUs wait for those of the host;
	// the unmodified kernel has them too.
	noIdle = 5
	// homecoming bounds the time that strays take to come home; emulated CPUs
	// share those of the host, so it is far above what a real machine needs.
	homecoming = time.Second
)

// Run plays all acts, reporting to cfg.Out. An error means that the guest could
// not go on; that an act did not show what it promises is in its Result.
func Run(ctx context.Context, cfg Config) error {
	quiet()
	s, err := newStage(ctx, cfg)
	if err != nil {
		return err
	}
	if err := s.switchOn(); err != nil {
		return err
	}
	p := &play{stage: s}
	acts := []func() error{p.scattered, p.kept, p.spilled, p.returned, p.limited, p.weighed}
	if err := s.hello(len(acts)); err != nil {
		return err
	}
	for i, f := range acts {
		if err := f(); err != nil {
			return fmt.Errorf("act %d: %w", i+1, err)
		}
	}
	return nil
}

// switchOn makes a cluster without tasks, which stays for the whole run: the first
// cluster makes the kernel patch its scheduler, and QEMU before 8.1 can fail a
// guest whose CPUs run the code that is patched. Now they are idle.
func (s *stage) switchOn() error {
	root := cosched.Group(s.cfg.Cgroup)
	if err := root.EnableChildren(cosched.Controller); err != nil {
		return err
	}
	first := cosched.Group(root.Path("first"))
	if err := os.Mkdir(string(first), 0o755); err != nil {
		return err
	}
	return first.SetPreferred(s.llcs[0])
}

// play is the state that one act hands to the next.
type play struct {
	*stage
	store  *job // the sharing workload, in shop
	peak   *job // what makes shop larger than its home
	crunch *job // compute, in batch
}

// home gives the LLC domain that is a cluster's home.
func (p *play) home(c *cluster) cosched.CPUs {
	if c == p.shop {
		return p.llcs[0]
	}
	return p.llcs[2]
}

func (p *play) allCPUs() cosched.CPUs { return slices.Concat(p.llcs...) }

func (p *play) stress(n int) []string {
	// int64 has short operations, so that a worker is up soon and ends soon.
	return []string{p.cfg.StressNG, "--cpu", strconv.Itoa(n), "--cpu-method", "int64", "--quiet"}
}

func (p *play) warehouse(threads int) []string {
	return []string{p.cfg.Warehouse, "--warehouses", "1", "--workers", strconv.Itoa(threads), "--time", "3600000"}
}

// cacheAware says whether the kernel gathers the threads of one process by itself, as those
// from 7.2 on may.
func cacheAware() bool {
	on, err := os.ReadFile("/sys/kernel/debug/sched/llc_balancing/enabled")
	return err == nil && strings.TrimSpace(string(on)) != "0"
}

// 1: without a preference.
func (p *play) scattered() error {
	a, err := p.begin(1, "scattered without a preference",
		"Two groups of four threads, no preference: the kernel spreads each over the LLC domains, so that threads that share data share no cache.")
	if err != nil {
		return err
	}
	root := cosched.Group(p.cfg.Cgroup)
	if err := a.write(root, "cgroup.subtree_control", "+cosched +cpuset"); err != nil {
		return err
	}
	p.shop = &cluster{"shop", cosched.Group(root.Path("shop"))}
	p.batch = &cluster{"batch", cosched.Group(root.Path("batch"))}
	for _, c := range []*cluster{p.shop, p.batch} {
		if err := a.mkdir(c.group); err != nil {
			return err
		}
	}
	if p.store, err = a.start(p.shop, "store", 4, p.warehouse(4)...); err != nil {
		return err
	}
	if p.crunch, err = a.start(p.batch, "crunch", 4, p.stress(4)...); err != nil {
		return err
	}
	w, err := a.watch(measure)
	if err != nil {
		return err
	}
	a.show(w, "")
	for _, c := range []*cluster{p.shop, p.batch} {
		if c == p.shop && cacheAware() {
			continue // batch is of processes
		}
		used := 0
		for _, share := range shares(w.clusters[c].byLLC(p.stage)) {
			if share >= 5 {
				used++
			}
		}
		a.check(used >= 2, c.name+": LLC domains with 5 % of its CPU time or more",
			strconv.Itoa(used), "at least 2", "/proc/TID/stat")
	}
	return a.end()
}

// 2: with one.
func (p *play) kept() error {
	a, err := p.begin(2, "kept at home",
		"Each group prefers one LLC domain and becomes a cluster: its threads, running or not, move there and stay.")
	if err != nil {
		return err
	}
	for _, c := range []*cluster{p.shop, p.batch} {
		if err := a.write(c.group, cosched.FilePreferred, p.home(c).String()); err != nil {
			return err
		}
	}
	if _, err := a.watch(settle); err != nil {
		return err
	}
	w, err := a.watch(measure)
	if err != nil {
		return err
	}
	a.show(w, "")
	for _, c := range []*cluster{p.shop, p.batch} {
		a.atLeast(c.name+": CPU time at home", w.clusters[c].homeShare(), atHome, cosched.FileStat)
	}
	return a.end()
}

// 3: more threads than the home has CPUs.
func (p *play) spilled() error {
	a, err := p.begin(3, "a full home spills",
		"batch is frozen and shop gets 16 workers more than its home of 4 CPUs can serve: they take every idle CPU; none idles while threads wait.")
	if err != nil {
		return err
	}
	if err := a.write(p.batch.group, "cgroup.freeze", "1"); err != nil {
		return err
	}
	if p.peak, err = a.start(p.shop, "peak", 16, p.stress(16)...); err != nil {
		return err
	}
	if _, err := a.watch(settle); err != nil {
		return err
	}
	w, err := a.watch(measure)
	if err != nil {
		return err
	}
	a.show(w, "")
	a.atMost("idle time of all 16 CPUs", w.idle, noIdle, "/proc/stat")
	a.atLeast("shop: CPU time outside its home", 100-w.clusters[p.shop].homeShare(), 50, cosched.FileStat)
	return a.end()
}

// 4: the home empties.
func (p *play) returned() error {
	a, err := p.begin(4, "strays come home",
		"All of shop ends but four workers that run outside: they come home by themselves, although they never sleep.")
	if err != nil {
		return err
	}
	home := p.home(p.shop)
	workers, err := p.workers(p.peak)
	if err != nil {
		return err
	}
	var strays, others []int
	taken := make(map[int]bool)
	for _, tid := range slices.Sorted(maps.Keys(workers)) {
		// One worker a CPU, so that none waits for a stray beside it to leave.
		if t := workers[tid]; len(strays) < len(home) && !home.Has(t.cpu) && !taken[t.cpu] {
			taken[t.cpu] = true
			strays = append(strays, tid)
		} else {
			others = append(others, tid)
		}
	}
	before, err := p.shop.group.Stat()
	if err != nil {
		return err
	}
	if err := a.stop(p.store); err != nil {
		return err
	}
	if err := a.say("kill -KILL %s", strings.Trim(fmt.Sprint(others), "[]")); err != nil {
		return err
	}
	for _, pid := range others {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("killing %d: %w", pid, err)
		}
	}
	killed := time.Now()
	var took time.Duration
	for {
		out := 0
		for _, tid := range strays {
			t, err := readThreadStat(p.cfg.Proc, tid)
			if err != nil {
				return err
			}
			if !home.Has(t.cpu) {
				out++
			}
		}
		took = time.Since(killed)
		if out == 0 || took > 5*homecoming {
			break
		}
		if err := p.sleep(time.Millisecond); err != nil {
			return err
		}
	}
	after, err := p.shop.group.Stat()
	if err != nil {
		return err
	}
	w, err := a.watch(measure)
	if err != nil {
		return err
	}
	a.show(w, "")
	a.check(len(strays) == len(home), "workers outside when the others end", strconv.Itoa(len(strays)),
		strconv.Itoa(len(home)), "/proc/TID/stat")
	a.check(took <= homecoming, "time until all of them are home", fmt.Sprintf("%d ms", took.Milliseconds()),
		fmt.Sprintf("at most %d ms", homecoming.Milliseconds()), "/proc/TID/stat")
	d := after.Sub(before)
	a.check(d.StraysReturned+d.StraysSwapped > 0, "running strays that the kernel brought home",
		strconv.FormatUint(d.StraysReturned+d.StraysSwapped, 10), "at least 1", cosched.FileStat)
	a.atLeast("shop: CPU time at home", w.clusters[p.shop].homeShare(), atHome, cosched.FileStat)
	return a.end()
}

// 5: a hard limit.
func (p *play) limited() error {
	a, err := p.begin(5, "a hard limit wins",
		"A cpuset allows shop only CPUs outside its home: no thread leaves the cpuset. When it allows all CPUs they come home.")
	if err != nil {
		return err
	}
	if err := a.write(p.batch.group, "cgroup.freeze", "0"); err != nil {
		return err
	}
	limit := p.llcs[1]
	if err := a.write(p.shop.group, "cpuset.cpus", limit.String()); err != nil {
		return err
	}
	if _, err := a.watch(settle); err != nil {
		return err
	}
	w, err := a.watch(measure)
	if err != nil {
		return err
	}
	a.show(w, "cpuset "+limit.String())
	cw := w.clusters[p.shop]
	var in, all uint64
	for cpu, n := range cw.ticks {
		all += n
		if limit.Has(cpu) {
			in += n
		}
	}
	got := 0.0
	if all > 0 {
		got = 100 * float64(in) / float64(all)
	}
	a.check(all > 0 && in == all, "shop: CPU time on CPUs "+limit.String(), percent(got), percent(100), "/proc/TID/stat")
	a.check(cw.stat.PreferredUsec == 0 && cw.stat.OutsideUsec > 0, "shop: CPU time at home",
		fmt.Sprintf("%d µs", cw.stat.PreferredUsec), "0 µs", cosched.FileStat)
	a.check(cw.home.String() == p.home(p.shop).String(), "shop: home while the cpuset forbids it", cw.home.String(),
		p.home(p.shop).String(), cosched.FileEffective)
	// Not an empty list, which a cpuset with tasks refuses.
	if err := a.write(p.shop.group, "cpuset.cpus", p.allCPUs().String()); err != nil {
		return err
	}
	if _, err := a.watch(settle); err != nil {
		return err
	}
	if w, err = a.watch(measure); err != nil {
		return err
	}
	a.show(w, "cpuset "+p.allCPUs().String())
	a.atLeast("shop: CPU time at home when the cpuset allows it", w.clusters[p.shop].homeShare(), atHome, cosched.FileStat)
	return a.end()
}

// 6: weights.
func (p *play) weighed() error {
	a, err := p.begin(6, "weights",
		"shop has 16 threads for its 4 home CPUs, batch has 24 for the other 12. Weights 4 1000: shop waits at home. Weights 100 100: it leaves until all CPUs have as many.")
	if err != nil {
		return err
	}
	for _, j := range []*job{p.peak, p.crunch} {
		if err := a.stop(j); err != nil {
			return err
		}
	}
	rest := slices.Concat(p.llcs[1:]...)
	if err := a.write(p.batch.group, cosched.FilePreferred, rest.String()); err != nil {
		return err
	}
	// Two a CPU: one that waits for a CPU of the host would leave others of the guest idle for a
	// while, and these take tasks from shop whatever the weights say.
	workers := 2 * len(rest)
	if p.crunch, err = a.start(p.batch, "crunch", workers, p.stress(workers)...); err != nil {
		return err
	}
	var got []float64
	for i, weights := range []cosched.Weights{{Preferred: 4, Allowed: 1000}, {Preferred: 100, Allowed: 100}} {
		if err := a.write(p.shop.group, cosched.FileWeights, weights.String()); err != nil {
			return err
		}
		// Workers that compute: of threads that share data and wake each other, few leave.
		if i == 0 {
			if p.peak, err = a.start(p.shop, "peak", 16, p.stress(16)...); err != nil {
				return err
			}
		}
		if _, err := a.watch(settle); err != nil {
			return err
		}
		w, err := a.watch(measure)
		if err != nil {
			return err
		}
		a.show(w, weights.String())
		got = append(got, w.clusters[p.shop].homeShare())
	}
	a.atLeast("shop, weights 4 1000: CPU time at home", got[0], nearHard, cosched.FileStat)
	a.atMost("shop, weights 100 100: CPU time at home", got[1], got[0]-10, cosched.FileStat)
	for _, j := range []*job{p.peak, p.crunch} {
		if err := a.stop(j); err != nil {
			return err
		}
	}
	return a.end()
}

// Main plays the acts and reports what stopped them, if anything did. It gives
// the exit status: whether every act could be played, not what it showed.
func Main(ctx context.Context, cfg Config) int {
	if err := Run(ctx, cfg); err != nil {
		if serr := demo.Send(cfg.Out, demo.Event{Error: err.Error()}); serr != nil {
			fmt.Fprintln(os.Stderr, serr)
		}
		return 1
	}
	return 0
}
