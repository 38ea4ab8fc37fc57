package cosched

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for _, tc := range []struct {
		in, out string
		n       int
	}{
		{"", "", 0},
		{" \n", "", 0},
		{"0\n", "0", 1},
		{"0-3,8", "0-3,8", 5},
		{"8,0-3", "0-3,8", 5},
		{"0-1,1-2,2", "0-2", 3},
		{"63", "63", 1},
		{" 4-7 \n", "4-7", 4},
	} {
		got, err := ParseCPUs(tc.in)
		if err != nil || got.String() != tc.out || len(got) != tc.n {
			t.Errorf("ParseCPUs(%q) = %q (%d), %v; want %q (%d)", tc.in, got, len(got), err, tc.out, tc.n)
		}
	}
	for _, in := range []string{",", "0,", "-1", "1-", "3-1", "a", "0 1", "0-3-5", "99999999", "0\n1", "+1"} {
		if got, err := ParseCPUs(in); err == nil {
			t.Errorf("ParseCPUs(%q) = %q, want an error", in, got)
		}
	}
}

// The expected results are those of bitmap_parselist() on a machine with 12 CPUs.
func TestCheckKernelCPUs(t *testing.T) {
	for _, in := range []string{"3", "0-3,8", "1,,2", ",1,", "all", "N", "8-N", "all:1/2", "0-11:2/4", "0-N:0/4,5", "0-3:1/100", "all,N,all:1/1", "1 2", "0-3, 8", " 1\t2 ,, 3 "} {
		if err := checkKernelCPUs(in, 11); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	for in, says := range map[string]string{
		"": "names no CPU", ",": "names no CPU", "0-3:0/4": "names no CPU", "-": `"" is not`, "0-": `"" is not`, "-3": `"" is not`, "a": `"a" is not`,
		"alls": `"Ns" is not`, "al": `"al" is not`, "NN": `"NN" is not`, "0-3-5": `"3-5" is not`, "all-3": `"N-3" is not`, "0-3:4": "want USED/GROUP after the colon", "3:1/2": `"3:1/2" is not`,
		"0-3:1/2/3": `"2/3" is not`, "1\n2": `"1\n2" is not`, "1 -2": `"" is not`, "1- 2": `"" is not`, " ": "names no CPU", "3-1": "runs backwards", "N-3": "runs backwards", "0-3:1/0": "of each 0 CPUs, 1", "0-3:3/2": "of each 2 CPUs, 3",
		"12": "CPU 12 is above 11", "0-15:2/4": "CPU 15 is above 11", "20-N": "CPU 20 is above 11", "99999": "CPU 99999 is above 11",
	} {
		if err := checkKernelCPUs(in, 11); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", in, err, says)
		}
	}
}

func TestCPUsAnd(t *testing.T) {
	a, b := CPUs{0, 1, 2, 8}, CPUs{2, 3, 8, 9}
	if got := a.And(b).String(); got != "2,8" {
		t.Errorf("And = %q", got)
	}
	if got := a.And(nil); got != nil {
		t.Errorf("And(nil) = %q", got)
	}
}

func TestParseWeights(t *testing.T) {
	if w, err := ParseWeights(" 4  1000\n"); err != nil || w != (Weights{4, 1000}) || w.String() != "4 1000" {
		t.Errorf("got %v, %v", w, err)
	}
	for _, in := range []string{"", "1", "1 2 3", "0 1", "1 10001", "-1 5", "x y"} {
		if w, err := ParseWeights(in); err == nil {
			t.Errorf("ParseWeights(%q) = %v, want an error", in, w)
		}
	}
}

func TestReadGroup(t *testing.T) {
	g := Group("testdata/cgroup/shop")
	if !g.Enabled() {
		t.Error("not enabled")
	}
	if Group("testdata/cgroup").Enabled() {
		t.Error("the root is enabled")
	}
	if c, err := g.Preferred(); err != nil || c.String() != "0-3,8" {
		t.Errorf("Preferred = %q, %v", c, err)
	}
	if c, err := g.Effective(); err != nil || c.String() != "0-3" {
		t.Errorf("Effective = %q, %v", c, err)
	}
	if w, err := g.Weights(); err != nil || w != DefaultWeights {
		t.Errorf("Weights = %v, %v", w, err)
	}
	st, err := g.Stat()
	want := Stat{12034567, 34567, 48211, 312, 4, 27, 3, 5, 19, 2}
	if err != nil || st != want {
		t.Errorf("Stat = %+v, %v", st, err)
	}
	l, err := g.Load()
	if err != nil || len(l.LLCs) != 3 || len(l.CPUs) != 5 {
		t.Fatalf("Load = %+v, %v", l, err)
	}
	if got, want := l.LLCs[2], (LLCLoad{2, CPUs{8, 9, 11}, 0, 0, 0}); !reflect.DeepEqual(got, want) {
		t.Errorf("llc2 = %+v", got)
	}
	if got, want := l.CPUs[1], (CPULoad{1, true, 960, 1030}); got != want {
		t.Errorf("cpu1 = %+v", got)
	}
	if got, want := l.CPUs[4], (CPULoad{5, false, 12, 12}); got != want {
		t.Errorf("cpu5 = %+v", got)
	}
}

func TestWriteGroup(t *testing.T) {
	dir := t.TempDir()
	g := Group(dir)
	if err := g.SetPreferred(CPUs{0}); err == nil {
		t.Error("a write made a file that was not there")
	}
	for _, tc := range []struct {
		do   func() error
		file string
		want string
	}{
		{func() error { return g.SetPreferred(CPUs{0, 1, 2, 3, 8}) }, FilePreferred, "0-3,8\n"},
		{func() error { return g.SetPreferred(nil) }, FilePreferred, "\n"},
		{func() error { return g.SetWeights(Weights{4, 1000}) }, FileWeights, "4 1000\n"},
		{func() error { return g.UnsetWeights() }, FileWeights, "\n"},
		{func() error { return g.EnableChildren(Controller) }, "cgroup.subtree_control", "+cosched\n"},
	} {
		path := filepath.Join(dir, tc.file)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := tc.do(); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != tc.want {
			t.Errorf("%s holds %q, want %q", tc.file, got, tc.want)
		}
	}
}

// A refused write must name the value, the file and the kernel's reason once.
func TestWriteError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, FileWeights)); err != nil {
		t.Fatal(err)
	}
	err := Group(dir).SetWeights(Weights{1, 2})
	if err == nil {
		t.Fatal("no error")
	}
	want := `writing "1 2" to ` + dir + "/" + FileWeights + ": no space left on device"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestParseStatErrors(t *testing.T) {
	good, err := os.ReadFile("testdata/cgroup/shop/" + FileStat)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, text string }{
		{"empty", ""},
		{"a key missing", strings.Replace(string(good), "tasks_pulled 19\n", "", 1)},
		{"a key twice", string(good) + "tasks_pulled 19\n"},
		{"no number", strings.Replace(string(good), "19", "many", 1)},
		{"no value", strings.Replace(string(good), "pulled 19", "pulled", 1)},
		{"negative", strings.Replace(string(good), "19", "-19", 1)},
	} {
		if s, err := ParseStat([]byte(tc.text)); err == nil {
			t.Errorf("%s: %+v, want an error", tc.name, s)
		}
	}
	if _, err := ParseStat([]byte(string(good) + "homes_chosen 7\n")); err != nil {
		t.Errorf("a key of a later kernel: %v", err)
	}
}

// After a cgroup was removed and made again, most of its counters may already be larger than before.
func TestStatSince(t *testing.T) {
	now := Stat{12, 12, 12, 12, 12, 12, 12, 12, 12, 12}
	for _, f := range StatFields {
		before := Stat{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}
		if d := now.Since(before); d != (Stat{2, 2, 2, 2, 2, 2, 2, 2, 2, 2}) {
			t.Errorf("the same cgroup: %+v", d)
		}
		if *f.Of(&before) = 13; now.Since(before) != now {
			t.Errorf("%s went back: %+v", f.Key, now.Since(before))
		}
	}
}

func TestStatSub(t *testing.T) {
	d := Stat{PreferredUsec: 980, OutsideUsec: 120, StraysReturned: 9}.Sub(Stat{PreferredUsec: 10, OutsideUsec: 90, StraysReturned: 4})
	if d != (Stat{PreferredUsec: 970, OutsideUsec: 30, StraysReturned: 5}) {
		t.Errorf("got %+v", d)
	}
	if p, ok := d.HomeShare(); !ok || p != 97 {
		t.Errorf("HomeShare = %v, %v", p, ok)
	}
	if _, ok := (Stat{}).HomeShare(); ok {
		t.Error("a share of nothing")
	}
}

func TestParseLoadErrors(t *testing.T) {
	for _, in := range []string{
		"llc0 cpus=0-3 home=4 util=1",
		"llc1 cpus=0-3 home=4 util=1 runnable=1",
		"llc0 cpus=0-3 home=5 util=1 runnable=1",
		"llc0 cpus=3-0 home=0 util=1 runnable=1",
		"llc0 cpus=0-3 home=0 util=-1 runnable=1",
		"llcx cpus=0-3 home=0 util=1 runnable=1",
		"cpu0 util=1 runnable=1",
		"cpu home=1 util=1 runnable=1",
		"cpu0 home=1 util runnable=1",
	} {
		if l, err := ParseLoad([]byte(in)); err == nil {
			t.Errorf("ParseLoad(%q) = %+v, want an error", in, l)
		}
	}
	l, err := ParseLoad(nil)
	if err != nil || len(l.LLCs) != 0 {
		t.Errorf("no lines: %+v, %v", l, err)
	}
	if l, err = ParseLoad([]byte("node0 util=3\nllc0 cpus=0 home=0 util=1 runnable=2 new=x\n")); err != nil || len(l.LLCs) != 1 {
		t.Errorf("lines of a later kernel: %+v, %v", l, err)
	}
}

func TestLLCs(t *testing.T) {
	for _, tc := range []struct {
		dir  string
		want string
	}{
		{"testdata/cpu-4llc", "0-1 2-3 4-5 7"},
		{"testdata/cpu-nocache", "0-1 2-3"},
	} {
		llcs, err := LLCs(tc.dir)
		var got []string
		for _, l := range llcs {
			got = append(got, l.String())
		}
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("LLCs(%s) = %q, %v; want %s", tc.dir, got, err, tc.want)
		}
	}
	if _, err := LLCs(t.TempDir()); err == nil {
		t.Error("an empty tree has LLC domains")
	}
}

func FuzzParseCPUs(f *testing.F) {
	for _, s := range []string{"", "0-3,8\n", "0-65535,0-65535", "3-1", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseCPUs(s)
		if err != nil {
			return
		}
		again, err := ParseCPUs(set.String())
		if err != nil || !reflect.DeepEqual(set, again) {
			t.Fatalf("%q read as %q, which reads as %q, %v", s, set, again, err)
		}
		if err := checkKernelCPUs(set.String(), maxCPU); err != nil && len(set) > 0 {
			t.Fatalf("%q: %v", set, err)
		}
		for i := 1; i < len(set); i++ {
			if set[i-1] >= set[i] {
				t.Fatalf("%q: not sorted: %v", s, []int(set))
			}
		}
	})
}

func FuzzParseStat(f *testing.F) {
	b, _ := os.ReadFile("testdata/cgroup/shop/" + FileStat)
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := ParseStat([]byte(s)); err == nil && st.Sub(st) != (Stat{}) {
			t.Fatalf("%+v less itself is not nothing", st)
		}
	})
}

func FuzzParseLoad(f *testing.F) {
	b, _ := os.ReadFile("testdata/cgroup/shop/" + FileLoad)
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLoad([]byte(s))
		if err != nil {
			return
		}
		for i, d := range l.LLCs {
			if d.Index != i || d.Home < 0 || d.Home > len(d.CPUs) {
				t.Fatalf("accepted %+v", d)
			}
		}
	})
}

func FuzzParseWeights(f *testing.F) {
	f.Add("100 150\n")
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseWeights(s)
		if err != nil {
			return
		}
		if again, err := ParseWeights(w.String()); err != nil || again != w {
			t.Fatalf("%q read as %v, which reads as %v, %v", s, w, again, err)
		}
	})
}
