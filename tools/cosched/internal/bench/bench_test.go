package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// The suites that come with the project are sound.
func TestSuites(t *testing.T) {
	list, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.About == "" {
			t.Errorf("suite %s has no description", s.Name)
		}
		for _, r := range s.Rows {
			if r.About == "" {
				t.Errorf("suite %s, row %s has no description", s.Name, r.Name)
			}
		}
		if n := len(s.Runs()); n < len(s.Rows)*len(s.Seeds)*2 {
			t.Errorf("suite %s has %d runs: nothing to compare", s.Name, n)
		}
	}
	if _, err := FindSuite("nonesuch"); err == nil || !strings.Contains(err.Error(), "quick") {
		t.Errorf("an unknown suite: %v", err)
	}
}

const sound = `{"about": "x", "seeds": [1, 2], "rows": [{"name": "r", "about": "y", "model": "cascade-lake",
"clusters": 2, "program": "warehouse", "args": [], "kernels": ["vanilla", "test"], "transfer": [0.5, 1]}]}`

func TestBadSuites(t *testing.T) {
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	// Two seeds, times two costs, times six: none and hard on both kernels, cosched and
	// auto on the one that has the controller.
	if n := len(s.Runs()); n != 2*2*6 {
		t.Errorf("%d runs", n)
	}
	// Rows have the suite's policies, unless they name their own.
	two := strings.Replace(sound, `"rows": [`, `"policies": ["none", "cosched 4 1000"], "rows": [
{"name": "own", "about": "y", "model": "cascade-lake", "clusters": 1, "program": "warehouse", "args": [], "policies": ["auto"]}, `, 1)
	if s, err = parseSuite("s", []byte(two)); err != nil {
		t.Fatal(err)
	}
	if own, its := s.Rows[0].Policies, s.Rows[1].Policies; !slices.Equal(own, []Policy{"auto"}) ||
		!slices.Equal(its, []Policy{"none", "cosched 4 1000"}) {
		t.Errorf("policies %v of a row that names some, %v of one that does not", own, its)
	}
	for _, test := range []struct{ from, to, says string }{
		{`"cascade-lake"`, `"abacus"`, "abacus"},
		{`"clusters": 2`, `"clusters": 0`, "clusters"},
		{`"program": "warehouse"`, `"program": ""`, "program"},
		{`"program": "warehouse"`, `"program": "search", "threads": true`, "threads"},
		{`"name": "r"`, `"name": "r s"`, "name"},
		{`"args": []`, `"args": [], "policies": ["soft"]`, "soft"},
		{`"clusters": 2`, `"clusters": 2, "width": -1`, "width"},
		{`"args": []`, `"args": [], "metric": "furlongs"`, "furlongs"},
		{`"args": []`, `"args": [], "kernel": {"/etc/passwd": "1"}`, "passwd"},
		{`"args": []`, `"args": [], "kernel": {"/proc/sys/../../etc/passwd": "1"}`, "passwd"},
		{`"args": []`, `"args": [], "policies": ["cosched 0 1"]`, "weights"},
		{`"args": []`, `"args": [], "policies": ["cosched 1 100 2"]`, "1 100 2"},
		{`[0.5, 1]`, `[0]`, "transfer"},
		{`"args": []`, `"args": [], "quantum": "1s"`, "quantum"},
		{`"args": []`, `"args": [], "quantum": "10"`, "quantum"},
		{`[1, 2]`, `[]`, "seeds"},
		{`[1, 2]`, `[1, 2, 1]`, "seed 1 is given twice"},
		{`[0.5, 1]`, `[1, 1]`, "transfer 1 is given twice"},
		{`["vanilla", "test"]`, `["vanilla", "vanilla"]`, "kernel vanilla is given twice"},
		{`["vanilla", "test"]`, `["corn"]`, "corn"},
		{`"rows": [`, `"policies": ["soft"], "rows": [`, "soft"},
		{`"rows": [`, `"policies": [], "rows": [`, "no policies"},
		{`"args": []`, `"args": [], "policies": []`, "no policies"},
		{`"args": []`, `"args": [], "policies": ["none", "none"]`, "policy none is given twice"},
		{`"about": "x"`, `"abbot": "x"`, "abbot"},
	} {
		if !strings.Contains(sound, test.from) {
			t.Fatalf("no %s in the suite", test.from)
		}
		_, err := parseSuite("s", []byte(strings.Replace(sound, test.from, test.to, 1)))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.to, err)
		}
	}
}

const soundTopology = `{"about": "x", "seeds": [1], "rows": [{"name": "r", "about": "y", "preset": "cfs-talk",
"clusters": 6, "set": {"cpu.weight": "1", "cpu.idle": "0"}, "set_all": {"cpuset.cpus": "0-7"}, "set_each": [{}, {"cpu.idle": "1"}], "program": "soak", "args": ["--number", "6"]},
{"name": "root", "about": "y", "preset": "cfs-talk", "clusters": 0, "program": "soak", "policies": ["none"], "args": []}]}`

// What rows on a topology may ask for.
func TestBadTopologySuites(t *testing.T) {
	if _, err := parseSuite("s", []byte(soundTopology)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ from, to, says string }{
		{`"preset": "cfs-talk"`, `"preset": "abacus"`, "abacus"},
		{`"preset": "cfs-talk"`, `"about": "y"`, "model and preset"},
		{`"preset": "cfs-talk"`, `"preset": "cfs-talk", "model": "nehalem"`, "model and preset"},
		{`"preset": "cfs-talk"`, `"preset": "cfs-talk", "transfer": [0.5, 1]`, "transfer"},
		{`"preset": "cfs-talk"`, `"preset": "cfs-talk", "scatter": true`, "scatter"},
		{`"clusters": 6`, `"clusters": 6, "root": true`, "set_all"},
		{`"cpu.weight"`, `"cosched.weights"`, "cosched.weights"},
		{`"cpu.weight"`, `"../cpu.weight"`, "../cpu.weight"},
		{`"cpuset.cpus"`, `"cgroup.type"`, "cgroup.type"},
		{`"0-7"`, `"0-7' 'x"`, "quotes"},
		{`{"cpu.idle": "1"}`, `{"cpu.idle": "1\n0"}`, "quotes"},
		{`{"cpu.idle": "1"}`, `{"cgroup.type": "1"}`, "cgroup.type"},
		{`[{},`, `[{}, {}, {}, {}, {}, {},`, "set_each"},
		{`"clusters": 6`, `"clusters": 65`, "65"},
		{`"clusters": 6`, `"clusters": 0`, "no clusters"},
		{`"clusters": 0`, `"clusters": 0, "set_all": {"cpu.weight": "1"}`, "no clusters"},
		{`"policies": ["none"]`, `"policies": ["none", "cosched"]`, "no clusters"},
	} {
		if !strings.Contains(soundTopology, test.from) {
			t.Fatalf("no %s in the suite", test.from)
		}
		_, err := parseSuite("s", []byte(strings.Replace(soundTopology, test.from, test.to, 1)))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.to, err)
		}
	}
}

func TestOnly(t *testing.T) {
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Only(Selection{Rows: []string{"r"}, Policies: []string{"cosched 4 1000"}, Seeds: []uint64{7}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range one.Runs() {
		if r.Policy != "cosched 4 1000" || r.Seed != 7 || r.Kernel != "test" {
			t.Errorf("%v is left", r)
		}
	}
	if len(one.Runs()) != 2 {
		t.Errorf("%d runs are left", len(one.Runs()))
	}
	if len(s.Rows[0].Policies) != 4 {
		t.Error("the suite itself has changed")
	}
	two, err := s.Only(Selection{Policies: []string{"hard+cosched", "pinned"}, Kernels: []string{"vanilla", "debug"}, Transfer: []float64{3}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range two.Runs() {
		if want := []string{"pinned vanilla", "hard+cosched debug", "pinned debug"}[i%3]; fmt.Sprint(r.Policy, " ", r.Kernel) != want || r.Transfer != 3 {
			t.Errorf("run %d: %v, wanted %s", i, r, want)
		}
	}
	for _, test := range []struct {
		only Selection
		says string
	}{
		{Selection{Rows: []string{"q"}}, "q"},
		{Selection{Policies: []string{"hard+auto"}}, "hard+auto"},
		{Selection{Policies: []string{"soft"}}, "soft"},
		{Selection{Kernels: []string{"corn"}}, "corn"},
		{Selection{Transfer: []float64{0}}, "transfer"},
		{Selection{Policies: []string{"auto"}, Kernels: []string{"vanilla"}}, "nothing to run"},
		// Results of what is given twice would count twice.
		{Selection{Rows: []string{"r", "r"}}, "row r is given twice"},
		{Selection{Policies: []string{"none", "auto", "none"}}, "policy none is given twice"},
		{Selection{Kernels: []string{"test", "test"}}, "kernel test is given twice"},
		{Selection{Transfer: []float64{0.5, 0.5}}, "transfer 0.5 is given twice"},
		{Selection{Seeds: []uint64{1, 1}}, "seed 1 is given twice"},
	} {
		if _, err := s.Only(test.only); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test.only, err)
		}
	}

	// There is nothing to place in a row without clusters.
	if s, err = parseSuite("s", []byte(soundTopology)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Only(Selection{Transfer: []float64{2}}); err == nil || !strings.Contains(err.Error(), "model") {
		t.Errorf("costs of no model: %v", err)
	}
	if s, err = s.Only(Selection{Policies: []string{"hard", "cosched"}}); err != nil {
		t.Fatal(err)
	}
	if p := s.Rows[1].Policies; len(p) != 1 || p[0] != "none" || len(s.Rows[0].Policies) != 2 {
		t.Errorf("policies %v and, without clusters, %v", s.Rows[0].Policies, p)
	}
}

// Commands have the options that differ from the suite, so that each repeats what it is to
// repeat and nothing else.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "my suite.json")
	if err := os.WriteFile(path, []byte(sound), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		suite, base  string
		only         Selection
		command, row string // of the last run, and of all runs of its row
	}{
		{"quick", "", Selection{Rows: []string{"1x8-compute"}}, "--suite quick --row 1x8-compute --policy auto --seed 3", "--suite quick --row 1x8-compute"},
		{"quick", "7.3", Selection{Rows: []string{"1x8-compute"}, Policies: []string{"none", "cosched 1 100"}, Seeds: []uint64{7}},
			"--suite quick --base 7.3 --row 1x8-compute --policy 'cosched 1 100' --seed 7",
			"--suite quick --base 7.3 --row 1x8-compute --policy none --policy 'cosched 1 100' --seed 7"},
		{"unused", "", Selection{Rows: []string{"pipe"}, Seeds: []uint64{2}}, "--suite unused --row pipe --kernel test --seed 2", "--suite unused --row pipe --seed 2"},
		{"cache-aware", "7.3", Selection{Rows: []string{"2x4-processes"}, Policies: []string{"none"}},
			"--suite cache-aware --row 2x4-processes --policy none --seed 5", "--suite cache-aware --row 2x4-processes --policy none"},
		{path, "", Selection{Transfer: []float64{0.5}}, "--suite '" + path + "' --row r --kernel test --transfer 0.5 --policy auto --seed 2",
			"--suite '" + path + "' --row r --transfer 0.5"},
	} {
		s, err := FindSuite(test.suite)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.Only(test.only); err != nil {
			t.Fatal(err)
		}
		base := cmp.Or(test.base, kbuild.DefaultBase)
		runs := s.Runs()
		r := runs[len(runs)-1]
		if got, want := s.runCommand(base, r), "bin/coslab bench "+test.command+" --fresh"; got != want {
			t.Errorf("%v:\n%s, wanted\n%s", r, got, want)
		}
		if got, want := s.rowCommand(base, r.Row), "bin/coslab bench "+test.row+" --fresh"; got != want {
			t.Errorf("row of %v:\n%s, wanted\n%s", r, got, want)
		}
	}
}

// With the options of its command, the suite has that one run; with those of a row's, the
// runs of the row.
func TestCommandsRepeat(t *testing.T) {
	list, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		runs := s.Runs()
		rows := map[string][]Run{}
		for _, r := range runs {
			rows[r.Row.Name] = append(rows[r.Row.Name], r)
		}
		only := func(command string) []string {
			o, err := s.Only(selection(t, command))
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			var names []string
			for _, r := range o.Runs() {
				names = append(names, r.String())
			}
			return names
		}
		for _, r := range runs {
			command := s.runCommand(kbuild.DefaultBase, r)
			if got := only(command); len(got) != 1 || got[0] != r.String() {
				t.Errorf("suite %s, %v: %s makes %q", s.Name, r, command, got)
			}
		}
		for _, r := range rows {
			command := s.rowCommand(kbuild.DefaultBase, r[0].Row)
			if got := only(command); len(got) != len(r) {
				t.Errorf("suite %s, row %s: %s makes %q", s.Name, r[0].Row.Name, command, got)
			}
		}
	}
}

// selection returns what a command asks for.
func selection(t *testing.T, command string) Selection {
	t.Helper()
	var o Selection
	for _, option := range strings.Split(strings.TrimSuffix(command, " --fresh"), " --")[1:] {
		name, value, _ := strings.Cut(option, " ")
		value = strings.Trim(value, "'")
		var err error
		switch name {
		case "suite", "base":
		case "row":
			o.Rows = append(o.Rows, value)
		case "kernel":
			o.Kernels = append(o.Kernels, value)
		case "policy":
			o.Policies = append(o.Policies, value)
		case "transfer":
			o.Transfer = append(o.Transfer, 0)
			o.Transfer[len(o.Transfer)-1], err = strconv.ParseFloat(value, 64)
		case "seed":
			o.Seeds = append(o.Seeds, 0)
			o.Seeds[len(o.Seeds)-1], err = strconv.ParseUint(value, 10, 64)
		default:
			t.Fatalf("%s: no option --%s", command, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestScript(t *testing.T) {
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	two := vm.Topology{Sockets: 2, Dies: 1, Cores: 4, Threads: 1}
	row := s.Rows[0]
	row.Clusters, row.Threads = 3, true
	for policy, says := range map[Policy][]string{
		"none":         {"exec warehouse --model", "--one-process", "--warehouses 3", "mkdir /sys/fs/cgroup/bench/w2", "echo threaded > /sys/fs/cgroup/bench/w2/cgroup.type"},
		"hard":         {"echo 4-7 > /sys/fs/cgroup/bench/w1/cpuset.cpus", "echo 0-3 > /sys/fs/cgroup/bench/w2/cpuset.cpus"},
		"cosched 1 10": {"echo 4-7 > /sys/fs/cgroup/bench/w1/cosched.cpus_preferred", "echo 1 10 > /sys/fs/cgroup/bench/w1/cosched.weights", "+cosched"},
		"auto":         {"echo auto > /sys/fs/cgroup/bench/w2/cosched.cpus_preferred", "+cosched"},
	} {
		script := Run{Row: row, Kernel: "test", Policy: policy, Transfer: 1, Seed: 1}.script(two)
		for _, text := range says {
			if !strings.Contains(script, text) {
				t.Errorf("%s: no %q in\n%s", policy, text, script)
			}
		}
		if policy == "none" && (strings.Contains(script, "cosched") || strings.Contains(script, "cpuset.cpus")) {
			t.Errorf("none places clusters:\n%s", script)
		}
	}
}

// If the seed scatters data, the script runs stir, so that the seed decides what the set-up
// finds too, and the guest has that program.
func TestScatteredScript(t *testing.T) {
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	two := vm.Topology{Sockets: 2, Dies: 1, Cores: 4, Threads: 1}
	b := &series{bin: "/bin"}
	for _, scatter := range []bool{false, true} {
		for _, row := range s.Rows {
			row.Scatter = scatter
			script := Run{Row: row, Kernel: "test", Policy: "none", Transfer: 1, Seed: 7}.script(two)
			if strings.Contains(script, "stir --seed 7 --keep /tmp\n") != scatter {
				t.Errorf("scatter %v: the script is\n%s", scatter, script)
			}
			if slices.Contains(b.paths(row), "/bin/stir") != scatter {
				t.Errorf("scatter %v: the guest has %v", scatter, b.paths(row))
			}
		}
	}
}

// Homes of several domains, a policy that binds memory too, and files of the kernel that a
// row sets.
func TestWideScript(t *testing.T) {
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	four := vm.Topology{Sockets: 4, Dies: 1, Cores: 4, Threads: 1, Nodes: 4}
	row := s.Rows[0]
	row.Width, row.Kernel = 2, map[string]string{"/proc/sys/kernel/numa_balancing": "0"}
	for policy, says := range map[Policy][]string{
		"pinned":  {"echo 0-7 > /sys/fs/cgroup/bench/w0/cpuset.cpus", "echo 2-3 > /sys/fs/cgroup/bench/w1/cpuset.mems"},
		"cosched": {"echo 8-15 > /sys/fs/cgroup/bench/w1/cosched.cpus_preferred"},
	} {
		script := Run{Row: row, Kernel: "test", Policy: policy, Transfer: 1, Seed: 1}.script(four)
		for _, text := range append(says, "echo '0' > /proc/sys/kernel/numa_balancing\n") {
			if !strings.Contains(script, text) {
				t.Errorf("%s: no %q in\n%s", policy, text, script)
			}
		}
		if policy != "pinned" && strings.Contains(script, "cpuset.mems") {
			t.Errorf("%s: memory is bound in\n%s", policy, script)
		}
	}
	if cpus, nodes := row.home(four, 3); cpus.String() != "8-15" || nodes.String() != "2-3" {
		t.Errorf("the fourth home is %s on %s", cpus, nodes)
	}
	if cpus, nodes := (Row{Width: 9}).home(vm.Topology{Sockets: 2, Dies: 2, Cores: 1, Threads: 1}, 1); cpus.String() != "0-3" || nodes.String() != "0" {
		t.Errorf("a home wider than the machine is %s on %s", cpus, nodes)
	}
}

// On a topology, the files that a row sets are set with all policies and before the
// workload starts: those of the clusters and those of the cgroup that they are in.
func TestTopologyScript(t *testing.T) {
	s, err := parseSuite("s", []byte(soundTopology))
	if err != nil {
		t.Fatal(err)
	}
	r := Run{Row: s.Rows[0], Kernel: "test", Policy: "none", Transfer: 1, Seed: 1}
	m, four, err := r.model()
	if err != nil || four.CPUs() != 16 || m.Name != "" {
		t.Fatalf("model %+v on %v: %v", m, four, err)
	}
	for policy, says := range map[Policy][]string{
		"none": {}, "hard": {"echo 4-7 > /sys/fs/cgroup/bench/w5/cpuset.cpus"},
		"hard+cosched": {
			"echo 4-7 > /sys/fs/cgroup/bench/w5/cpuset.cpus",
			"echo 4-7 > /sys/fs/cgroup/bench/w5/cosched.cpus_preferred", "+cpuset +cpu +cosched",
		},
		"cosched": {"echo 12-15 > /sys/fs/cgroup/bench/w3/cosched.cpus_preferred", "+cpuset +cpu +cosched"},
	} {
		r.Policy = policy
		script := r.script(four)
		before, _, _ := strings.Cut(script, "exec ")
		for _, text := range append(says, "echo 0 > /proc/sys/kernel/sched_autogroup_enabled", "+cpuset +cpu",
			"echo '1' > /sys/fs/cgroup/bench/w5/cpu.weight", "echo '0' > /sys/fs/cgroup/bench/w0/cpu.idle",
			"echo '0-7' > /sys/fs/cgroup/bench/cpuset.cpus") {
			if !strings.Contains(before, text) {
				t.Errorf("%s: no %q before the workload in\n%s", policy, text, script)
			}
		}
		if !strings.Contains(script, "exec soak --model --cgroup /sys/fs/cgroup/bench/w%d --clusters 6 --number 6\n") {
			t.Errorf("%s: another command in\n%s", policy, script)
		}
	}
	if script := r.script(four); strings.Count(script, "echo '1' > /sys/fs/cgroup/bench/w1/cpu.idle\n") != 1 ||
		strings.Count(script, "echo '1' > ") != 1+6 || strings.Index(script, "w1/cpu.idle\n") > strings.Index(script, "echo '1' > /sys/fs/cgroup/bench/w1/cpu.idle\n") {
		t.Errorf("not the second cluster's file, after those of each:\n%s", script)
	}
	top := r
	top.Row.Root, top.Row.SetAll = true, nil
	if err := top.Row.check(); err != nil {
		t.Error(err)
	}
	if script := top.script(four); strings.Contains(script, "/bench") || !strings.Contains(script, "echo '1' > /sys/fs/cgroup/w5/cpu.weight\n") ||
		!strings.Contains(script, "exec soak --model --cgroup /sys/fs/cgroup/w%d --clusters 6 --number 6\n") {
		t.Errorf("directly below the root:\n%s", script)
	}
	root := Run{Row: s.Rows[1], Kernel: "test", Policy: "none", Transfer: 1, Seed: 1}.script(four)
	if strings.Contains(root, "cgroup/") || !strings.Contains(root, "exec soak --model\n") {
		t.Errorf("without clusters:\n%s", root)
	}
	s.Rows[0].Preset, s.Rows[0].Model = "", "cascade-lake"
	if script := (Run{Row: s.Rows[0], Policy: "none"}).script(four); strings.Contains(script, "autogroup") {
		t.Errorf("on a model:\n%s", script)
	}
}

func TestParseResult(t *testing.T) {
	metric, v, err := parseResult("warehouse 0 ops 5\nresult ops_per_sec 12.5\n", "")
	if err != nil || metric != "ops_per_sec" || v != 12.5 {
		t.Errorf("%s %v %v", metric, v, err)
	}
	if metric, v, err = parseResult("result idle_percent 0.0000\n", ""); err != nil || metric != "idle_percent" || v != 0 {
		t.Errorf("no idle time: %s %v %v", metric, v, err)
	}
	for _, bad := range []string{"result idle_percent -1\n", "result rsd_percent nan\n", "", "result ops_per_sec\n", "result ops_per_sec nan\n", "result ops_per_sec 0\n", "result furlongs 3\n"} {
		if _, _, err := parseResult(bad, ""); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// If a workload prints several results, the one of the row's metric is taken.
func TestParseWanted(t *testing.T) {
	const both = "result settled_msec 0.0\nresult ops_per_sec 12.5\n"
	for wanted, value := range map[string]float64{"": 12.5, "ops_per_sec": 12.5, "settled_msec": 0} {
		if metric, v, err := parseResult(both, wanted); err != nil || v != value || wanted != "" && metric != wanted {
			t.Errorf("%q: %s %v %v", wanted, metric, v, err)
		}
	}
	if _, _, err := parseResult(both, "idle_percent"); err == nil {
		t.Error("what was not printed was found")
	}
}

func results(metric string, values map[Policy][]float64) []Result {
	var list []Result
	for _, p := range []Policy{"none", "hard"} {
		for i, v := range values[p] {
			list = append(list, Result{Metric: metric, Value: v, Run: Run{Row: Row{Name: "r", Preset: "cfs-talk"}, Kernel: "test", Policy: p, Transfer: 1, Seed: uint64(i)}})
		}
	}
	return list
}

func TestCells(t *testing.T) {
	c := Cells(results("ops_per_sec", map[Policy][]float64{"none": {100, 90, 110}, "hard": {130, 126, 110}}))
	if len(c) != 2 || c[1].Median != 126 || c[1].Least != 110 || c[1].Most != 130 {
		t.Fatalf("%+v", c)
	}
	// A standard deviation of 10, of three seeds.
	if math.Abs(c[0].Mean-100) > 1e-9 || math.Abs(c[0].Error-math.Sqrt(100.0/3)) > 1e-9 {
		t.Errorf("mean %v ± %v", c[0].Mean, c[0].Error)
	}
	// Medians 126 and 100; single seeds 130/100, 126/90, 110/110.
	if g := c[1].Gain; g < 25.99 || g > 26.01 {
		t.Errorf("gain %v", g)
	}
	if c[1].GainLeast != 0 || c[1].GainMost < 39.99 || c[1].GainMost > 40.01 {
		t.Errorf("gains of seeds %v to %v", c[1].GainLeast, c[1].GainMost)
	}
	// Half the time is twice the speed.
	c = Cells(results("msec", map[Policy][]float64{"none": {10, 30}, "hard": {5, 15}}))
	if c[0].Median != 20 || c[1].Gain != 100 {
		t.Errorf("%+v", c)
	}
	// A metric that is best at zero is compared by difference, as JSON has no infinity.
	c = Cells(results("idle_percent", map[Policy][]float64{"none": {0, 2, 1}, "hard": {0.5, 0, 0}}))
	if c[1].Unit != "points" || c[1].Gain != 1 || c[1].GainLeast != -0.5 || c[1].GainMost != 2 {
		t.Errorf("%+v", c)
	}
}

func TestTablesAndPlots(t *testing.T) {
	cells := Cells(results("ops_per_sec", map[Policy][]float64{"none": {1e6, 9e5, 1.1e6}, "hard": {1.3e6, 1.26e6, 1.1e6}}))
	var text, rst bytes.Buffer
	if err := WriteTable(&text, cells); err != nil {
		t.Fatal(err)
	}
	if err := WriteRST(&rst, cells); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.26 M/s", "1.220 ± 0.061", "+26.0 %", "+0.0 to +40.0 %", Caveat} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "To run") {
		t.Errorf("commands of none:\n%s", &text)
	}
	for i := range cells {
		cells[i].Repeat = "bin/coslab bench --row r"
	}
	text.Reset()
	if err := WriteTable(&text, cells); err != nil || !strings.HasSuffix(text.String(), Caveat+"\n\nTo run a row again:\n  bin/coslab bench --row r\n") {
		t.Errorf("%v: no command below\n%s", err, &text)
	}
	lines := strings.Split(strings.TrimSpace(rst.String()), "\n")
	if len(lines) != 6 || lines[0] != lines[2] || lines[0] != lines[5] {
		t.Errorf("not a table:\n%s", &rst)
	}

	// The cell of a row that a policy did not run is empty, and a single seed has no
	// standard error.
	some := append(results("msec", map[Policy][]float64{"none": {369, 386}}), results("ops_per_sec", map[Policy][]float64{"none": {1e6}, "hard": {1.3e6, 1.26e6}})...)
	some[0].Run.Row.Name, some[1].Run.Row.Name = "hackbench", "hackbench"
	var means bytes.Buffer
	if err := WriteMeansRST(&means, Cells(some)); err != nil {
		t.Fatal(err)
	}
	if want := `=============  ====  ===========  =============
row            unit  none         hard
=============  ====  ===========  =============
` + "``hackbench``  ms    377.5 ± 8.5  \\\n``r``          M/s   1            1.280 ± 0.020\n" + `=============  ====  ===========  =============
`; means.String() != want {
		t.Errorf("means:\n%s\nwanted:\n%s", &means, want)
	}

	dir := t.TempDir()
	files := []string{filepath.Join(dir, "p.png"), filepath.Join(dir, "p.svg")}
	if err := Plot("a plot", cells, files...); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if image, err := png.Decode(f); err != nil || image.Bounds().Dx() < 300 {
		t.Errorf("the PNG: %v", err)
	}
	svg, err := os.ReadFile(files[1])
	if err != nil || xml.Unmarshal(svg, new(struct{})) != nil || !bytes.Contains(svg, []byte("hard")) {
		t.Errorf("the SVG: %v", err)
	}
	if err := Plot("a plot", cells[:1], files...); err == nil {
		t.Error("a plot of nothing")
	}
}

// Means are compared by speed, whatever the metric, or by difference if it is best at zero.
// Standard errors add up as those of independent values do.
func TestRatios(t *testing.T) {
	for _, test := range []struct {
		metric       string
		none, hard   []float64
		value, error float64
		text         string
	}{
		// Means of 1 and 1.25 million with errors of 4 and 3 %.
		{"ops_per_sec", []float64{0.96e6, 1.04e6}, []float64{1.2125e6, 1.2875e6}, 80, 4, "80.0 ± 4.0 %"},
		{"msec", []float64{96, 104}, []float64{121.25, 128.75}, 125, 6.25, "125.0 ± 6.2 %"},
		{"idle_percent", []float64{1, 7}, []float64{0, 8}, 0, 5, "+0.00 ± 5.00 points"},
		{"idle_percent", []float64{3}, []float64{0}, 3, 0, "+3.00 ± 0.00 points"},
		{"msec", []float64{50}, []float64{40, 60}, 100, 0, "100.0 ± 0.0 %"},
	} {
		list, err := Ratios(Cells(results(test.metric, map[Policy][]float64{"none": test.none, "hard": test.hard})), "hard")
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %d ratios", test.metric, err, len(list))
		}
		r := list[0]
		if r.Policy != "none" || r.Against != "hard" || math.Abs(r.Value-test.value) > 1e-9 || math.Abs(r.Error-test.error) > 1e-9 {
			t.Errorf("%s: %+v", test.metric, r)
		}
		var text bytes.Buffer
		if err := WriteRatios(&text, list); err != nil || !strings.Contains(text.String(), test.text) {
			t.Errorf("%v: no %q in\n%s", err, test.text, &text)
		}
	}
	cells := Cells(results("msec", map[Policy][]float64{"none": {1}}))
	for policy, says := range map[Policy]string{"hard": "no row", "none": "nothing to compare"} {
		if _, err := Ratios(cells, policy); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", policy, err)
		}
	}
	// Another kernel and another cost of transfers have a policy of their own, or none.
	cells = append(Cells(results("msec", map[Policy][]float64{"none": {2}, "hard": {1}})), cells...)
	cells[2].Kernel = "vanilla"
	if list, err := Ratios(cells, "hard"); err != nil || len(list) != 1 || list[0].Kernel != "test" || list[0].Value != 50 {
		t.Errorf("%v: %+v", err, list)
	}
}

// A metric that is best at zero is compared in words in tables, and has a plot of its own
// with all policies.
func TestTablesAndPlotsOfIdleTime(t *testing.T) {
	idle := Cells(results("idle_percent", map[Policy][]float64{"none": {3, 4, 5}, "hard": {3.25, 0, 1}}))
	idle = append(idle, Cells(results("rsd_percent", map[Policy][]float64{"none": {3}, "hard": {3.001}}))...)
	idle = append(idle, Cells(results("migrations_per_sec", map[Policy][]float64{"none": {200}, "hard": {300}}))...)
	for i := range idle {
		idle[i].Row = idle[i].Metric
	}
	var text, rst bytes.Buffer
	if err := errors.Join(WriteTable(&text, idle), WriteRST(&rst, idle)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cfs-talk", "4.00 %", "0.00 %", "3.00 points less", "0.25 more to 4.00 points less", " 100 /s more", " 0.00 points  "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if !strings.Contains(rst.String(), "3.00 points less") {
		t.Errorf("no difference in\n%s", &rst)
	}

	speed := Cells(results("ops_per_sec", map[Policy][]float64{"none": {1e6}, "hard": {1.3e6}}))
	list := panels(append(speed, idle...))
	if len(list) != 4 || len(list[0].cells) != 1 || len(list[1].cells) != 2 || list[1].label != "idle, %" {
		t.Fatalf("%d plots: %+v", len(list), list)
	}
	if h, least, most := list[1].bars(idle[1]); h != 1 || least != 0 || most != 3.25 {
		t.Errorf("a bar of %v, %v to %v", h, least, most)
	}
	height := func(cells []Cell) int {
		file := filepath.Join(t.TempDir(), "p.png")
		if err := Plot("a plot", cells, file); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		image, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		return image.Bounds().Dy()
	}
	if one, four := height(speed), height(append(speed, idle...)); four < 4*one-4 {
		t.Errorf("four plots are %d pixels high, one is %d", four, one)
	}
}

// Gains are over what each row begins with, and say so. Latencies of wakeups have a plot of
// their own, with all policies, in which the least of them can be told apart.
func TestPlotsOfLatency(t *testing.T) {
	speed := results("ops_per_sec", map[Policy][]float64{"none": {1e6}, "hard": {1.3e6}})
	long := results("ops_per_sec", map[Policy][]float64{"none": {1e6}, "hard": {1.3e6}})
	for i := range long {
		long[i].Run.Row.Name = "long"
		long[i].Run.Kernel = "vanilla"
	}
	long[0].Run.Policy, long[1].Run.Policy = "hard", "none"
	wakeups := results("usec_p99", map[Policy][]float64{"none": {900, 1500, 2300}, "hard": {80, 90, 100}})
	for i := range wakeups {
		wakeups[i].Run.Row.Name = "latency"
	}
	cells := Cells(slices.Concat(speed, long, wakeups))
	list := panels(cells)
	var got []string
	for _, p := range list {
		s := p.label
		for _, c := range p.cells {
			s += "; " + c.Row + " " + c.Label()
		}
		got = append(got, s)
	}
	if want := []string{
		"gain over none, %; r hard", "gain over hard, vanilla, %; long none, vanilla",
		"latency of wakeups, 99th percentile, us; latency none; latency hard",
	}; !slices.Equal(got, want) {
		t.Fatalf("plots:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if h, least, most := list[2].bars(list[2].cells[0]); h != 1500 || least != 900 || most != 2300 {
		t.Errorf("a point at %v, %v to %v", h, least, most)
	}
	p, _, err := list[2].draw([]string{"none", "hard"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Y.Min > math.Log10(80) || p.Y.Max < math.Log10(2300) || p.Y.Min < 1 || p.Y.Max > 4 {
		t.Errorf("the axis is from %v to %v", p.Y.Min, p.Y.Max)
	}
	if err := Plot("a plot", cells, filepath.Join(t.TempDir(), "p.svg")); err != nil {
		t.Error(err)
	}
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		ticks       func(least, most float64) []plot.Tick
		least, most float64
		labels      string
	}{
		{linearTicks, -49, 160, "0 50 100 150"},
		{linearTicks, -0.25, 0.1, "-0.25 -0.20 -0.15 -0.10 -0.05 0.00 0.05 0.10"},
		{linearTicks, 0, 19, "0 2 4 6 8 10 12 14 16 18"},
		{linearTicks, -4, 0, "-4 -3 -2 -1 0"},
		{logTicks, math.Log10(33), math.Log10(2500), "50 100 200 500 1000 2000"},
		{logTicks, math.Log10(0.3), math.Log10(1.5), "0.5 1"},
	} {
		var labels []string
		for _, tick := range test.ticks(test.least, test.most) {
			if tick.Value < test.least-1e-9 || tick.Value > test.most+1e-9 {
				t.Errorf("a tick at %v, from %v to %v", tick.Value, test.least, test.most)
			}
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, " "); got != test.labels {
			t.Errorf("from %v to %v: %s, wanted %s", test.least, test.most, got, test.labels)
		}
	}
}

// Results that were written can be read again, also those of an earlier version.
func TestRead(t *testing.T) {
	list := results("msec", map[Policy][]float64{"none": {10, 30}, "hard": {5, 15}})
	for i := range list {
		list[i].Suite = "mine"
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(list); err != nil {
		t.Fatal(err)
	}
	again, err := Read(&text)
	if err != nil || !reflect.DeepEqual(again, list) {
		t.Errorf("%v: %+v is %+v", err, list, again)
	}
	const old = `[{"run": {"row": {"name": "r"}, "kernel": "test", "policy": "none"}, "metric": "msec", "value": 3, "command": "bin/coslab bench --suite talk --row r"}]`
	if again, err = Read(strings.NewReader(old)); err != nil || again[0].Suite != "talk" {
		t.Errorf("%v: %+v", err, again)
	}
	for _, test := range []struct{ text, says string }{
		{"", "EOF"},
		{"[]", "no results"},
		{`{"rows": []}`, "object"},
		{strings.Replace(old, "msec", "furlongs", 1), "furlongs"},
		{`[{"row": "r", "policy": "none", "metric": "msec"}]`, "none of a run"},
	} {
		if _, err := Read(strings.NewReader(test.text)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v", test.text, err)
		}
	}
}
