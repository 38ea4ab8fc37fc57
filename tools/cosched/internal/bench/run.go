package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/lab"
	"cosched.io/cosched/internal/status"
	"cosched.io/cosched/internal/vm"
)

// Result is what one run measured, and everything that the result depends on.
type Result struct {
	Suite    string            `json:"suite"`
	Run      Run               `json:"run"`
	Metric   string            `json:"metric"` // a key of metrics
	Value    float64           `json:"value"`
	Counters lab.Counters      `json:"counters"`           // of the machine model, while the workload was measured
	Clusters []lab.Counters    `json:"clusters,omitempty"` // likewise, of each cluster, if threads tell the model which one is theirs
	RegionNS int64             `json:"region_ns"`
	Model    lab.Model         `json:"model,omitzero"`
	Output   string            `json:"output"`
	Versions map[string]string `json:"versions"`
	Script   string            `json:"script"`
	HostSec  float64           `json:"host_seconds"`
	Command  string            `json:"command"` // repeats the run
	Repeat   string            `json:"repeat"`  // repeats all runs of the row
	Key      string            `json:"key"`     // of the cache: a hash of what the result depends on
}

// metric is what a workload measures.
type metric struct {
	higherIsBetter bool
	// If a metric is best at zero, atZero is its name in plots. One value of it is compared
	// with another by how much less it is, in the metric's own unit; unit is the unit of
	// these differences.
	atZero, unit string
	// If rows differ by orders of magnitude, times is the metric's name in plots, which have
	// its values then, on a logarithmic axis.
	times  string
	format string // of a value
	scale  float64
}

// metrics are those that a workload may print.
var metrics = map[string]metric{
	"ops_per_sec":        {higherIsBetter: true, format: "%.4g M/s", scale: 1e-6},
	"msec":               {format: "%.4g ms", scale: 1},
	"nsec":               {format: "%.2f ns", scale: 1},
	"usec_p99":           {times: "latency of wakeups, 99th percentile, us", format: "%.4g us", scale: 1},
	"idle_percent":       {atZero: "idle, %", unit: "points", format: "%.2f %%", scale: 1},
	"rsd_percent":        {atZero: "standard deviation / mean, %", unit: "points", format: "%.2f %%", scale: 1},
	"settled_msec":       {atZero: "until settled, ms", unit: "ms", format: "%.0f ms", scale: 1},
	"migrations_per_sec": {atZero: "migrations per second", unit: "/s", format: "%.0f /s", scale: 1},
}

// parseResult finds the line "result METRIC VALUE" that a workload ends with. If there are
// several, it takes the one whose metric is wanted, or the last one if wanted is empty.
func parseResult(output, wanted string) (string, float64, error) {
	name, value, found := "", 0.0, false
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "result" || wanted != "" && f[1] != wanted {
			continue
		}
		v, err := strconv.ParseFloat(f[2], 64)
		m, known := metrics[f[1]]
		if !known {
			return "", 0, fmt.Errorf("the workload printed an unknown metric: %q", strings.TrimSpace(line))
		}
		if err != nil || !(v > 0 || v == 0 && m.atZero != "") || math.IsInf(v, 0) {
			return "", 0, fmt.Errorf("the workload printed %q", strings.TrimSpace(line))
		}
		name, value, found = f[1], v, true
	}
	if !found {
		return "", 0, fmt.Errorf("the workload printed no result:\n%s", output)
	}
	return name, value, nil
}

const (
	cgroupRoot = "/sys/fs/cgroup"
	cgroupTop  = cgroupRoot + "/bench"
)

// top is the cgroup that contains the cgroups of the clusters.
func (r Row) top() string {
	if r.Root {
		return cgroupRoot
	}
	return cgroupTop
}

// script returns a shell script that makes the cgroups of the clusters as the policy
// requires and runs the workload. All policies have the same cgroups and, except for
// cosched, the same controllers.
func (r Run) script(t vm.Topology) string {
	var s strings.Builder
	if r.Row.Preset != "" {
		// Otherwise, tasks in the root cgroup would be in a group of their session.
		s.WriteString("echo 0 > /proc/sys/kernel/sched_autogroup_enabled\n")
	}
	for _, file := range slices.Sorted(maps.Keys(r.Row.Kernel)) {
		fmt.Fprintf(&s, "echo '%s' > %s\n", r.Row.Kernel[file], file)
	}
	if r.Row.Scatter {
		fmt.Fprintf(&s, "stir --seed %d --keep /tmp\n", r.Seed%math.MaxUint32)
	}
	if r.Row.Clusters == 0 {
		s.WriteString("exec " + strings.Join(r.command(), " ") + "\n")
		return s.String()
	}
	controllers := "+cpuset"
	for _, c := range r.Row.controllers() {
		if c != "cpuset" {
			controllers += " +" + c
		}
	}
	if r.Policy.usesCosched() {
		controllers += " +cosched"
	}
	set := func(dir string, files map[string]string) {
		for _, file := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(&s, "echo '%s' > %s/%s\n", files[file], dir, file)
		}
	}
	fmt.Fprintf(&s, "echo '%s' > %s/cgroup.subtree_control\n", controllers, cgroupRoot)
	top := r.Row.top()
	if top != cgroupRoot {
		fmt.Fprintf(&s, "mkdir %s\necho '%s' > %[1]s/cgroup.subtree_control\n", top, controllers)
		set(top, r.Row.SetAll)
	}
	for k := range r.Row.Clusters {
		dir := fmt.Sprintf("%s/w%d", top, k)
		cpus, nodes := r.Row.home(t, k)
		home := cpus.String()
		fmt.Fprintf(&s, "mkdir %s\n", dir)
		if r.Row.Threads {
			fmt.Fprintf(&s, "echo threaded > %s/cgroup.type\n", dir)
		}
		set(dir, r.Row.Set)
		if k < len(r.Row.SetEach) {
			set(dir, r.Row.SetEach[k])
		}
		if r.Policy.binds() {
			fmt.Fprintf(&s, "echo %s > %s/cpuset.cpus\n", home, dir)
			if r.Policy == "pinned" {
				fmt.Fprintf(&s, "echo %s > %s/cpuset.mems\n", nodes, dir)
			}
		}
		if r.Policy.usesCosched() {
			if r.Policy == "auto" {
				home = "auto"
			}
			fmt.Fprintf(&s, "echo %s > %s/cosched.cpus_preferred\n", home, dir)
			if w := r.Policy.weights(); w != "" {
				fmt.Fprintf(&s, "echo %s > %s/cosched.weights\n", w, dir)
			}
		}
	}
	if r.Row.Threads {
		fmt.Fprintf(&s, "echo 0 > %s/cgroup.procs\n", top)
	}
	if r.Row.Makefile != "" {
		s.WriteString(strings.Join(r.command(), " ") + "\n")
		// Check that everything was made.
		for k := range r.Row.Clusters {
			fmt.Fprintf(&s, "%s || { echo 'cluster %d: not all was made' >&2; exit 1; }\n",
				strings.ReplaceAll(strings.Join(r.make("-q"), " "), "%d", strconv.Itoa(k)), k)
		}
		return s.String()
	}
	s.WriteString("exec " + strings.Join(r.command(), " ") + "\n")
	return s.String()
}

// home returns the CPUs of a cluster's home, and the NUMA nodes that these CPUs are on.
func (r Row) home(t vm.Topology, cluster int) (cpus, nodes cosched.CPUs) {
	llcs, width := t.LLCs(), max(1, r.Width)
	for i := range min(width, len(llcs)) {
		cpus = append(cpus, llcs[(cluster*width+i)%len(llcs)]...)
	}
	slices.Sort(cpus)
	for node, of := range t.NodeCPUs() {
		if slices.ContainsFunc(of, func(cpu int) bool { return slices.Contains(cpus, cpu) }) {
			nodes = append(nodes, node)
		}
	}
	return cpus, nodes
}

// controllers lists the controllers whose files the row sets.
func (r Row) controllers() []string {
	var list []string
	for _, files := range r.files() {
		for file := range files {
			name, _, _ := strings.Cut(file, ".")
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// make returns the command that makes a row's makefile in the guest; gang replaces %d by
// the number of the instance.
func (r Run) make(option string) []string {
	return append([]string{"make", option, "-C", guestSource, "-f", r.Row.Makefile, "O=/tmp/made%d"}, r.Row.Args...)
}

func (r Run) command() []string {
	if r.Row.Clusters == 0 {
		return append([]string{r.Row.Program, "--model"}, r.Row.Args...)
	}
	n := strconv.Itoa(r.Row.Clusters)
	gang := []string{"gang", "--model", "--cgroup", r.Row.top() + "/w%d", "--instances", n, "--"}
	if r.Row.Host != "" {
		return append(append(gang, filepath.Base(r.Row.Host)), r.Row.Args...)
	}
	if r.Row.Makefile != "" {
		return append(gang, r.make("-s")...)
	}
	if r.Row.Threads {
		r.Row.Args = append([]string{"--one-process"}, r.Row.Args...)
	}
	command := []string{r.Row.Program, "--model", "--cgroup", r.Row.top() + "/w%d"}
	// A program that is not listed here takes no number of clusters: it has as many as it
	// needs.
	if count := map[string]string{"warehouse": "--warehouses", "search": "--instances", "numamem": "--instances", "soak": "--clusters"}[r.Row.Program]; count != "" {
		command = append(command, count, n)
	}
	return append(command, r.Row.Args...)
}

// Options are options of a series of runs.
type Options struct {
	Base string // Linux version of the kernels; the suite's, or kbuild.Base(), when empty
	Jobs int    // guests at a time; 2 when 0
	// Fresh runs again what is in the cache already.
	Fresh bool
	// Progress receives a line for each run, and on a terminal a bar below; may be nil.
	Progress io.Writer
}

// series has what all runs of a suite share.
type series struct {
	opts     Options
	suite    Suite
	bin      string // workloads
	cache    string
	kernels  map[string]*kbuild.Kernel
	programs map[string]string // hash of each program
	cargoes  map[string]*cargo // of each makefile
	guests   map[string]string // hash of what the guest of a row has, by contents
	qemu     *kbuild.QEMU
	plugin   string // version of the machine model
	meter    *meter
}

// format is part of each key. It changes when a run of the same inputs would give another
// result than before.
const format = "1"

// Do runs a suite, two guests at a time unless Options say otherwise, and returns a result
// for each run, in their order. A run that was made before, with the same kernel, QEMU,
// model, program and seed, is taken from the cache, so a series that was interrupted
// continues where it stopped.
func Do(ctx context.Context, s Suite, o Options) ([]Result, error) {
	if o.Jobs == 0 {
		o.Jobs = 2
	}
	if o.Base == "" {
		o.Base = cmp.Or(s.Base, kbuild.Base())
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	runs := s.Runs()
	b, err := prepare(ctx, s, runs, o)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.bin)
	b.meter = newMeter(o.Progress, status.IsTerminal(o.Progress), len(runs), time.Now)
	defer b.meter.stop()

	results := make([]Result, len(runs))
	errs := make([]error, len(runs))
	next := make(chan int)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range o.Jobs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				if results[i], errs[i] = b.cached(ctx, runs[i]); errs[i] != nil {
					errs[i] = fmt.Errorf("%s: %w", runs[i], errs[i])
					cancel()
				}
			}
		}()
	}
	for i := range runs {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return results, ctx.Err()
}

func prepare(ctx context.Context, s Suite, runs []Run, o Options) (*series, error) {
	root, err := kbuild.FindRoot()
	if err != nil {
		return nil, err
	}
	cache, err := kbuild.CacheDir()
	if err != nil {
		return nil, err
	}
	b := &series{opts: o, suite: s, cache: filepath.Join(cache, "bench"), kernels: map[string]*kbuild.Kernel{},
		programs: map[string]string{}, cargoes: map[string]*cargo{}, guests: map[string]string{}}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return nil, err
	}
	if b.qemu, err = kbuild.BuildQEMU(ctx, kbuild.Options{Root: root}); err != nil {
		return nil, err
	}
	for _, r := range runs {
		if b.kernels[r.Kernel] != nil {
			continue
		}
		if b.kernels[r.Kernel], err = kbuild.Build(ctx, kbuild.Options{Root: root, Base: o.Base, Variant: r.Kernel}); err != nil {
			return nil, err
		}
	}
	if b.plugin, err = lab.PluginVersion(ctx); err != nil {
		return nil, err
	}
	if b.bin, err = os.MkdirTemp("", "coslab-bench-"); err != nil {
		return nil, err
	}
	if err := lab.Workloads(ctx, root, b.bin); err != nil {
		os.RemoveAll(b.bin)
		return nil, err
	}
	for _, row := range s.Rows {
		if err := b.collect(ctx, row, root); err != nil {
			os.RemoveAll(b.bin)
			return nil, err
		}
	}
	return b, nil
}

// collect reads what the guests of a row need, unless that of another row was the same.
func (b *series) collect(ctx context.Context, row Row, root string) error {
	if m := row.Makefile; m != "" && b.cargoes[m] == nil {
		source, err := kbuild.Source(ctx, kbuild.Options{Root: root, Base: b.opts.Base})
		if err == nil {
			b.cargoes[m], err = load(ctx, filepath.Join(root, "tests", "workloads", m), source)
		}
		if err != nil {
			return fmt.Errorf("row %s: %w", row.Name, err)
		}
	}
	for _, p := range b.paths(row) {
		if b.programs[p] != "" {
			continue
		}
		data, err := os.ReadFile(p)
		if err != nil {
			if row.Host != "" && errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("row %s: %w", row.Name, missing(row.Host))
			}
			return err
		}
		sum := sha256.Sum256(data)
		b.programs[p] = hex.EncodeToString(sum[:8])
	}
	if c, id := b.contents(row); b.guests[id] == "" {
		hash, err := vm.GuestHash(c)
		if err != nil {
			return fmt.Errorf("row %s: %w", row.Name, err)
		}
		b.guests[id] = hash
	}
	return nil
}

// contents returns a guest with the files that a row needs, and the key of their hash.
func (b *series) contents(r Row) (c vm.Config, id string) {
	c.Programs = b.paths(r)
	if cargo := b.cargoes[r.Makefile]; cargo != nil {
		c.Files = cargo.files
	}
	return c, strings.Join(append(slices.Clone(c.Programs), r.Makefile), "\n")
}

// paths returns the paths of a row's programs.
func (b *series) paths(r Row) []string {
	names := []string{r.Program}
	if r.Program == "" {
		names[0] = "gang"
	}
	if r.Scatter {
		names = append(names, "stir")
	}
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(b.bin, name))
	}
	if r.Host != "" {
		path, err := exec.LookPath(r.Host)
		if err != nil {
			path = r.Host
		}
		paths = append(paths, path)
	}
	return paths
}

// model returns the machine model, which is the zero Model on a topology alone, and the
// topology.
func (r Run) model() (lab.Model, vm.Topology, error) {
	if r.Row.Preset != "" {
		p, err := vm.Find(r.Row.Preset)
		return lab.Model{}, p.Topology, err
	}
	m, err := lab.Find(r.Row.Model)
	if err != nil {
		return m, vm.Topology{}, err
	}
	if r.Row.Scatter {
		m.Scatter = uint32(r.Seed%math.MaxUint32) + 1
	}
	m.Cost.TransferNear = int(float64(m.Cost.TransferNear) * r.Transfer)
	m.Cost.TransferFar = int(float64(m.Cost.TransferFar) * r.Transfer)
	p, err := vm.Find(m.Preset)
	return m, p.Topology, err
}

// inputs returns the result of a run without what it measures, and with the key of all that
// this depends on.
func (b *series) inputs(r Run) (Result, vm.Topology, error) {
	m, topology, err := r.model()
	if err != nil {
		return Result{}, topology, err
	}
	res := Result{Suite: b.suite.Name, Run: r, Model: m, Script: r.script(topology)}
	k := b.kernels[r.Kernel]
	res.Versions = map[string]string{
		"linux": k.Version, "kernel": filepath.Base(filepath.Dir(k.Image)), "qemu": b.qemu.Version,
		"qemu_build": filepath.Base(filepath.Dir(b.qemu.Binary)),
	}
	_, id := b.contents(r.Row)
	res.Versions["guest"] = b.guests[id]
	for _, p := range b.paths(r.Row) {
		res.Versions[filepath.Base(p)] = b.programs[p]
	}
	if c := b.cargoes[r.Row.Makefile]; c != nil {
		maps.Copy(res.Versions, c.hashes)
		res.Versions[r.Row.Makefile] = c.hash
	}
	if r.Row.Model != "" {
		res.Versions["machine"] = b.plugin
	}
	res.Command, res.Repeat = b.suite.runCommand(b.opts.Base, r), b.suite.rowCommand(b.opts.Base, r.Row)
	// The key leaves out what does not change what the run does, such as the name and the
	// description of the row and which metric is of interest.
	bare := res
	bare.Suite, bare.Command, bare.Repeat = "", "", ""
	bare.Run.Row.About, bare.Run.Row.Name, bare.Run.Row.Metric = "", "", ""
	bare.Run.Row.Policies, bare.Run.Row.Kernels, bare.Run.Row.Transfer = nil, nil, nil
	bare.Model.About, bare.Model.Sources, bare.Model.Published, bare.Model.GHz = "", nil, nil, 0
	data, err := json.Marshal(bare)
	if err != nil {
		return res, topology, err
	}
	sum := sha256.Sum256(append([]byte(format), data...))
	res.Key = hex.EncodeToString(sum[:12])
	return res, topology, nil
}

func (b *series) cached(ctx context.Context, r Run) (Result, error) {
	res, topology, err := b.inputs(r)
	if err != nil {
		return res, err
	}
	file := filepath.Join(b.cache, res.Key+".json")
	if !b.opts.Fresh {
		var old Result
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &old) == nil && old.Key == res.Key {
			old.Suite, old.Run, old.Command, old.Repeat = res.Suite, r, res.Command, res.Repeat
			if old.Metric, old.Value, err = parseResult(old.Output, r.Row.Metric); err != nil {
				return old, err
			}
			b.meter.finished(r, old, false)
			return old, nil
		}
	}
	end := b.meter.begin(r)
	err = b.run(ctx, r, topology, &res)
	end()
	if err != nil {
		return res, err
	}
	b.meter.finished(r, res, true)
	data, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return res, err
	}
	// The file appears whole or not at all, because another series may read it.
	tmp := file + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return res, err
	}
	return res, os.Rename(tmp, file)
}

// runTimeout bounds a run. A run takes half a minute on a small model, and minutes on the
// largest ones.
const runTimeout = 20 * time.Minute

func (b *series) run(ctx context.Context, r Run, t vm.Topology, res *Result) error {
	started := time.Now()
	quantum, err := r.Row.quantum()
	if err != nil {
		return err
	}
	c, _ := b.contents(r.Row)
	c.Name, c.Kernel, c.Topology = "bench "+r.String(), b.kernels[r.Kernel].Image, t
	c.Cmdline, c.Command = []string{"quiet"}, []string{"sh", "-euc", res.Script}
	c.Virtual, c.Timeout = &vm.VirtualTime{Seed: r.Seed, Quantum: quantum}, runTimeout
	var machine *lab.Machine
	if r.Row.Model != "" {
		if machine, err = lab.Attach(ctx, &c, res.Model, lab.Options{}); err != nil {
			return err
		}
		defer machine.Close()
	} else {
		// Soakers spin with PAUSE, and on a host of few CPUs that is most of a run's time.
		c.Virtual.Pause = time.Microsecond
	}
	out, err := vm.Run(ctx, c)
	if err != nil {
		return err
	}
	if out.ExitStatus != 0 {
		return fmt.Errorf("exit status %d: %s", out.ExitStatus, out.Stderr)
	}
	res.Output = string(out.Stdout)
	if res.Metric, res.Value, err = parseResult(res.Output, r.Row.Metric); err != nil {
		return err
	}
	if machine != nil {
		report, err := machine.Report()
		if err != nil {
			return err
		}
		res.Counters, res.Clusters, res.RegionNS = report.Total, report.Clusters, report.RegionNS
	}
	res.HostSec = time.Since(started).Seconds()
	return nil
}
