package sample

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cosched.io/cosched"
)

// Sampler reads samples of the clusters below a cgroup.
//
// What it may cost is the budget of cosched top: 5 % of a CPU with 1,000 clusters, once a
// second, which is 50 us for each cluster. So the two files that change all the time stay
// open and are read with one system call each. The other files, and the tree, are read when
// needed and in turn. The load of a cluster is by far the most work for the kernel, which
// looks at each CPU for it: a caller that shows the load of few clusters asks for the load
// of these only.
type Sampler struct {
	// OnDemand leaves out the load of clusters. Load then fills in the load of a cluster
	// that is shown.
	OnDemand bool

	host cosched.Host
	base cosched.Group
	top  cosched.Group
	self bool // the top is one of the clusters

	groups []*group      // in the order in which they are shown
	total  *group        // the top's figures, if it has any
	rest   *cosched.Stat // how much the top's figures are above the sum of the clusters, if that is known
	rounds int
	tree   []byte // cgroup.stat of the top when the tree was last read
	turn   int    // index of the cluster whose other files are read next
	shown  int    // clusters whose load was asked for since the last sample
	every  int    // for how many samples a load that was read is kept
	cpus   int    // number of CPUs in the last sample
	// domains are the LLC domains of the last sample.
	domains []cosched.CPUs
	room    int // how many files more may stay open
	buf     []byte
}

// group is what is known about a cluster between samples.
type group struct {
	path cosched.Group
	Cluster
	stat, load int     // file descriptors; negative when closed
	known      bool    // whether the other files were read
	seen       Figures // its load, when it was last read
	loaded     int     // the round in which that was, 0 if never
}

const (
	// few is up to how many clusters, as an ordinary host has, the files that change slowly
	// (home, weights, threads) are read each time, so that they are never old. If there are
	// more clusters, these files of slow clusters are read at a time. That makes 100 files
	// of 10 us, a fiftieth of the budget; with 1,000 clusters they are at most 40 samples
	// old. A home that changed shows in the counters, and is read at once.
	few  = 100
	slow = 25
	// looks is how many CPUs the kernel may look at, each time, for the load of what is
	// shown. At 1 us or more for each CPU, with its lock, that is a tenth of the budget. On
	// 64 CPUs that is 64 clusters, more than a screen has lines; on 256 CPUs the lines take
	// turns.
	looks = 4096
	// rescan is after how many samples the tree is read even if its number of cgroups is
	// the same: cgroups may have been given the controller meanwhile.
	rescan = 10
	// spare is how many of the files that a process may have open are left for everything
	// else.
	spare = 64
)

// New makes a sampler of the clusters below a cgroup, which is given by name or path and
// included itself. If name is empty, it is of those below the base.
func New(h cosched.Host, name string) (*Sampler, error) {
	s := &Sampler{host: h, buf: make([]byte, 1<<16)}
	var err error
	if err = h.HasController(); err != nil {
		return nil, err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	s.room = int(min(limit.Cur, 1<<20)) - spare
	if s.base, err = h.Base(); name == "" {
		s.top = s.base
	} else if s.top, err = h.Find(name); err == nil && s.top != cosched.Group(h.Cgroup) {
		s.top, err = h.Existing(name, false)
		s.self = true
	}
	return s, err
}

// Top returns the cgroup whose clusters are read.
func (s *Sampler) Top() string { return string(s.top) }

// Close closes all files.
func (s *Sampler) Close() {
	for _, g := range s.groups {
		s.close(g)
	}
	if s.total != nil {
		s.close(s.total)
	}
	s.groups, s.total, s.tree, s.rest = nil, nil, nil, nil
}

func (s *Sampler) close(g *group) {
	s.closeFile(&g.stat)
	s.closeFile(&g.load)
}

func (s *Sampler) closeFile(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
		s.room++
	}
}

// Read takes a sample. A cluster that is removed meanwhile is left out. If the cgroup that
// was asked for is gone, the error is fs.ErrNotExist.
func (s *Sampler) Read() (*Sample, error) {
	if err := s.readTree(); err != nil {
		return nil, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return nil, os.NewSyscallError("clock_gettime", err)
	}
	s.every = max(1, (s.shown*s.cpus+looks-1)/looks)
	s.shown = 0
	now := &Sample{Time: time.Now(), Monotonic: uint64(ts.Nano() / 1000), Clusters: make([]Cluster, 0, len(s.groups))}
	if err := s.readCPUs(now); err != nil {
		return nil, err
	}
	s.cpus = len(now.CPUs)
	var a arena
	turns := slow
	if len(s.groups) <= few {
		turns = few
	}
	for i, g := range s.groups {
		due := (i-s.turn+len(s.groups))%len(s.groups) < turns
		// The load of one cluster is needed to know the domains.
		load := !s.OnDemand || a.domains == nil
		err := s.readGroup(g, &a, due, load)
		if cosched.Gone(err) {
			s.tree = nil // look again
			if s.self && i == 0 {
				return nil, s.gone(err)
			}
			continue
		}
		if err != nil {
			return nil, s.host.ReadProblem(g.path, err)
		}
		now.Clusters = append(now.Clusters, g.Cluster)
	}
	if len(s.groups) > 0 {
		s.turn = (s.turn + turns) % len(s.groups)
	}
	if s.total == nil {
		now.Total = sum(now.Clusters)
	} else if err := s.readTotal(now, &a); err != nil {
		return nil, s.host.ReadProblem(s.total.path, err)
	}
	s.domains = a.domains
	now.LLCs = a.domains
	if now.LLCs == nil {
		// There is no cluster to know the domains from.
		llcs, err := cosched.LLCs(filepath.Join(s.host.Sys, "devices/system/cpu"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		now.LLCs = append([]cosched.CPUs{}, llcs...)
	}
	return now, nil
}

// readTotal reads the top's figures. For these the kernel adds up those of all cgroups
// below the top once more, which is as much work as all of the clusters are. So what the
// top's figures are above the sum of the clusters is kept, unless it changes: when a
// cluster was removed, and when there are threads in the top itself.
func (s *Sampler) readTotal(now *Sample, a *arena) error {
	if !s.OnDemand {
		err := s.readFigures(s.total, a, true)
		now.Total = s.total.Figures
		return notGone(err)
	}
	was, clusters := s.total.Stat, sum(now.Clusters).Stat
	if !s.self && s.shares(now.Clusters) {
		s.rest = nil
		err := s.readFigures(s.total, a, false)
		now.Total = s.total.Figures
		return notGone(err)
	}
	if s.rest != nil {
		if text, err := s.readFile(s.top.Path("cgroup.threads")); err == nil && len(text) == 0 {
			s.total.Stat = clusters.Add(*s.rest).AtLeast(was)
			now.Total = s.total.Figures
			return nil
		}
	}
	s.rest = nil
	if err := s.readFigures(s.total, a, false); err != nil {
		now.Total = s.total.Figures
		return notGone(err)
	}
	// The clusters were read a little earlier, so a part of the rest is what they did since
	// then. Without AtLeast, the next total could be less.
	if s.total.known {
		s.total.Stat = s.total.Stat.AtLeast(was)
	}
	s.total.known = true // until s.total is made anew
	rest := s.total.Stat.AtLeast(clusters).Sub(clusters)
	s.rest = &rest
	now.Total = s.total.Figures
	return nil
}

// shares reports whether a cluster directly below the top belongs to the top's own cluster, and so
// shows the top's figures: the sum of the clusters says nothing then.
func (s *Sampler) shares(clusters []Cluster) bool {
	return slices.ContainsFunc(clusters, func(c Cluster) bool {
		return c.Asked == "" && len(c.Home) > 0 && filepath.Dir(c.Path) == string(s.top)
	})
}

// notGone returns err, or nil if err says that a cgroup is gone.
func notGone(err error) error {
	if cosched.Gone(err) {
		return nil
	}
	return err
}

func (s *Sampler) gone(err error) error {
	return &cosched.Problem{Status: cosched.ExitNoInput, Text: string(s.top) + " was removed while it was shown", Err: errors.Join(err, fs.ErrNotExist)}
}

// sum adds up the clusters that are not below another cluster. It is the total of the root,
// which has no figures of its own.
func sum(clusters []Cluster) (f Figures) {
	f.LLCs, f.CPUs = []LLCLoad{}, []cosched.CPULoad{}
	above := "/"
	for _, c := range clusters {
		if strings.HasPrefix(c.Path, above) && above != "/" {
			continue
		}
		above = c.Path + "/"
		f.Stat = f.Stat.Add(c.Stat)
		for _, l := range c.LLCs {
			i, ok := slices.BinarySearchFunc(f.LLCs, l.LLC, func(have LLCLoad, n int) int { return have.LLC - n })
			if !ok {
				f.LLCs = slices.Insert(f.LLCs, i, LLCLoad{LLC: l.LLC})
			}
			f.LLCs[i].Util += l.Util
			f.LLCs[i].Runnable += l.Runnable
		}
		for _, l := range c.CPUs {
			i, ok := slices.BinarySearchFunc(f.CPUs, l.CPU, func(have cosched.CPULoad, n int) int { return have.CPU - n })
			if !ok {
				f.CPUs = slices.Insert(f.CPUs, i, cosched.CPULoad{CPU: l.CPU})
			}
			f.CPUs[i].Util += l.Util
			f.CPUs[i].Runnable += l.Runnable
		}
	}
	return f
}

// readTree finds the clusters. The kernel counts the cgroups below a cgroup in its
// cgroup.stat: while that count is the same and none of the known cgroups is gone, no
// cgroup was made either.
func (s *Sampler) readTree() error {
	count, err := s.readFile(filepath.Join(string(s.top), "cgroup.stat"))
	s.rounds++
	if err == nil && s.tree != nil && bytes.Equal(count, s.tree) && s.rounds%rescan != 0 {
		return nil
	}
	if err != nil || !bytes.Equal(count, s.tree) {
		s.rest = nil
	}
	s.tree = nil
	if err == nil {
		s.tree = bytes.Clone(count)
	}
	known := map[cosched.Group]*group{}
	for _, g := range s.groups {
		known[g.path] = g
	}
	s.groups = s.groups[:0]
	if s.self {
		if !s.top.Enabled() {
			return s.gone(nil)
		}
		s.add(s.top, known)
	}
	err = s.walk(s.top, known)
	for _, g := range known {
		s.close(g)
	}
	if s.total == nil && s.top.Enabled() {
		s.total = s.newGroup(s.top)
	} else if s.total != nil && !s.top.Enabled() {
		s.close(s.total)
		s.total = nil
	}
	if err != nil && !cosched.Gone(err) {
		return s.host.ReadProblem(s.top, err)
	}
	return nil
}

// walk adds the clusters below a cgroup, in the order of their names.
func (s *Sampler) walk(g cosched.Group, known map[cosched.Group]*group) error {
	// A directory has one link from above, one from itself and one from each directory
	// below it. Most cgroups have none below.
	var st unix.Stat_t
	if unix.Stat(string(g), &st) == nil && st.Nlink == 2 {
		return nil
	}
	entries, err := os.ReadDir(string(g))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child := cosched.Group(g.Path(e.Name()))
		if known[child] == nil && !child.Enabled() {
			continue // then none below has the controller either
		}
		s.add(child, known)
		if err := s.walk(child, known); err != nil && !cosched.Gone(err) {
			return err
		}
	}
	return nil
}

func (s *Sampler) add(path cosched.Group, known map[cosched.Group]*group) {
	g := known[path]
	if g == nil {
		g = s.newGroup(path)
	}
	delete(known, path)
	s.groups = append(s.groups, g)
}

func (s *Sampler) newGroup(path cosched.Group) *group {
	return &group{path: path, stat: -1, load: -1, Cluster: Cluster{Name: path.NameIn(s.base), Path: string(path)}}
}

// arena has the lists of a sample: a few allocations instead of two for each cluster.
type arena struct {
	llcs    []LLCLoad
	cpus    []cosched.CPULoad
	domains []cosched.CPUs // as listed in the load of the first cluster
}

// readGroup reads a cluster. The files that change slowly are read if they are due, if they
// were not read yet, or if the cluster's home changed.
func (s *Sampler) readGroup(g *group, a *arena, due, load bool) error {
	changes := g.Stat.HomeChanges
	if err := s.readFigures(g, a, load); err != nil {
		return err
	}
	if !due && g.known && changes == g.Stat.HomeChanges {
		return nil
	}
	text, err := s.readFile(g.path.Path(cosched.FilePreferred))
	if err != nil {
		return err
	}
	if asked := bytes.TrimSpace(text); g.Asked != string(asked) {
		g.Asked = string(asked)
	}
	if text, err = s.readFile(g.path.Path(cosched.FileEffective)); err != nil {
		return err
	}
	// Make a new list each time it changes, because samples share it.
	if g.Home.String() != string(bytes.TrimSpace(text)) || !g.known {
		if g.Home, err = cosched.ParseCPUs(string(text)); err != nil {
			return &fs.PathError{Op: "parsing", Path: g.path.Path(cosched.FileEffective), Err: err}
		}
	}
	if text, err = s.readFile(g.path.Path(cosched.FileWeights)); err != nil {
		return err
	}
	w, err := cosched.ParseWeights(string(text))
	if err != nil {
		return &fs.PathError{Op: "parsing", Path: g.path.Path(cosched.FileWeights), Err: err}
	}
	g.Weights = [2]int{w.Preferred, w.Allowed}
	if text, err = s.readFile(g.path.Path("cgroup.threads")); errors.Is(err, unix.EOPNOTSUPP) { // a cgroup of type "domain invalid" can have no threads
		text = nil
	} else if err != nil {
		return err
	}
	g.Threads = bytes.Count(text, []byte("\n"))
	g.known = true
	return nil
}

// Load fills in the load of a cluster as it is now, or as it was some samples before if the
// load of many clusters is asked for. It does nothing if the load is filled in already or
// the cluster is gone.
func (s *Sampler) Load(u *Use) error {
	if u.LLCs != nil {
		return nil
	}
	u.LLCs, u.Load = []LLCLoad{}, []cosched.CPULoad{}
	i := slices.IndexFunc(s.groups, func(g *group) bool { return string(g.path) == u.Path })
	if i < 0 {
		return nil
	}
	g := s.groups[i]
	s.shown++
	if age := s.rounds - g.loaded; g.loaded == 0 || age >= s.every || (s.rounds+i)%s.every == 0 {
		now := *g
		err := s.readLoad(&now, &arena{domains: s.domains})
		g.load = now.load
		if cosched.Gone(err) {
			return nil
		}
		if err != nil {
			return s.host.ReadProblem(g.path, err)
		}
		g.seen, g.loaded = now.Figures, s.rounds
	}
	u.LLCs, u.Load = g.seen.LLCs, g.seen.CPUs
	return nil
}

// readFigures reads cosched.stat, and cosched.load if load is true.
func (s *Sampler) readFigures(g *group, a *arena, load bool) error {
	text, err := s.readOpen(g, &g.stat, cosched.FileStat)
	if err != nil {
		return err
	}
	if g.Stat, err = cosched.ParseStat(text); err != nil {
		return &fs.PathError{Op: "parsing", Path: g.path.Path(cosched.FileStat), Err: err}
	}
	if !load {
		g.LLCs, g.CPUs = nil, nil
		return nil
	}
	return s.readLoad(g, a)
}

func (s *Sampler) readLoad(g *group, a *arena) error {
	text, err := s.readOpen(g, &g.load, cosched.FileLoad)
	if err != nil {
		return err
	}
	first := a.domains == nil
	llcs, cpus := len(a.llcs), len(a.cpus)
	err = cosched.ScanLoad(text, func(l cosched.LoadLine) error {
		if !l.LLC {
			a.cpus = append(a.cpus, cosched.CPULoad{CPU: l.Number, Home: l.Home != 0, Util: l.Util, Runnable: l.Runnable})
			return nil
		}
		if first {
			cpus, err := cosched.ParseCPUs(string(l.CPUs))
			if err != nil {
				return err
			}
			a.domains = append(a.domains, cpus)
		}
		// A domain that came online since the first cluster was read waits for the next
		// sample.
		if l.Number < len(a.domains) && (l.Home != 0 || l.Util != 0 || l.Runnable != 0) {
			a.llcs = append(a.llcs, LLCLoad{l.Number, l.Home, l.Util, l.Runnable})
		}
		return nil
	})
	if err != nil {
		return &fs.PathError{Op: "parsing", Path: g.path.Path(cosched.FileLoad), Err: err}
	}
	// The capacity of these lists ends where those of the next cluster begin. They are
	// never nil, so that they are [] in JSON.
	g.LLCs, g.CPUs = a.llcs[llcs:len(a.llcs):len(a.llcs)], a.cpus[cpus:len(a.cpus):len(a.cpus)]
	if g.LLCs == nil {
		g.LLCs = []LLCLoad{}
	}
	if g.CPUs == nil {
		g.CPUs = []cosched.CPULoad{}
	}
	return nil
}

// readCPUs reads how long each CPU was idle and busy.
func (s *Sampler) readCPUs(now *Sample) error {
	file := filepath.Join(s.host.Proc, "stat")
	text, err := s.readFile(file)
	if err != nil {
		return err
	}
	now.CPUs = make([]CPU, 0, bytes.Count(text, []byte("\ncpu")))
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(" "))
		number, ok := bytes.CutPrefix(name, []byte("cpu"))
		if !ok {
			break // they are the first lines
		}
		if len(number) == 0 {
			continue // the sum
		}
		c := CPU{}
		if c.CPU, err = strconv.Atoi(string(number)); err != nil {
			return &fs.PathError{Op: "parsing", Path: file, Err: err}
		}
		// user nice system idle iowait irq softirq steal; then guest time, which is in user.
		for i := range 8 {
			var field []byte
			field, rest, _ = bytes.Cut(rest, []byte(" "))
			ticks, err := strconv.ParseUint(string(bytes.TrimSpace(field)), 10, 64)
			if err != nil {
				return &fs.PathError{Op: "parsing", Path: file, Err: err}
			}
			const usec = 1_000_000 / 100 // USER_HZ is 100 on all of Linux but alpha
			if i == 3 || i == 4 {
				c.Idle += ticks * usec
			} else {
				c.Busy += ticks * usec
			}
		}
		now.CPUs = append(now.CPUs, c)
	}
	return nil
}

// readOpen reads a file from its beginning, through a descriptor that stays open. A file
// that has lost its cgroup is opened again, as the cgroup may have been made again.
func (s *Sampler) readOpen(g *group, fd *int, file string) ([]byte, error) {
	if *fd >= 0 {
		text, err := s.read(*fd, true)
		if err == nil {
			return text, nil
		}
		s.closeFile(fd)
		if !errors.Is(err, unix.ENODEV) {
			return nil, &fs.PathError{Op: "read", Path: g.path.Path(file), Err: err}
		}
		g.known = false
	}
	path := g.path.Path(file)
	if s.room <= 0 {
		return s.readFile(path)
	}
	opened, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	*fd = opened
	s.room--
	text, err := s.read(*fd, true)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

func (s *Sampler) readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text, err := s.read(fd, false)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// read reads a whole file into the one buffer, which the next read overwrites. If piece is
// true, the kernel makes the text as one piece, not line by line, so the file has ended
// when a read leaves room in the buffer.
func (s *Sampler) read(fd int, piece bool) ([]byte, error) {
	for n := 0; ; {
		m, err := unix.Pread(fd, s.buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n += m; m == 0 || piece && n < len(s.buf) {
			return s.buf[:n], nil
		}
		if n == len(s.buf) {
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
	}
}
