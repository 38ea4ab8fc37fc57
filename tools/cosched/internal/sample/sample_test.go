package sample_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/sample"
)

func open(t *testing.T, h cosched.Host, name string) *sample.Sampler {
	t.Helper()
	s, err := sample.New(h, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func read(t *testing.T, s *sample.Sampler) *sample.Sample {
	t.Helper()
	now, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func clusters(s *sample.Sample) string {
	var names []string
	for _, c := range s.Clusters {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func TestRead(t *testing.T) {
	h := coschedtest.Host(t)
	now := read(t, open(t, h, ""))
	if got := clusters(now); got != "night shop shop/till" {
		t.Errorf("clusters %s", got)
	}
	shop := now.Clusters[1]
	if shop.Asked != "0-3" || shop.Home.String() != "0-3" || shop.Weights != [2]int{4, 1000} || shop.Threads != 2 || shop.Stat.WakeupsSpilled != 312 {
		t.Errorf("%+v", shop)
	}
	if want := []sample.LLCLoad{{LLC: 0, Home: 4, Util: 2040, Runnable: 2050}, {LLC: 1, Util: 512, Runnable: 512}}; !reflect.DeepEqual(shop.LLCs, want) {
		t.Errorf("%+v", shop.LLCs)
	}
	if want := (cosched.CPULoad{CPU: 5, Util: 512, Runnable: 512}); len(shop.CPUs) != 3 || shop.CPUs[2] != want {
		t.Errorf("%+v", shop.CPUs)
	}
	if fmt.Sprint(now.LLCs) != "[0-3 4-7]" || len(now.CPUs) != 8 || now.CPUs[7] != (sample.CPU{CPU: 7, Idle: 91_000_000, Busy: 6_050_000}) {
		t.Errorf("%v %+v", now.LLCs, now.CPUs)
	}
	if got := clusters(read(t, open(t, h, "shop"))); got != "shop shop/till" {
		t.Errorf("of shop: %s", got)
	}
	// The root has no figures: its total is the sum of the clusters that are not below
	// another cluster.
	root := read(t, open(t, h, h.Cgroup))
	if got := clusters(root); !strings.HasSuffix(got, "/cosched night shop shop/till") {
		t.Errorf("of all: %s", got)
	}
	if root.Total.Stat != root.Clusters[0].Stat {
		t.Errorf("total %+v", root.Total.Stat)
	}
}

// A user without a base gives a path, and the names are paths, as cosched ls has them.
func TestReadWithoutBase(t *testing.T) {
	h := coschedtest.Host(t)
	h.Root = false
	h.Writable = func(string) bool { return false }
	shop := filepath.Join(h.Cgroup, "cosched/shop")
	if got := clusters(read(t, open(t, h, shop))); got != shop+" "+shop+"/till" {
		t.Errorf("clusters %s", got)
	}
}

// Changes are seen at the next sample: counters, homes, and clusters that were made or
// removed.
func TestReadAgain(t *testing.T) {
	h := coschedtest.Host(t)
	dir := filepath.Join(h.Cgroup, "cosched/shop")
	s := open(t, h, "")
	read(t, s)
	for file, text := range map[string]string{"cosched.weights": "5 6\n", "cosched.cpus_preferred": "4-7\n", "cosched.cpus_preferred.effective": "4-7\n", "cgroup.threads": "1\n2\n3\n"} {
		coschedtest.Replace(t, filepath.Join(dir, file), text)
	}
	now := read(t, s)
	if c := now.Clusters[1]; c.Weights != [2]int{5, 6} || c.Asked != "4-7" || c.Home.String() != "4-7" || c.Threads != 3 {
		t.Errorf("%+v", c)
	}
	if err := os.CopyFS(filepath.Join(h.Cgroup, "cosched/annex"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched/night")); err != nil {
		t.Fatal(err)
	}
	if got := clusters(read(t, s)); got != "annex annex/till shop shop/till" {
		t.Errorf("clusters %s", got)
	}
	// This cluster is half gone.
	if err := os.Remove(filepath.Join(h.Cgroup, "cosched/annex/till/cosched.cpus_preferred.effective")); err != nil {
		t.Fatal(err)
	}
	if got := clusters(read(t, s)); got != "annex shop shop/till" {
		t.Errorf("clusters %s", got)
	}
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	if now = read(t, s); len(now.Clusters) != 0 || fmt.Sprint(now.LLCs) != "[0-3 4-7]" || now.Total.Stat != (cosched.Stat{}) {
		t.Errorf("without clusters: %+v", now)
	}
}

// The total, which takes the kernel as long as all clusters do, is read again only if the
// clusters do not say what it is.
func TestTotal(t *testing.T) {
	l := coschedtest.NewLarge(t, t.TempDir(), 10, 8, 4)
	base := filepath.Join(l.Cgroup, "cosched")
	set := func(file string, spilled uint64) {
		t.Helper()
		var text strings.Builder
		for _, f := range cosched.StatFields {
			fmt.Fprintf(&text, "%s %d\n", f.Key, *f.Of(&cosched.Stat{WakeupsSpilled: spilled}))
		}
		coschedtest.Replace(t, filepath.Join(base, file), text.String())
	}
	for i := range 10 {
		set(fmt.Sprintf("cluster%04d/cosched.stat", i), 100)
	}
	set("cosched.stat", 1007) // 7 are of clusters that were removed
	coschedtest.Replace(t, filepath.Join(base, "cgroup.threads"), "")
	s := open(t, l.Host, "")
	s.OnDemand = true
	total := func(want uint64) {
		t.Helper()
		if got := read(t, s).Total.Stat.WakeupsSpilled; got != want {
			t.Errorf("the total is %d, want %d", got, want)
		}
	}
	total(1007)
	set("cosched.stat", 5000) // not looked at
	total(1007)
	set("cluster0003/cosched.stat", 130)
	total(1037)
	set("cluster0003/cosched.stat", 90) // made anew
	total(1037)
	coschedtest.Replace(t, filepath.Join(base, "cgroup.threads"), "1\n")
	total(5000)
	coschedtest.Replace(t, filepath.Join(base, "cgroup.threads"), "")
	set("cosched.stat", 6000)
	total(5000)
	coschedtest.Replace(t, filepath.Join(base, "cgroup.stat"), "nr_descendants 11\n")
	total(6000)
	set("cosched.stat", 5500) // read a little late the last time
	coschedtest.Replace(t, filepath.Join(base, "cgroup.stat"), "nr_descendants 10\n")
	total(6000)
	s.OnDemand = false
	total(5500)
}

// Clusters that ask for nothing, below a base that has a home, show the figures of the base: these
// are not to be added up.
func TestTotalOfHome(t *testing.T) {
	h := coschedtest.Host(t)
	base := filepath.Join(h.Cgroup, "cosched")
	for _, name := range []string{"night", "shop"} {
		coschedtest.Replace(t, filepath.Join(base, name, cosched.FilePreferred), "\n")
		coschedtest.Replace(t, filepath.Join(base, name, cosched.FileEffective), "0-3\n")
	}
	text, err := os.ReadFile(filepath.Join(base, "shop", cosched.FileStat))
	if err != nil {
		t.Fatal(err)
	}
	coschedtest.Append(t, filepath.Join(base, "cgroup.stat"), "nr_descendants 3\n")
	s := open(t, h, "")
	s.OnDemand = true
	for _, spilled := range []uint64{312, 322, 332} {
		for _, dir := range []string{"", "night", "shop"} {
			coschedtest.Replace(t, filepath.Join(base, dir, cosched.FileStat), strings.Replace(string(text), "spilled 312", fmt.Sprint("spilled ", spilled), 1))
		}
		if got := read(t, s).Total.Stat.WakeupsSpilled; got != spilled {
			t.Errorf("the total is %d, want %d", got, spilled)
		}
	}
}

// The kernel's count of cgroups says when to look for new ones. New clusters are found a
// little later even if the count does not change.
func TestReadTree(t *testing.T) {
	l := coschedtest.NewLarge(t, t.TempDir(), 4, 16, 4)
	s := open(t, l.Host, "")
	read(t, s)
	base := filepath.Join(l.Cgroup, "cosched")
	add := func(name string) {
		t.Helper()
		if err := os.CopyFS(filepath.Join(base, name), os.DirFS(filepath.Join(base, "cluster0002"))); err != nil {
			t.Fatal(err)
		}
	}
	add("annex")
	if got := clusters(read(t, s)); strings.Contains(got, "annex") {
		t.Errorf("the tree was read without need: %s", got)
	}
	coschedtest.Replace(t, filepath.Join(base, "cgroup.stat"), "nr_descendants 5\n")
	if got := clusters(read(t, s)); got != "annex cluster0000 cluster0001 cluster0002 cluster0003" {
		t.Errorf("after the count changed: %s", got)
	}
	add("barn")
	for range 9 {
		read(t, s)
	}
	if got := clusters(read(t, s)); !strings.HasPrefix(got, "annex barn cluster0000 ") {
		t.Errorf("with the same count: %s", got)
	}
}

func TestReadProblems(t *testing.T) {
	h := coschedtest.Host(t)
	dir := filepath.Join(h.Cgroup, "cosched/shop")
	s := open(t, h, "shop")
	read(t, s)
	for _, tc := range []struct{ file, text string }{
		{"cosched.cpus_preferred.effective", "4-\n"}, {"cosched.weights", "1\n"}, {"cosched.load", "llc0\n"}, {"cosched.stat", "x 1\n"},
	} {
		old, err := os.ReadFile(filepath.Join(dir, tc.file))
		if err != nil {
			t.Fatal(err)
		}
		coschedtest.Replace(t, filepath.Join(dir, tc.file), tc.text)
		if _, err := s.Read(); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, tc.file)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.file, err)
		}
		coschedtest.Replace(t, filepath.Join(dir, tc.file), string(old))
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	var p *cosched.Problem
	if _, err := s.Read(); !errors.As(err, &p) || p.Status != cosched.ExitNoInput || !errors.Is(err, fs.ErrNotExist) || p.Text != dir+" was removed while it was shown" {
		t.Errorf("removed: %v", err)
	}
	for name, status := range map[string]int{"none": cosched.ExitNoInput, "..": cosched.ExitUsage} {
		if _, err := sample.New(h, name); !errors.As(err, &p) || p.Status != status {
			t.Errorf("%s: %v", name, err)
		}
	}
	coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.controllers"), "cpu\n")
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	if _, err := sample.New(h, ""); !errors.As(err, &p) || p.Status != cosched.ExitUnavailable {
		t.Errorf("no controller: %v", err)
	}
}

// With fewer open files than two for each cluster, it reads the same.
func TestFewFiles(t *testing.T) {
	l := coschedtest.NewLarge(t, t.TempDir(), 200, 16, 4)
	all := open(t, l.Host, "")
	want := read(t, all)
	all.Close()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := old
	few.Cur = 300
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	s := open(t, l.Host, "")
	for range 2 {
		if now := read(t, s); !reflect.DeepEqual(now.Clusters, want.Clusters) {
			t.Error("the clusters differ")
		}
	}
}

// reads returns how often the process has read, and how many bytes.
func reads(t *testing.T) (calls, bytes int) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\nsyscr: %d", &bytes, new(int), &calls); err != nil {
		t.Fatal(err)
	}
	return calls, bytes
}

// The work of a sample of 1,000 clusters on 256 CPUs, measured in what does not depend on
// the machine: the time it takes is in Documentation/admin-guide/cosched-command.rst.
func TestWork(t *testing.T) {
	const n = 1000
	l := coschedtest.NewLarge(t, t.TempDir(), n, 256, 8)
	s := open(t, l.Host, "")
	last := read(t, s)
	if len(last.Clusters) != n || len(last.CPUs) != 256 || len(last.LLCs) != 32 {
		t.Fatalf("%d clusters, %d CPUs, %d LLC domains", len(last.Clusters), len(last.CPUs), len(last.LLCs))
	}
	// Each file takes two reads, one of them to see the end: two files of each cluster,
	// four of 100 clusters, and a few of the machine.
	const most = 2 * (2*n + 4*100 + 10)
	for i := range 3 {
		l.Step(t)
		before, read0 := reads(t)
		now := read(t, s)
		after, read1 := reads(t)
		if calls := after - before; calls > most {
			t.Errorf("sample %d: %d reads, want at most %d", i, calls, most)
		}
		// The text of the files, 2 KiB for each cluster, is read once.
		if per := (read1 - read0) / n; per > 3000 {
			t.Errorf("sample %d: %d bytes for each cluster", i, per)
		}
		if slices.EqualFunc(now.Clusters, last.Clusters, func(a, b sample.Cluster) bool { return a.Stat == b.Stat }) {
			t.Error("nothing changed")
		}
		last = now
	}
	// In ten samples the tree is read once. One allocation for each line of a file would be
	// 40,000.
	if allocs := testing.AllocsPerRun(10, func() { read(t, s) }); allocs > 10*n {
		t.Errorf("%v allocations", allocs)
	} else {
		t.Logf("%v allocations", allocs)
	}
}

// Only the load that is asked for is read.
func TestLoadOnDemand(t *testing.T) {
	const n = 100
	l := coschedtest.NewLarge(t, t.TempDir(), n, 64, 8)
	s := open(t, l.Host, "")
	all := sample.Between(nil, read(t, s))
	s.OnDemand = true
	read(t, s) // the tree, once
	before, _ := reads(t)
	v := sample.Between(nil, read(t, s))
	if after, _ := reads(t); after-before > 2*(n+4*n+10) {
		t.Errorf("%d reads", after-before)
	}
	if len(v.LLCs) != len(all.LLCs) {
		t.Errorf("%d LLC domains of %d", len(v.LLCs), len(all.LLCs))
	}
	for _, i := range []int{0, 1, 7, n - 1} {
		u, want := &v.Clusters[i], all.Clusters[i]
		if i > 0 && u.LLCs != nil {
			t.Errorf("%s has load that nobody asked for", u.Name)
		}
		if err := s.Load(u); err != nil || !reflect.DeepEqual(u.LLCs, want.LLCs) || !reflect.DeepEqual(u.Load, want.Load) || len(u.Load) == 0 {
			t.Errorf("%s: %v, %+v, want %+v", u.Name, err, u.LLCs, want.LLCs)
		}
	}
	// The load is read once, so it is that of one time as long as it is shown.
	before, _ = reads(t)
	if err := s.Load(&v.Clusters[7]); err != nil {
		t.Error(err)
	}
	if after, _ := reads(t); after-before > 2 { // two are by reads itself
		t.Errorf("%d reads for what is known", after-before)
	}
	s = open(t, l.Host, "")
	s.OnDemand = true
	gone := &sample.Between(nil, read(t, s)).Clusters[8]
	if err := os.RemoveAll(gone.Path); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(gone); err != nil || gone.LLCs == nil || len(gone.LLCs) != 0 {
		t.Errorf("removed: %v, %+v", err, gone.LLCs)
	}
}

// On many CPUs, clusters whose load is shown take turns. None of them waits for longer than
// a round of all of them takes.
func TestLoadInTurn(t *testing.T) {
	const n, cpus, turns = 40, 256, 3 // 40 x 256 / 4096, rounded up
	l := coschedtest.NewLarge(t, t.TempDir(), n, cpus, 8)
	s := open(t, l.Host, "")
	s.OnDemand = true
	age := make([]int, n)
	var was [n][]cosched.CPULoad
	for round := range 5 * turns {
		v := sample.Between(nil, read(t, s))
		fresh := 0
		for i := range v.Clusters {
			u := &v.Clusters[i]
			u.LLCs = nil // set for the first cluster, whose load was read to know the domains
			if err := s.Load(u); err != nil || len(u.Load) == 0 {
				t.Fatalf("round %d, %s: %v, %+v", round, u.Name, err, u.Load)
			}
			if age[i]++; !reflect.DeepEqual(u.Load, was[i]) {
				age[i], was[i] = 0, u.Load
				fresh++
			}
			if age[i] >= turns {
				t.Errorf("round %d: the load of %s is %d samples old", round, u.Name, age[i])
			}
		}
		// At first all of them are new, and then it is not known yet how many are asked
		// for.
		if round > turns && fresh > n/turns+1 {
			t.Errorf("round %d: %d of %d were read", round, fresh, n)
		}
		l.Step(t)
	}
}

func BenchmarkRead(b *testing.B) {
	l := coschedtest.NewLarge(b, b.TempDir(), 1000, 256, 8)
	s, err := sample.New(l.Host, "")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.OnDemand = true // as cosched top does
	var was *sample.Sample
	b.ReportAllocs()
	for b.Loop() {
		now, err := s.Read()
		if err != nil {
			b.Fatal(err)
		}
		sample.Between(was, now)
		was = now
	}
}

func TestBetween(t *testing.T) {
	stat := func(home, outside, spilled, returned uint64) sample.Figures {
		return sample.Figures{Stat: cosched.Stat{PreferredUsec: home, OutsideUsec: outside, WakeupsSpilled: spilled, StraysReturned: returned}}
	}
	llcs := []cosched.CPUs{{0, 1}, {2, 3}}
	was := &sample.Sample{
		Monotonic: 1_000_000, LLCs: llcs, Total: stat(0, 0, 100, 0),
		CPUs:     []sample.CPU{{CPU: 0, Idle: 1000, Busy: 1000}, {CPU: 1, Idle: 1000}, {CPU: 2, Idle: 5000}},
		Clusters: []sample.Cluster{{Path: "/a", Figures: stat(100, 100, 10, 1)}, {Path: "/a/b"}, {Path: "/a.b"}, {Path: "/c", Figures: stat(9_000_000, 0, 9, 9)}, {Path: "/d", Figures: stat(1_000_000, 0, 9, 9)}},
	}
	now := &sample.Sample{
		Monotonic: 3_000_000, LLCs: llcs, Total: stat(4_000_000, 0, 104, 0),
		CPUs:     []sample.CPU{{CPU: 0, Idle: 1500, Busy: 2500}, {CPU: 1, Idle: 3000}, {CPU: 2, Idle: 4000}, {CPU: 3, Idle: 4000}},
		Clusters: []sample.Cluster{{Path: "/a", Figures: stat(1_500_100, 500_100, 16, 5)}, {Path: "/a/c", Figures: stat(1, 0, 8, 0)}, {Path: "/a.b"}, {Path: "/c", Figures: stat(2_000_000, 0, 1, 0)}, {Path: "/d", Figures: stat(4_000_000, 0, 1, 10)}},
	}
	v := sample.Between(was, now)
	if v.Seconds != 2 || v.Total.CPU != 2 || v.Total.Spilled != 2 {
		t.Errorf("%v s, total %+v", v.Seconds, v.Total)
	}
	got := ""
	for _, u := range v.Clusters {
		home := "-"
		if u.AtHome != nil {
			home = strconv.FormatFloat(*u.AtHome, 'f', 0, 64)
		}
		got += fmt.Sprintf("%s%s %.1f %s %v %v\n", u.Path, u.State, u.CPU, home, u.Spilled, u.Returned)
	}
	want := "/a 1.0 75 3 2\n/a/bremoved 0.0 - 0 0\n/a/cnew 0.0 100 4 0\n/a.b 0.0 - 0 0\n/c 1.0 100 0.5 0\n/d 2.0 100 0.5 5\n" // c and d were made again
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// 500 of 2000, all, and two that cannot be told: the time of CPU 2 went back, and CPU 3
	// is new.
	if got := fmt.Sprint(v.CPUs, v.IdleCPUs, v.LLCs[0].Idle, v.LLCs[1].Idle); got != "[{0 0.25} {1 1} {2 0} {3 0}] 1.25 1.25 0" {
		t.Error(got)
	}
	// The first sample, and the first one after a boot.
	for _, v := range []*sample.Interval{sample.Between(nil, now), sample.Between(now, was)} {
		if v.Seconds != 0 || v.Total.CPU != 0 || v.IdleCPUs != 0 || len(v.Clusters) != 5 || v.Clusters[0].State != "" || v.Clusters[0].AtHome != nil {
			t.Errorf("%+v", v)
		}
	}
}

// A cgroup that asks for nothing shows the counters of the cluster above, with all that was
// counted before: that is not what happened since it was made, or since it stopped to ask.
func TestBetweenInherited(t *testing.T) {
	cluster := func(path, asked, home string, usec uint64) sample.Cluster {
		cpus, err := cosched.ParseCPUs(home)
		if err != nil {
			t.Fatal(err)
		}
		return sample.Cluster{Path: path, Asked: asked, Home: cpus, Figures: sample.Figures{Stat: cosched.Stat{PreferredUsec: usec}}}
	}
	was := &sample.Sample{
		Monotonic: 1_000_000, Total: sample.Figures{Stat: cosched.Stat{PreferredUsec: 900_000_000}},
		Clusters: []sample.Cluster{
			cluster("/a", "0-3", "0-3", 500_000_000), cluster("/a/asked", "0-1", "0-1", 10_000_000), cluster("/a/none", "", "0-3", 500_000_000),
			cluster("/b", "4-7", "4-7", 20_000_000), cluster("/c", "0-3", "0-3", 3_000_000),
		},
	}
	now := &sample.Sample{
		Monotonic: 2_000_000, Total: sample.Figures{Stat: cosched.Stat{PreferredUsec: 902_000_000}},
		Clusters: []sample.Cluster{
			cluster("/a", "0-3", "0-3", 502_000_000), cluster("/a/asked", "", "0-3", 502_000_000),
			cluster("/a/new", "", "0-3", 502_000_000), cluster("/a/new/b", "", "0-3", 502_000_000), cluster("/a/new/c", "0", "0", 1_000_000),
			cluster("/a/none", "", "0-3", 502_000_000), cluster("/a/weights", "", "0-3", 1_000_000), // with weights of its own
			cluster("/b", "", "0-7", 902_000_000), cluster("/c", "", "", 4_000_000), cluster("/d", "", "0-7", 902_000_000),
		},
	}
	for _, u := range sample.Between(was, now).Clusters {
		// What the cluster above /b has done since is not known.
		want := map[string]float64{"/a/new/c": 1, "/a/weights": 1, "/b": 0, "/c": 1}
		if cpus, ok := want[u.Path]; !ok && u.CPU != 2 || ok && u.CPU != cpus {
			t.Errorf("%s used %v CPUs", u.Path, u.CPU)
		}
	}
}

// Lines of the text format, as its ABNF defines them.
var (
	metaLine  = regexp.MustCompile(`^# (TYPE|UNIT|HELP) ([a-z_]+) (.+)$`)
	pointLine = regexp.MustCompile(`^([a-z_]+)\{([a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*)\} ([0-9.e+-]+)$`)
)

func TestOpenMetrics(t *testing.T) {
	h := coschedtest.Host(t)
	now := read(t, open(t, h, ""))
	now.Clusters[0].Name = "a \"b\" \\ c\n"
	var b bytes.Buffer
	now.OpenMetrics(&b)
	lines := strings.Split(b.String(), "\n")
	if n := len(lines); lines[n-1] != "" || lines[n-2] != "# EOF" {
		t.Fatalf("ends with %q", lines[n-2:])
	}
	types, family := map[string]string{}, ""
	seen := map[string]bool{}
	for _, line := range lines[:len(lines)-2] {
		if m := metaLine.FindStringSubmatch(line); m != nil {
			if m[1] == "TYPE" {
				family = m[2]
				if types[family] != "" {
					t.Errorf("%s is there twice", family)
				}
				types[family] = m[3]
			}
			if m[2] != family || m[1] == "UNIT" && !strings.HasSuffix(family, "_"+m[3]) {
				t.Errorf("misplaced %q", line)
			}
			continue
		}
		m := pointLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("bad line %q", line)
			continue
		}
		if suffix := map[string]string{"counter": "_total", "info": "_info"}[types[family]]; m[1] != family+suffix {
			t.Errorf("%s in the family %s", m[1], family)
		}
		if seen[m[1]+m[2]] {
			t.Errorf("%s is there twice", line)
		}
		seen[m[1]+m[2]] = true
	}
	for _, want := range []string{
		`cosched_wakeups_total{cluster="shop",placed="spilled"} 312`, `cosched_cpu_seconds_total{cluster="shop",where="home"} 12.034567`,
		`cosched_threads{cluster="a \"b\" \\ c\n"} 0`, `cosched_load_cpus{cluster="shop",llc="1"} 0.5`, `cosched_machine_cpu_seconds_total{cpu="7",mode="idle"} 91`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
}

// The parser is that of the node exporter's textfile collector, which refuses a whole file
// if it dislikes one line.
func TestPrometheus(t *testing.T) {
	h := coschedtest.Host(t)
	now := read(t, open(t, h, ""))
	now.Clusters[0].Name = "a \"b\" \\ c\n"
	now.Clusters[2].Name = "caf\xe9/\xff" // a user may call a cgroup anything
	var b bytes.Buffer
	now.Prometheus(&b)
	if text := b.String(); strings.Contains(text, "# UNIT") || strings.Contains(text, "# EOF") {
		t.Errorf("not of this format:\n%s", text)
	}
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil || len(families) != 11 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for name, f := range families {
		want := dto.MetricType_GAUGE
		if strings.HasSuffix(name, "_total") {
			want = dto.MetricType_COUNTER
		}
		if f.GetType() != want || f.GetHelp() == "" {
			t.Errorf("%s is a %v, want a %v: %q", name, f.GetType(), want, f.GetHelp())
		}
	}
	for _, tc := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"cosched_wakeups_total", []string{"cluster", "shop", "placed", "spilled"}, 312},
		{"cosched_cpu_seconds_total", []string{"cluster", "shop", "where", "home"}, 12.034567},
		{"cosched_threads", []string{"cluster", "a \"b\" \\ c\n"}, 0},
		{"cosched_threads", []string{"cluster", `caf\xe9/\xff`}, 1},
		{"cosched_load_cpus", []string{"cluster", "shop", "llc", "1"}, 0.5},
		{"cosched_cluster_info", []string{"cluster", "shop", "path", filepath.Join(h.Cgroup, "cosched/shop"), "cpus_preferred", "0-3", "home", "0-3", "weights", "4:1000"}, 1},
	} {
		if !slices.ContainsFunc(families[tc.name].GetMetric(), func(m *dto.Metric) bool {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName(), l.GetValue())
			}
			return slices.Equal(labels, tc.labels) && m.GetGauge().GetValue()+m.GetCounter().GetValue() == tc.value
		}) {
			t.Errorf("no %s of %q that is %v: %v", tc.name, tc.labels, tc.value, families[tc.name])
		}
	}
}
