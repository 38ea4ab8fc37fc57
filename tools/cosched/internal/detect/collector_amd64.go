package detect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	// These have the same values in detect.bpf.c.
	targetSelf     = uint32(1)
	targetChildren = uint32(2)
	whereShared    = 2

	// Numbers of entries of the maps: 256 threads that use 256 locks each in one interval.
	// An entry takes about 100 bytes. What finds no room is counted.
	maxUses  = 1 << 16
	maxWakes = 1 << 16
	// There are fewer entries for pages, as a process that maps a gigabyte has a quarter of
	// a million pages.
	maxPages = 1 << 14

	// maxProbed is how many processes have their calls watched at a time. Processes take
	// turns, because switching takes time for each.
	maxProbed = 16

	// turnTime is how long the same processes are watched, at most, while others wait for
	// their turn.
	turnTime = 100 * time.Millisecond

	// maxClosing is how many probes may be waiting for their removal. Each takes a thread.
	maxClosing = 4 * maxProbed

	// scanEvery is how often processes are looked for. Children are observed from their
	// birth on, but calls of their lock functions only from when their C library was found.
	scanEvery = 250 * time.Millisecond
	// scanFirst is how often they are looked for while there are none: observing is paid
	// for by the CPU time of the observed processes.
	scanFirst = 10 * time.Millisecond
)

// process is an observed process.
type process struct {
	cpu    time.Duration // CPU time that it has used
	probes []*probe      // nil until they are found
}

// probe is a file that has functions which take locks.
type probe struct {
	in      *link.Executable
	file    string   // as the process sees it
	offsets []uint64 // empty if the kernel puts no probes there
}

// Collector counts what the observed processes do.
type Collector struct {
	objects   objectObjects
	multi     bool // the kernel can attach to many functions at once
	faults    bool // page faults are counted
	always    []io.Closer
	find      func() ([]int, error)
	processes map[uint32]*process
	functions map[string][]uint64   // offsets of lock functions that can be watched, by device and inode
	turn      int                   // which processes have their calls watched next
	calls     []link.Link           // links to lock functions, while these are watched
	opening   chan callLinks        // gives calls once they are there; nil unless they are being opened
	enough    atomic.Bool           // stop opening links to lock functions
	closing   atomic.Int32          // number of links in calls that are being closed
	events    []link.Link           // links to events, while these are watched
	coming    chan eventLinks       // gives events once they are there; nil unless they are being opened
	before    [5]*ebpf.ProgramStats // as counts lists them, before Run
	refused   uint64                // processes that found no room
	unwatched []string              // files whose functions the kernel puts no probes on, and why
	overhead  Overhead
	lost      Lost // in total
	told      Lost // in total, as of the last sample
}

// Open loads the programs that count into the kernel; faults says whether they count page
// faults. limit is the part of their CPU time that the observed processes may lose by it.
// From then on this process runs before others, so anything that takes long, and commands,
// must be started by Leisurely.
func Open(limit float64, faults bool) (_ *Collector, err error) {
	c := &Collector{faults: faults, processes: map[uint32]*process{}, functions: map[string][]uint64{}}
	c.overhead.Limit = limit
	hurry()
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	spec, err := loadObject()
	if err != nil {
		return nil, err
	}
	spec.Maps[objectMapUses].MaxEntries = maxUses
	spec.Maps[objectMapWakes].MaxEntries = maxWakes
	spec.Maps[objectMapPages].MaxEntries = maxPages
	if c.multi = features.HaveBPFLinkUprobeMulti() == nil; !c.multi {
		spec.Programs[objectProgLock].AttachType = ebpf.AttachNone
	}
	if err := spec.LoadAndAssign(&c.objects, nil); err != nil {
		return nil, err
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("run time of BPF programs: %w", err)
	}
	c.always = append(c.always, stats)
	fork, err := link.AttachTracing(link.TracingOptions{Program: c.objects.ProcessFork})
	if err != nil {
		return nil, fmt.Errorf("tracepoint sched_process_fork: %w", err)
	}
	c.always = append(c.always, fork)
	return c, c.calibrate()
}

// Close removes everything from the kernel.
func (c *Collector) Close() {
	_ = c.settle() // its error does not matter any more
	c.detachCalls()
	detach(&c.events)
	for _, a := range c.always {
		a.Close()
	}
	c.objects.Close()
}

// detach removes probes.
func detach(links *[]link.Link) {
	for _, l := range *links {
		l.Close()
	}
	*links = nil
}

// detachCalls removes all probes of functions, without waiting. The kernel takes them away
// at once, but then waits until no CPU is in their program, which took up to seconds on a
// machine with many wakeups. A goroutine for each probe does that wait.
func (c *Collector) detachCalls() {
	for _, l := range c.calls {
		c.closing.Add(1)
		go func() {
			defer c.closing.Add(-1)
			l.Close()
		}()
	}
	c.calls = nil
}

// Observe observes the processes that find returns, and the processes that these make.
func (c *Collector) Observe(find func() ([]int, error)) error {
	c.find = find
	return c.search()
}

// ObserveChildren observes the processes that this one makes.
func (c *Collector) ObserveChildren() error {
	return c.objects.Targets.Put(uint32(os.Getpid()), targetChildren)
}

// search looks for processes that began or ended, and for the lock functions of new ones.
func (c *Collector) search() error {
	if c.find != nil {
		pids, err := c.find()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := c.objects.Targets.Put(uint32(pid), targetSelf); errors.Is(err, unix.E2BIG) {
				c.refused++
			} else if err != nil {
				return err
			}
		}
	}
	var pid, how uint32
	var ended []uint32
	for entries := c.objects.Targets.Iterate(); entries.Next(&pid, &how); {
		if how != targetSelf {
			continue
		}
		p := c.processes[pid]
		if p == nil {
			p = &process{}
			p.cpu, _ = cpuTime(int(pid))
			c.processes[pid] = p
		}
		if err := unix.Kill(int(pid), 0); errors.Is(err, unix.ESRCH) {
			ended = append(ended, pid)
		} else if p.probes == nil {
			p.probes = c.probesOf(pid)
		}
	}
	for _, pid := range ended {
		delete(c.processes, pid)
		_ = c.objects.Targets.Delete(pid)
	}
	return nil
}

// probesOf finds the functions that take locks in a process. It returns nil while the
// process has not mapped its C library yet.
func (c *Collector) probesOf(pid uint32) []*probe {
	proc := filepath.Join("/proc", strconv.Itoa(int(pid)))
	program, _ := os.Readlink(filepath.Join(proc, "exe"))
	mapped, err := executable(filepath.Join(proc, "maps"))
	if err != nil {
		return nil // ended
	}
	var list []*probe
	for _, m := range mapped {
		if !mayHaveLocks(m.file, program) {
			continue
		}
		file := filepath.Join(proc, "root", m.file)
		offsets, known := c.functions[m.inode]
		if !known {
			// If the file was replaced since it was mapped, the new file has other
			// functions. It may also not be readable.
			var st unix.Stat_t
			if unix.Stat(file, &st) != nil || fmt.Sprintf("%02x:%02x %d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino) != m.inode {
				continue
			}
			offsets, _ = lockOffsets(file)
		}
		in, err := link.OpenExecutable(file)
		if err != nil {
			return nil // ended
		}
		c.functions[m.inode] = offsets
		if len(offsets) > 0 {
			list = append(list, &probe{in, m.file, offsets})
		}
	}
	return list
}

// attach watches some functions of a process.
func (c *Collector) attach(pid uint32, in *link.Executable, offsets []uint64) (list []link.Link, err error) {
	// Adding a probe waits for threads of the process, and threads that were stopped by a
	// probe wait as well. So all of this can take long once the busiest function has its
	// probe. That function, the first of the list, gets its probe last and loses it first.
	for first := len(offsets); first > 0; {
		end := first
		if first--; c.multi && first > 0 {
			first = 1
		}
		var l link.Link
		if c.multi {
			l, err = in.UprobeMulti(nil, c.objects.Lock, &link.UprobeMultiOptions{Addresses: offsets[first:end], PID: pid})
		} else {
			l, err = in.Uprobe("", c.objects.Lock, &link.UprobeOptions{Address: offsets[first], PID: int(pid)})
		}
		if err != nil {
			return list, err
		}
		list = slices.Insert(list, 0, l)
	}
	return list, nil
}

// callLinks is the result of adding probes to lock functions.
type callLinks struct {
	links  []link.Link
	failed map[*probe]string // why
}

// withLocks lists the processes that have lock functions.
func (c *Collector) withLocks() (pids []uint32) {
	for pid, p := range c.processes {
		if len(p.probes) > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// watchCalls watches the calls of lock functions of the processes whose turn it is. That
// can take seconds on a busy machine. It does not block the rest meanwhile: c.opening tells
// when it is done.
func (c *Collector) watchCalls() {
	if c.closing.Load() > maxClosing {
		return
	}
	pids := c.withLocks()
	slices.Sort(pids)
	type target struct {
		pid     uint32
		probe   *probe
		offsets []uint64
	}
	var targets []target
	for i := range min(len(pids), maxProbed) {
		pid := pids[(c.turn+i)%len(pids)]
		for _, p := range c.processes[pid].probes {
			targets = append(targets, target{pid, p, p.offsets})
		}
	}
	if len(pids) > 0 {
		c.turn = (c.turn + maxProbed) % len(pids)
	}
	if len(targets) == 0 {
		return
	}
	c.opening = make(chan callLinks, 1)
	c.enough.Store(false)
	go func() {
		o := callLinks{failed: map[*probe]string{}}
		for _, t := range targets {
			if c.enough.Load() {
				break
			}
			links, err := c.attach(t.pid, t.probe.in, t.offsets)
			o.links = append(o.links, links...)
			if err != nil && !errors.Is(err, os.ErrNotExist) && unix.Kill(int(t.pid), 0) == nil {
				o.failed[t.probe] = fmt.Sprintf("%s: %v", t.probe.file, err)
			}
		}
		c.opening <- o
	}()
}

// callsOpened takes over what watchCalls began.
func (c *Collector) callsOpened(o callLinks) {
	c.opening = nil
	c.calls = o.links
	if c.enough.Load() {
		c.detachCalls()
	}
	for p, why := range o.failed {
		if !slices.Contains(c.unwatched, why) {
			c.unwatched = append(c.unwatched, why)
		}
		p.offsets = nil
	}
}

// eventLinks is the result of watching futex calls, wakeups and page faults.
type eventLinks struct {
	links []link.Link
	err   error
}

// watchEvents watches futex calls and wakeups, and page faults if they are counted.
func (c *Collector) watchEvents() (e eventLinks) {
	type tracepoint struct {
		name    string
		program *ebpf.Program
	}
	list := []tracepoint{{"sched_waking", c.objects.Waking}, {"sys_enter", c.objects.Futex}}
	if c.faults {
		list = append(list, tracepoint{"page_fault_user", c.objects.FaultOfUser}, tracepoint{"page_fault_kernel", c.objects.FaultOfKernel})
	}
	for _, on := range list {
		l, err := link.AttachTracing(link.TracingOptions{Program: on.program})
		if err != nil {
			e.err = fmt.Errorf("tracepoint %s: %w", on.name, err)
			break
		}
		e.links = append(e.links, l)
	}
	return e
}

// openEvents begins to watch events. That can take seconds as well: a tracepoint that was
// switched off shortly before is switched on after a grace period only.
func (c *Collector) openEvents() {
	c.coming = make(chan eventLinks, 1)
	go func() { c.coming <- c.watchEvents() }()
}

// eventsOpened takes over what openEvents began.
func (c *Collector) eventsOpened(e eventLinks) error {
	c.coming = nil
	c.events = e.links
	return e.err
}

// settle waits for links that are being made.
func (c *Collector) settle() error {
	if c.opening != nil {
		c.enough.Store(true)
		c.callsOpened(<-c.opening)
	}
	if c.coming != nil {
		return c.eventsOpened(<-c.coming)
	}
	return nil
}

// probed is a function at which the cost of a probe is measured. Its first instruction is
// not one that the kernel executes on behalf of the program, so the probe costs two traps,
// which is the most that a probe costs.
//
//go:noinline
//go:nosplit
func probed(p *uint64) uint64 { return *p + 1 }

// calibrate measures what a probe, a watched system call and a watched page fault cost,
// apart from the run time of their programs.
func (c *Collector) calibrate() error {
	pc := uint64(reflect.ValueOf(probed).Pointer())
	mapped, err := executable("/proc/self/maps")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mapped, func(m mapping) bool { return m.start <= pc && pc < m.end })
	if i < 0 {
		return fmt.Errorf("/proc/self/maps: %#x is in none of the files", pc)
	}
	in, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	c.calls, err = c.attach(uint32(os.Getpid()), in, []uint64{pc - mapped[i].start + mapped[i].pgoff})
	if err != nil {
		return fmt.Errorf("uprobe: %w", err)
	}
	var word uint64
	trap, err := costOf(func() { word = probed(&word) }, c.objects.Lock)
	c.detachCalls()
	if err != nil {
		return err
	}
	// This can be any short system call.
	call := func() { _, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) }
	alone, err := costOf(call, nil)
	if err != nil {
		return err
	}
	touch, unwatched := func() {}, time.Duration(0)
	if c.faults {
		var done func()
		if touch, done, err = fresh(); err != nil {
			return err
		}
		defer done()
		if unwatched, err = costOf(touch, nil); err != nil {
			return err
		}
	}
	// The events stay attached for Run, which begins with them.
	if err := c.eventsOpened(c.watchEvents()); err != nil {
		return err
	}
	watched, err := costOf(call, c.objects.Futex)
	if err != nil {
		return err
	}
	c.overhead.Trap, c.overhead.Entry = trap, max(0, watched-alone)
	if c.faults {
		if watched, err = costOf(touch, c.objects.FaultOfUser); err != nil {
			return err
		}
		c.overhead.Fault = max(0, watched-unwatched)
	}
	_, err = c.drain()
	return err
}

// rounds and calls are those of costOf. A round of probes takes a millisecond or a few.
const rounds, calls = 9, 200

// fresh returns a function that faults on another page each time. It has enough pages for
// two runs of costOf.
func fresh() (touch, done func(), err error) {
	memory, err := unix.Mmap(-1, 0, 2*rounds*calls*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, fmt.Errorf("memory to measure page faults with: %w", err)
	}
	// A fault must not map many pages at once.
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	rest := memory
	sum := byte(0)
	touch = func() {
		// Reading allocates no memory, and hardly ever takes longer than it should.
		sum += rest[0]
		rest = rest[os.Getpagesize():]
	}
	return touch, func() { _ = unix.Munmap(memory) }, nil
}

// costOf returns the CPU time of a call, without the run time of the BPF program that it
// triggers, if any. It is the median of some rounds, which leaves out rounds that were
// interrupted.
func costOf(call func(), p *ebpf.Program) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var costs []time.Duration
	before, after := &ebpf.ProgramStats{}, &ebpf.ProgramStats{}
	for range rounds {
		var err error
		if p != nil {
			if before, err = p.Stats(); err != nil {
				return 0, err
			}
		}
		began, err := threadTime()
		if err != nil {
			return 0, err
		}
		for range calls {
			call()
		}
		ended, err := threadTime()
		if err != nil {
			return 0, err
		}
		if p != nil {
			if after, err = p.Stats(); err != nil {
				return 0, err
			}
			if n := after.RunCount - before.RunCount; n < calls {
				return 0, fmt.Errorf("the program of %v ran %d times in %d calls", p, n, calls)
			}
		}
		// Other processes make system calls as well, so subtract the mean of the program's
		// run time, not the sum.
		each := time.Duration(0)
		if n := after.RunCount - before.RunCount; n > 0 {
			each = (after.Runtime - before.Runtime) / time.Duration(n)
		}
		costs = append(costs, (ended-began)/calls-each)
	}
	slices.Sort(costs)
	return max(0, costs[len(costs)/2]), nil
}

// counts returns how often the programs ran and for how long.
func (c *Collector) counts() (list [5]*ebpf.ProgramStats, err error) {
	for i, p := range []*ebpf.Program{c.objects.Lock, c.objects.Futex, c.objects.Waking, c.objects.FaultOfUser, c.objects.FaultOfKernel} {
		if list[i], err = p.Stats(); err != nil {
			return list, err
		}
	}
	return list, nil
}

// used updates the CPU time that the observed processes used, and what observing cost.
func (c *Collector) used() error {
	o := &c.overhead
	for pid, p := range c.processes {
		if used, err := cpuTime(int(pid)); err == nil {
			o.CPU += max(0, used-p.cpu)
			p.cpu = used
		}
	}
	now, err := c.counts()
	if err != nil {
		return err
	}
	for i := range now {
		now[i].RunCount -= c.before[i].RunCount // calibration ran the programs as well
		now[i].Runtime -= c.before[i].Runtime
	}
	lock, futex, waking, ofUser, ofKernel := now[0], now[1], now[2], now[3], now[4]
	o.Calls, o.CallsTime = lock.RunCount, lock.Runtime
	o.SystemCalls = futex.RunCount
	o.Faults = ofUser.RunCount + ofKernel.RunCount
	o.Events = futex.RunCount + waking.RunCount + o.Faults
	o.EventsTime = futex.Runtime + waking.Runtime + ofUser.Runtime + ofKernel.Runtime
	return nil
}

// Unwatched lists files whose lock functions cannot be watched, and why.
func (c *Collector) Unwatched() []string { return c.unwatched }

// Run counts until ctx ends, and passes what it saw in each interval to give, which must
// not take long.
func (c *Collector) Run(ctx context.Context, interval time.Duration, give func(*Sample, Overhead)) error {
	var err error
	if c.before, err = c.counts(); err != nil {
		return err
	}
	// Events and calls have half of the limit each, less a tenth for costs that are seen
	// too late. Calls also have what the events do not need.
	part := 0.45 * c.overhead.Limit
	events, calls := newGovernor(part, eventsWindow, mostWait, 0), newGovernor(part, callsWindow, callsBlind, runtime.NumCPU())
	timer := time.NewTimer(0)
	defer timer.Stop()
	began := time.Now()
	was, at, searched, given := c.overhead, began, began, began
	open, turned := began, began // since when calls were watched, and since when those of the same processes
	var soon time.Duration
	for {
		done := false
		select {
		case <-ctx.Done():
			done = true
			if err := c.settle(); err != nil {
				return err
			}
		case o := <-c.opening:
			c.callsOpened(o)
			open = time.Now()
			turned = open
			timer.Reset(soon)
			continue
		case e := <-c.coming:
			if err := c.eventsOpened(e); err != nil {
				return err
			}
		case <-timer.C:
		}
		if err := c.used(); err != nil {
			return err
		}
		now, o := time.Now(), &c.overhead
		elapsed := now.Sub(at)
		at = now
		o.Time = now.Sub(began)
		callsElapsed := elapsed
		if len(c.calls) > 0 {
			// Leave out the time that adding the probes took.
			callsElapsed = max(0, now.Sub(open))
			open = now
			o.CallsOpen += callsElapsed
		}
		if len(c.events) > 0 {
			o.EventsOpen += elapsed
		}
		cpu := o.CPU - was.CPU
		eventsCost := o.eventsCost() - was.eventsCost()
		callsCost := time.Duration(o.Calls-was.Calls)*o.Trap + o.CallsTime - was.CallsTime
		if len(c.processes) == 0 {
			eventsCost, callsCost = 0, 0 // no observed process loses it
		}
		was = *o
		watchEvents, wait := events.next(len(c.events) > 0 || c.coming != nil, elapsed, elapsed, cpu, eventsCost)
		calls.balance += events.surplus
		// The first probes count already while others are still being added.
		watchCalls, wait2 := calls.next(len(c.calls) > 0 || c.opening != nil, elapsed, callsElapsed, cpu, callsCost)
		if !watchCalls || done {
			c.detachCalls()
			c.enough.Store(true)
		} else if now.Sub(turned) >= turnTime && c.closing.Load() == 0 && len(c.withLocks()) > maxProbed {
			c.detachCalls()
		}
		if !watchEvents || done {
			detach(&c.events)
		}
		if now.Sub(given) >= interval || done {
			s, err := c.drain()
			if err != nil {
				return err
			}
			if err := o.UpdateOwn(); err != nil {
				return err
			}
			give(s, *o)
			given = now
		}
		if done {
			return nil
		}
		every := scanEvery
		if len(c.processes) == 0 {
			every = scanFirst
		}
		if now.Sub(searched) >= every {
			if err := c.search(); err != nil {
				return err
			}
			searched = now
		}
		if watchEvents && len(c.events) == 0 && c.coming == nil {
			c.openEvents()
		}
		if watchCalls && len(c.calls) == 0 && c.opening == nil {
			c.watchCalls()
		}
		soon = min(wait, wait2)
		timer.Reset(soon)
	}
}

// drain takes what was counted out of the kernel, as a Sample.
func (c *Collector) drain() (*Sample, error) {
	s := NewSample()
	see := func(tid, pid uint32, comm [16]int8) {
		name := make([]byte, 0, len(comm))
		for _, b := range comm {
			if b == 0 {
				break
			}
			name = append(name, byte(b))
		}
		s.Threads[int(tid)] = Thread{int(tid), int(pid), strings.ToValidUTF8(string(name), "?")}
	}
	used := func(k objectUseKey, u objectUse) {
		if int(k.Tgid) == os.Getpid() {
			return // calibration
		}
		o := Object{PID: int(k.Tgid), Addr: k.Addr}
		if u.Where == whereShared {
			o = Object{Dev: u.Dev, Inode: u.Inode, Offset: u.Offset}
		}
		see(k.Tid, k.Tgid, u.Comm)
		use := Use{int(k.Tid), o}
		s.Uses[use] = s.Uses[use].add(Counts{u.Locks, u.Waits, u.Wakes, u.Faults})
	}
	for _, m := range []*ebpf.Map{c.objects.Uses, c.objects.Pages} {
		if err := drain(m, used); err != nil {
			return nil, err
		}
	}
	err := drain(c.objects.Wakes, func(k objectWakeKey, w objectWake) {
		see(k.Waker, k.WakerTgid, w.WakerComm)
		see(k.Wakee, k.WakeeTgid, w.WakeeComm)
		s.Wakes[Pair{int(k.Waker), int(k.Wakee)}] += w.Wakes
	})
	if err != nil {
		return nil, err
	}
	for _, v := range []struct {
		in *ebpf.Variable
		to *uint64
	}{{c.objects.LostUses, &c.lost.Uses}, {c.objects.LostPages, &c.lost.Faults}, {c.objects.LostWakes, &c.lost.Wakes}, {c.objects.LostTargets, &c.lost.Targets}} {
		if err := v.in.Get(v.to); err != nil {
			return nil, err
		}
	}
	c.lost.Targets += c.refused
	s.Lost = Lost{c.lost.Uses - c.told.Uses, c.lost.Faults - c.told.Faults, c.lost.Wakes - c.told.Wakes, c.lost.Targets - c.told.Targets}
	c.told = c.lost
	return s, nil
}

// drain takes all entries out of a map.
func drain[K, V any](m *ebpf.Map, f func(K, V)) error {
	// A batch has room for more entries than any bucket of the kernel's hash has, because
	// the kernel returns whole buckets.
	keys, values := make([]K, 4096), make([]V, 4096)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			f(keys[i], values[i])
		}
		if err != nil {
			return nil
		}
	}
}
