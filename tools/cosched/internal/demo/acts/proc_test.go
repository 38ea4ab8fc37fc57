package acts

import (
	"os"
	"reflect"
	"testing"

	"cosched.io/cosched"
)

func TestParseThreadStat(t *testing.T) {
	const rest = " 77 77 0 -1 4194368 112 0 0 0 1234 66 0 0 20 0 1 0 345 66543616 3043 18446744073709551615 1 1 0 0 0 0 0 16781312 19456 0 0 0 17 11 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
	for _, name := range []string{"stress-ng-cpu", "a b", "x) R 1 (", ")"} {
		got, err := parseThreadStat([]byte("78 (" + name + ") R 77" + rest))
		if want := (threadStat{'R', 11, 1300}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, in := range []string{"", "1 (x) R", "1 x R 77" + rest, "78 (x) R 77 77 77 0 -1 1 1 0 0 0 a 66 0 0 20 0 1 0 345 66543616 3043 1 1 1 0 0 0 0 0 1 1 0 0 0 17 11"} {
		if got, err := parseThreadStat([]byte(in)); err == nil {
			t.Errorf("%q: %+v, want an error", in, got)
		}
	}
}

// This process's own threads have the form that the parser expects.
func TestReadThreadStat(t *testing.T) {
	if _, err := readThreadStat("/proc", os.Getpid()); err != nil {
		t.Error(err)
	}
	if _, err := readThreadStat("/proc", 1<<30); !gone(err) {
		t.Errorf("no such thread: %v", err)
	}
}

func TestParseIdle(t *testing.T) {
	got, err := parseIdle([]byte("cpu  10 0 20 3000 7 0 0 0 0 0\ncpu0 5 0 10 1000 3 0 0 0 0 0\ncpu3 5 0 10 2000 4 0 0 0 0 0\nintr 12 0\n"))
	if want := map[int]uint64{0: 1003, 3: 2004}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range []string{"", "cpu 1 2 3 4 5 6\n", "cpu0 1 2 3 x 5 6\n"} {
		if got, err := parseIdle([]byte(in)); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func FuzzParseThreadStat(f *testing.F) {
	f.Add([]byte("78 (x) R 77 77 77 0 -1 4194368 112 0 0 0 1234 66 0 0 20 0 1 0 345 6 3 18 1 1 0 0 0 0 0 1 1 0 0 0 17 11 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseThreadStat(b); err == nil && s.cpu < 0 {
			t.Fatalf("CPU %d", s.cpu)
		}
	})
}

func TestShares(t *testing.T) {
	if got := shares([]uint64{1, 0, 3, 0}); !reflect.DeepEqual(got, []float64{25, 0, 75, 0}) {
		t.Errorf("%v", got)
	}
	if got := shares(make([]uint64, 4)); got != nil {
		t.Errorf("shares of nothing: %v", got)
	}
}

func TestRow(t *testing.T) {
	s := &stage{llcs: []cosched.CPUs{{0, 1}, {2, 3}}, llcOf: map[int]int{0: 0, 1: 0, 2: 1, 3: 1}}
	c := &cluster{name: "shop"}
	cw := &clusterWindow{util: []uint64{900, 100}, ticks: map[int]uint64{0: 10, 3: 30}}
	if r := s.row(c, cw, ""); r.Source != "/proc" || !reflect.DeepEqual(r.Share, []float64{25, 75}) || r.Home != "" {
		t.Errorf("without a home: %+v", r)
	}
	cw.home = cosched.CPUs{0, 1}
	if r := s.row(c, cw, ""); r.Source != cosched.FileLoad || !reflect.DeepEqual(r.Share, []float64{90, 10}) || r.Home != "0-1" {
		t.Errorf("with a home: %+v", r)
	}
	// Load decays after the last thread stopped; a share of that is none.
	cw.ticks = nil
	if r := s.row(c, cw, ""); r.Share != nil {
		t.Errorf("nothing ran: %+v", r)
	}
}

func TestIdleSince(t *testing.T) {
	var before, after idleReading
	after.at = before.at.Add(2e9)
	after.n, after.sum = 4, 200
	if got := after.since(before); got != 25 {
		t.Errorf("got %v %%", got)
	}
	if got := before.since(after); got != 0 {
		t.Errorf("backwards: %v %%", got)
	}
}
