// Package bench measures one scheduler, or one way to place threads, against another: it
// runs a matrix of workloads, policies and seeds on machine models in the lab, keeps each
// raw result, and makes tables and plots of the results.
//
// All figures are of models in virtual time. They serve for comparison and say nothing
// about how fast hardware is.
package bench

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/lab"
	"cosched.io/cosched/internal/vm"
)

// Suite is a series of rows, each of which is run with each of its policies and each seed.
type Suite struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Base  string   `json:"base,omitempty"` // Linux version that has what the suite is about; kbuild.Base() when empty
	Seeds []uint64 `json:"seeds"`
	// Policies are those of rows that name none; DefaultPolicies when empty.
	Policies []Policy `json:"policies,omitempty"`
	Rows     []Row    `json:"rows"`

	from  string // what FindSuite found it by
	whole *Suite // as it was before Only
}

// Row is a workload on a machine model, or on a topology without one.
type Row struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Model string `json:"model,omitempty"`
	// Preset names a topology without a machine model: memory takes no time then. It is for
	// workloads that depend on how CPU time is shared, and not on where data is. Model is
	// empty if Preset is set.
	Preset string `json:"preset,omitempty"`
	// Clusters is the number of clusters, each of which is a cgroup. The home of cluster K
	// is LLC domain K modulo the number of domains. If it is 0, the workload is in the root
	// cgroup, and there is nothing to place.
	Clusters int `json:"clusters"`
	// Root puts the cgroups of the clusters directly below the root, where each competes
	// with all others by its own weight, and not into one cgroup for all of them.
	Root bool `json:"root,omitempty"`
	// Width is the number of domains of a cluster's home. Those of cluster K follow those
	// of cluster K-1. 1 when 0.
	Width int `json:"width,omitempty"`
	// Set has values for files of each cluster's cgroup, such as "cpu.weight": "1", and
	// SetAll for files of the cgroup that contains all of them. They are set with any
	// policy. SetEach has values for the first cluster, the second and so on, which are set
	// after those of Set.
	Set     map[string]string   `json:"set,omitempty"`
	SetAll  map[string]string   `json:"set_all,omitempty"`
	SetEach []map[string]string `json:"set_each,omitempty"`
	// Kernel has values for files below /proc/sys/ and /sys/kernel/debug/, which are set
	// before the workload starts.
	Kernel  map[string]string `json:"kernel,omitempty"`
	Program string            `json:"program"` // of tests/workloads, which gets --cgroup and --model
	Args    []string          `json:"args"`    // more arguments for it
	// Threads makes all clusters consist of threads of one process, in threaded cgroups.
	Threads bool `json:"threads,omitempty"`
	// Host is a program of the machine that runs the lab, of which gang, of
	// tests/workloads, runs an instance in each cluster. If it is set, Program is empty,
	// and Args are its arguments.
	Host string `json:"host,omitempty"`
	// Makefile is a makefile of tests/workloads that each cluster makes for itself, with
	// all output in a folder of its own. The makefile says what the guest needs for that.
	// Args are arguments of make.
	Makefile string `json:"makefile,omitempty"`
	// Metric is one of those that the workload prints; the last one when empty. A row that
	// differs from another one in nothing else has no runs of its own.
	Metric   string   `json:"metric,omitempty"`
	Policies []Policy `json:"policies,omitempty"` // those of the suite when empty
	Kernels  []string `json:"kernels,omitempty"`  // variants; "test" when empty
	// Transfer multiplies the cost of transfers between LLCs in the model, to find out
	// whether a conclusion depends on that constant. 1 when empty.
	Transfer []float64 `json:"transfer,omitempty"`
	// Scatter has the seed decide where data is: which lines of memory share a set of L1,
	// and which pages and kernel objects are free before the clusters are made (stir, of
	// tests/workloads). Builds and set-ups that differ in that can then be compared by what
	// they do.
	Scatter bool `json:"scatter,omitempty"`
	// Quantum is how far the clocks of CPUs may be apart, as a duration; QEMU's default,
	// 10us, when empty. Interrupts of CPUs that compute may come early or late by as much.
	Quantum string `json:"quantum,omitempty"`
}

// files returns the files that are set, as maps, each of which is for one cgroup or for
// several.
func (r Row) files() []map[string]string {
	all := append([]map[string]string{r.Set, r.SetAll}, r.SetEach...)
	return slices.DeleteFunc(all, func(files map[string]string) bool { return len(files) == 0 })
}

// Limits of a row's quantum. The shorter the quantum, the slower each run.
const (
	minQuantum = 20 * time.Nanosecond
	maxQuantum = time.Millisecond
)

// quantum returns the quantum of a row, 0 for QEMU's default.
func (r Row) quantum() (time.Duration, error) {
	if r.Quantum == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(r.Quantum)
	if err != nil || d < minQuantum || d > maxQuantum {
		return 0, fmt.Errorf("quantum %q: a duration from %v to %v", r.Quantum, minQuantum, maxQuantum)
	}
	return d, nil
}

// Policy says how clusters are placed: "none" does not place them; "hard" binds them by
// cpuset; "pinned" binds them likewise, and their memory too; "cosched" sets
// cosched.cpus_preferred, and "cosched PREFERRED ALLOWED" sets cosched.weights as well;
// "hard+cosched" does both, so that cosched works and changes nothing; "auto" has the
// kernel choose homes.
type Policy string

// Policies are all of them, except for cosched with weights.
var Policies = []Policy{"none", "hard", "pinned", "hard+cosched", "cosched", "auto"}

// DefaultPolicies are the policies of a suite that names none.
var DefaultPolicies = []Policy{"none", "hard", "cosched", "auto"}

// weights returns the weights of a policy, if it sets them.
func (p Policy) weights() string {
	_, w, _ := strings.Cut(string(p), " ")
	return w
}

func (p Policy) usesCosched() bool {
	return p == "auto" || p == "hard+cosched" || strings.HasPrefix(string(p), "cosched")
}

func (p Policy) binds() bool { return p == "hard" || p == "pinned" || p == "hard+cosched" }

func (p Policy) check() error {
	if slices.Contains(Policies, p) {
		return nil
	}
	f := strings.Fields(string(p))
	if len(f) == 3 && f[0] == "cosched" && strings.Join(f, " ") == string(p) {
		for _, w := range f[1:] {
			if n, err := strconv.Atoi(w); err != nil || n < 1 || n > 10000 {
				return fmt.Errorf("policy %q: weights are 1 to 10000", p)
			}
		}
		return nil
	}
	return fmt.Errorf("no policy %q (there are none, hard, pinned, hard+cosched, cosched, cosched PREFERRED ALLOWED, and auto)", p)
}

//go:embed suites/*.json
var suiteFiles embed.FS

// Suites lists the suites that come with the project.
func Suites() ([]Suite, error) {
	names, err := fs.Glob(suiteFiles, "suites/*.json")
	if err != nil {
		return nil, err
	}
	var list []Suite
	for _, name := range names {
		data, err := suiteFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := parseSuite(strings.TrimSuffix(path.Base(name), ".json"), data)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// FindSuite returns a suite by name, or from a file if the name has a slash.
func FindSuite(name string) (Suite, error) {
	if strings.Contains(name, "/") {
		data, err := os.ReadFile(name)
		if err != nil {
			return Suite{}, fmt.Errorf("suite: %w", err)
		}
		s, err := parseSuite(strings.TrimSuffix(filepath.Base(name), ".json"), data)
		s.from = name
		return s, err
	}
	list, err := Suites()
	if err != nil {
		return Suite{}, err
	}
	var names []string
	for _, s := range list {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Suite{}, fmt.Errorf("no suite %q (there are: %s; or the path of a file)", name, strings.Join(names, ", "))
}

func parseSuite(name string, data []byte) (Suite, error) {
	s := Suite{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("suite %s: %w", name, err)
	}
	s.Name, s.from = name, name
	if s.Policies == nil {
		s.Policies = DefaultPolicies
	}
	seen := map[string]bool{}
	for i := range s.Rows {
		r := &s.Rows[i]
		if r.Policies == nil {
			r.Policies = s.Policies
		}
		if r.Kernels == nil {
			r.Kernels = []string{"test"}
		}
		if r.Transfer == nil {
			r.Transfer = []float64{1}
		}
		if seen[r.Name] {
			return s, fmt.Errorf("suite %s: two rows are called %q", name, r.Name)
		}
		seen[r.Name] = true
		if err := r.check(); err != nil {
			return s, fmt.Errorf("suite %s, row %q: %w", name, r.Name, err)
		}
	}
	if len(s.Rows) == 0 || len(s.Seeds) == 0 {
		return s, fmt.Errorf("suite %s: no rows, or no seeds", name)
	}
	if err := once("seed", s.Seeds); err != nil {
		return s, fmt.Errorf("suite %s: %w", name, err)
	}
	whole := s
	s.whole = &whole
	return s, nil
}

func (r Row) check() error {
	if r.Name == "" || strings.ContainsAny(r.Name, " /\t\n") {
		return fmt.Errorf("a name without blanks and slashes is needed")
	}
	if r.Clusters < 0 || r.Clusters > 64 {
		return fmt.Errorf("%d clusters: at most 64", r.Clusters)
	}
	if r.Width < 0 || r.Width > 64 {
		return fmt.Errorf("homes of %d domains: width is 1 to 64", r.Width)
	}
	if r.Clusters == 0 {
		if r.Host != "" || len(r.files()) > 0 {
			return fmt.Errorf("no clusters: a program of the host, and files to set, need some")
		}
		if !slices.Equal(r.Policies, []Policy{"none"}) {
			return fmt.Errorf("no clusters: there is nothing to place, so \"policies\": [\"none\"]")
		}
	}
	if len(r.SetEach) > r.Clusters {
		return fmt.Errorf("set_each has files of %d clusters, and there are %d", len(r.SetEach), r.Clusters)
	}
	if r.Root && (r.Clusters == 0 || r.Threads || len(r.SetAll) > 0) {
		return fmt.Errorf("root is for clusters, and there is no cgroup of all of them then: no set_all, no threads")
	}
	if r.Threads && r.Program != "warehouse" {
		return fmt.Errorf("threads of one process in several cgroups: only warehouse has them")
	}
	if n := len(slices.DeleteFunc([]string{r.Program, r.Host, r.Makefile}, func(s string) bool { return s == "" })); n != 1 {
		return fmt.Errorf("one of program, host and makefile is needed")
	}
	if _, known := metrics[r.Metric]; !known && r.Metric != "" {
		return fmt.Errorf("no metric %q (there are: %s)", r.Metric, strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))
	}
	if (r.Model == "") == (r.Preset == "") {
		return fmt.Errorf("one of model and preset is needed")
	}
	if r.Preset != "" {
		if _, err := vm.Find(r.Preset); err != nil {
			return err
		}
		if !slices.Equal(r.Transfer, []float64{1}) {
			return fmt.Errorf("transfer costs are a model's, and it has none")
		}
		if r.Scatter {
			return fmt.Errorf("scatter is about a model's caches, and it has none")
		}
	} else if _, err := lab.Find(r.Model); err != nil {
		return err
	}
	if _, err := r.quantum(); err != nil {
		return err
	}
	for _, files := range r.files() {
		for file, value := range files {
			if !settable.MatchString(file) || strings.ContainsAny(value, "'\n") {
				return fmt.Errorf("cannot set %q to %q: a file of the controller cpu, cpuset, memory or pids, and one line without quotes", file, value)
			}
		}
	}
	for file, value := range r.Kernel {
		if !kernelFile.MatchString(file) || strings.ContainsAny(value, "'\n") {
			return fmt.Errorf("cannot set %q to %q: a file below /proc/sys/ or /sys/kernel/debug/, and one line without quotes", file, value)
		}
	}
	if len(r.Policies) == 0 || len(r.Kernels) == 0 || len(r.Transfer) == 0 {
		return fmt.Errorf("no policies, no kernels or no transfer costs: leave the list out for the default")
	}
	for _, p := range r.Policies {
		if err := p.check(); err != nil {
			return err
		}
	}
	for _, f := range r.Transfer {
		if err := checkTransfer(f); err != nil {
			return err
		}
	}
	for _, k := range r.Kernels {
		if _, err := kbuild.FindVariant(k); err != nil {
			return err
		}
	}
	return errors.Join(once("policy", r.Policies), once("kernel", r.Kernels), once("transfer", r.Transfer))
}

func checkTransfer(factor float64) error {
	if !(factor > 0 && factor <= 100) {
		return fmt.Errorf("transfer costs times %g: over 0, to 100", factor)
	}
	return nil
}

// settable matches the files that a row may set. Those of cosched are set by the policies.
var settable = regexp.MustCompile(`^(cpu|cpuset|memory|pids)\.[a-z_.]+$`)

// kernelFile matches the files that a row may set outside of its cgroups.
var kernelFile = regexp.MustCompile(`^/(proc/sys|sys/kernel/debug)(/[a-z0-9_]+)+$`)

// Machine returns the name of what the row runs on.
func (r Row) Machine() string { return cmp.Or(r.Model, r.Preset) }

// Run is one cell of the matrix.
type Run struct {
	Row      Row     `json:"row"`
	Kernel   string  `json:"kernel"`
	Policy   Policy  `json:"policy"`
	Transfer float64 `json:"transfer"`
	Seed     uint64  `json:"seed"`
}

func (r Run) String() string {
	s := fmt.Sprintf("%s, %s", r.Row.Name, r.Policy)
	if r.Kernel != "test" {
		s += ", kernel " + r.Kernel
	}
	if r.Transfer != 1 {
		s += fmt.Sprintf(", transfers × %g", r.Transfer)
	}
	return s + fmt.Sprintf(", seed %d", r.Seed)
}

// Runs lists the cells, all policies of a row next to each other, seed by seed, so that a
// series that runs out of time has whole rows.
func (s Suite) Runs() []Run {
	var runs []Run
	for _, row := range s.Rows {
		for _, f := range row.Transfer {
			for _, seed := range s.Seeds {
				for _, k := range row.Kernels {
					for _, p := range row.Policies {
						if p.usesCosched() && (k == "vanilla" || k == "off") {
							continue
						}
						runs = append(runs, Run{row, k, p, f, seed})
					}
				}
			}
		}
	}
	return runs
}

// Selection says which rows and which runs of them are asked for. An empty list asks for
// what the suite has; any other list, except for that of rows, replaces the suite's.
type Selection struct {
	Rows     []string
	Policies []string
	Kernels  []string
	Transfer []float64
	Seeds    []uint64
}

// Only returns the suite with only what is asked for. Policies do not replace those of a row
// without clusters, where there is nothing to place, and transfer costs only those of models.
func (s Suite) Only(o Selection) (Suite, error) {
	if err := o.check(); err != nil {
		return s, err
	}
	out := s
	if len(o.Seeds) > 0 {
		out.Seeds = o.Seeds
	}
	out.Rows = slices.Clone(s.Rows)
	if len(o.Rows) > 0 {
		out.Rows = nil
		for _, name := range o.Rows {
			i := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Name == name })
			if i < 0 {
				var names []string
				for _, r := range s.Rows {
					names = append(names, r.Name)
				}
				return s, fmt.Errorf("suite %s has no row %q (there are: %s)", s.Name, name, strings.Join(names, ", "))
			}
			out.Rows = append(out.Rows, s.Rows[i])
		}
	}
	if len(o.Transfer) > 0 && !slices.ContainsFunc(out.Rows, func(r Row) bool { return r.Model != "" }) {
		return s, errors.New("transfer costs are a model's, and none of the rows has one")
	}
	for i := range out.Rows {
		r := &out.Rows[i]
		if len(o.Policies) > 0 && r.Clusters > 0 {
			r.Policies = nil
			for _, p := range o.Policies {
				r.Policies = append(r.Policies, Policy(p))
			}
		}
		if len(o.Kernels) > 0 {
			r.Kernels = o.Kernels
		}
		if len(o.Transfer) > 0 && r.Model != "" {
			r.Transfer = o.Transfer
		}
	}
	if len(out.Runs()) == 0 {
		return s, errors.New("nothing to run: policies of cosched need a kernel that has it")
	}
	return out, nil
}

func (o Selection) check() error {
	for _, p := range o.Policies {
		if err := Policy(p).check(); err != nil {
			return err
		}
	}
	for _, k := range o.Kernels {
		if _, err := kbuild.FindVariant(k); err != nil {
			return err
		}
	}
	for _, f := range o.Transfer {
		if err := checkTransfer(f); err != nil {
			return err
		}
	}
	// What is run twice would count twice, and the standard error would be too small.
	return errors.Join(once("row", o.Rows), once("policy", o.Policies), once("kernel", o.Kernels),
		once("transfer", o.Transfer), once("seed", o.Seeds))
}

// once returns an error if a list has an element twice.
func once[T comparable](what string, list []T) error {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return fmt.Errorf("%s %v is given twice", what, v)
		}
	}
	return nil
}

// runCommand returns the shell command that repeats a run, on kernels of this base.
func (s Suite) runCommand(base string, r Run) string {
	return s.command(base, r.Row, []Policy{r.Policy}, []string{r.Kernel}, []float64{r.Transfer}, []uint64{r.Seed})
}

// rowCommand returns the one that repeats all runs of a row.
func (s Suite) rowCommand(base string, r Row) string {
	return s.command(base, r, r.Policies, r.Kernels, r.Transfer, s.Seeds)
}

// command returns the shell command that makes these runs of a row: options say in what they
// differ from those of the whole suite.
func (s Suite) command(base string, row Row, policies []Policy, kernels []string, transfer []float64, seeds []uint64) string {
	words := []string{"bin/coslab", "bench", "--suite", s.from}
	option := func(name, value string) { words = append(words, "--"+name, value) }
	if base != cmp.Or(s.Base, kbuild.DefaultBase) {
		option("base", base)
	}
	option("row", row.Name)
	var all Suite
	if s.whole != nil {
		all = *s.whole
	}
	var its Row
	if i := slices.IndexFunc(all.Rows, func(r Row) bool { return r.Name == row.Name }); i >= 0 {
		its = all.Rows[i]
	}
	if !slices.Equal(kernels, its.Kernels) {
		for _, k := range kernels {
			option("kernel", k)
		}
	}
	if !slices.Equal(transfer, its.Transfer) {
		for _, f := range transfer {
			option("transfer", strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	if !slices.Equal(policies, its.Policies) {
		for _, p := range policies {
			option("policy", string(p))
		}
	}
	if !slices.Equal(seeds, all.Seeds) {
		for _, seed := range seeds {
			option("seed", strconv.FormatUint(seed, 10))
		}
	}
	for i, w := range words {
		if !plainWord.MatchString(w) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(append(words, "--fresh"), " ")
}

// plainWord matches words that a shell takes as they are.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
