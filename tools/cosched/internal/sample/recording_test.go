package sample_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/sample"
)

// recording returns a header and samples, line by line.
func recording(t *testing.T, compressed bool, samples ...*sample.Sample) [][]byte {
	t.Helper()
	var b bytes.Buffer
	w := sample.NewWriter(&b, compressed)
	var lines [][]byte
	line := func(v any) {
		b.Reset()
		if err := w.Line(v); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, bytes.Clone(b.Bytes()))
	}
	line(sample.NewHeader("/sys/fs/cgroup/cosched"))
	for _, s := range samples {
		line(s)
	}
	return lines
}

// three returns three samples with little in them.
func three(t *testing.T) []*sample.Sample {
	s := open(t, coschedtest.Host(t), "")
	var all []*sample.Sample
	for i := range 3 {
		now := read(t, s)
		now.Monotonic = uint64(i+1) * 1_000_000
		all = append(all, now)
	}
	return all
}

// all reads a recording. marks has a number for each sample, and b before those that begin.
func all(t *testing.T, text []byte) (marks string, torn bool, samples []*sample.Sample, err error) {
	t.Helper()
	r, err := sample.NewReader(bytes.NewReader(text), "file")
	if err != nil {
		return "", false, nil, err
	}
	for {
		s, begins, err := r.Next()
		if err == io.EOF {
			return marks, r.Torn(), samples, nil
		}
		if err != nil {
			return marks, false, samples, err
		}
		if begins {
			marks += "b"
		}
		marks += fmt.Sprint(s.Monotonic / 1_000_000)
		samples = append(samples, s)
	}
}

func TestRecording(t *testing.T) {
	wrote := three(t)
	for _, compressed := range []bool{false, true} {
		lines := recording(t, compressed, wrote...)
		text := bytes.Join(lines, nil)
		marks, torn, samples, err := all(t, text)
		if marks != "b123" || torn || err != nil {
			t.Errorf("compressed %v: %q, torn %v, %v", compressed, marks, torn, err)
		}
		for i := range samples {
			// JSON has no monotonic clock reading.
			want := *wrote[i]
			want.Time = samples[i].Time
			if !wrote[i].Time.Equal(samples[i].Time) || !reflect.DeepEqual(&want, samples[i]) {
				t.Errorf("wrote %+v\nread %+v", want, samples[i])
			}
		}
		// Two recordings, one after the other.
		if marks, _, _, err := all(t, append(bytes.Clone(text), text...)); marks != "b123b123" || err != nil {
			t.Errorf("compressed %v, appended: %q, %v", compressed, marks, err)
		}
		// Wherever the recording is cut, it is read up to there.
		for cut := 1; cut < len(text); cut++ {
			want, end, whole := "", 0, false
			for i, l := range lines {
				if end += len(l); end > cut {
					break
				}
				want += []string{"", "b1", "2", "3"}[i]
				whole = end == cut
			}
			marks, torn, _, err := all(t, text[:cut])
			// A gzip member that is cut in its last bytes has all of its text.
			if marks != want && !(compressed && strings.HasPrefix(marks, want)) || err != nil || torn == whole {
				t.Fatalf("compressed %v, cut at %d of %d: %q, want %q, torn %v, %v", compressed, cut, len(text), marks, want, torn, err)
			}
		}
	}
}

func TestRecordingCorrupt(t *testing.T) {
	lines := recording(t, false, three(t)...)
	zipped := recording(t, true, three(t)...)
	join := func(l ...[]byte) []byte { return bytes.Join(l, nil) }
	flip := bytes.Clone(zipped[2])
	flip[len(flip)-6] ^= 1 // of the checksum
	for _, tc := range []struct {
		name string
		text []byte
		at   int
		says string
	}{
		{"empty", nil, 1, "it is empty"},
		{"something else", []byte("root:x:0:0\n"), 1, "not a recording of cosched"},
		{"no header", lines[1], 1, "not a recording of cosched"},
		{"a line that is none", join(lines[0], lines[1], []byte("{\n"), lines[2]), 3, "not a sample: unexpected end of JSON input"},
		{"a line of NULs", join(lines[0], []byte("\x00\x00\n"), lines[2]), 2, "not a sample"},
		{"something else in JSON", join(lines[0], []byte("{}\n")), 2, "it has no time"},
		{"null", join(lines[0], []byte("null\n")), 2, "it has no time"},
		{"a domain that is not there", join(lines[0], bytes.Replace(lines[1], []byte(`"llc":1`), []byte(`"llc":7`), 1)), 2, "no LLC domain 7"},
		{"a negative domain", join(lines[0], bytes.Replace(lines[1], []byte(`"llc":1`), []byte(`"llc":-1`), 1)), 2, "no LLC domain -1"},
		{"CPUs that are none", join(lines[0], bytes.Replace(lines[1], []byte(`"0-3"`), []byte(`"3-0"`), 1)), 2, "runs backwards"},
		{"a later version", bytes.Replace(lines[0], []byte(":1,"), []byte(":2,"), 1), 1, "version 2, this cosched reads 1"},
		{"a checksum", join(zipped[0], zipped[1], flip, zipped[3]), 3, "damaged: gzip: invalid checksum"},
		{"text behind gzip", join(zipped[0], zipped[1], lines[2]), 3, "damaged: gzip: invalid header"},
	} {
		_, _, _, err := all(t, tc.text)
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitData || !strings.HasPrefix(p.Text, fmt.Sprintf("file:%d: ", tc.at)) || !strings.Contains(p.Text, tc.says) || strings.Contains(p.Text, "\n") {
			t.Errorf("%s: %v, want line %d and %q", tc.name, err, tc.at, tc.says)
		}
	}
}

// A recording that is appended to can be cut anywhere behind its header, and nothing else
// of it is lost.
func TestAppend(t *testing.T) {
	samples := three(t)
	name := filepath.Join(t.TempDir(), "recording")
	for _, compressed := range []bool{false, true} {
		lines := recording(t, compressed, samples...)
		text := bytes.Join(lines, nil)
		for _, cut := range []int{len(lines[0]) - 1, len(lines[0]), len(lines[0]) + 1, len(lines[0]) + 12, len(text) - 1, len(text)} {
			coschedtest.Append(t, name, "")
			coschedtest.Replace(t, name, string(text[:cut]))
			before, _, _, _ := all(t, text[:cut])
			f, zipped, torn, err := sample.Append(name)
			if cut < len(lines[0]) && !compressed {
				if err == nil {
					t.Error("no complete header, and no error")
				}
				continue
			}
			if err != nil || zipped != compressed || torn != (cut != len(text) && cut != len(lines[0])) {
				t.Fatalf("compressed %v, cut at %d: %v, torn %v, %v", compressed, cut, zipped, torn, err)
			}
			at, _ := f.Seek(0, io.SeekCurrent)
			if st, err := f.Stat(); err != nil || st.Size() != at {
				t.Errorf("compressed %v, cut at %d: at %d of %d, %v", compressed, cut, at, st.Size(), err)
			}
			if _, err := f.Write(text); err != nil {
				t.Fatal(err)
			}
			f.Close()
			whole, _ := os.ReadFile(name)
			// A gzip member that is cut in its last bytes has all of its text.
			if marks, again, _, err := all(t, whole); again || err != nil || strings.TrimSuffix(before, "3") != strings.TrimSuffix(strings.TrimSuffix(marks, "b123"), "3") {
				t.Errorf("compressed %v, cut at %d: %q, then %q, torn %v, %v", compressed, cut, before, marks, again, err)
			}
		}
	}
	for _, text := range []string{"", "root:x:0:0\n", "\x1f\x8bnonsense"} {
		coschedtest.Replace(t, name, text)
		_, _, _, err := sample.Append(name)
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitData {
			t.Errorf("%q: %v", text, err)
		}
		if now, _ := os.ReadFile(name); string(now) != text {
			t.Errorf("%q was changed", text)
		}
	}
}

// A recording that is being written is left alone: the line at its end may be half of one.
func TestAppendHeld(t *testing.T) {
	text := bytes.Join(recording(t, false, three(t)...), nil)
	name := filepath.Join(t.TempDir(), "recording")
	held := func(what string) {
		t.Helper()
		before, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, err = sample.Append(name)
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != cosched.ExitCantCreate || p.Text != name+" is being written by another cosched record: wait for it, or name another file" {
			t.Errorf("%s: %v", what, err)
		}
		if now, _ := os.ReadFile(name); !bytes.Equal(now, before) {
			t.Errorf("%s: cut from %d to %d bytes", what, len(before), len(now))
		}
	}
	f, err := sample.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	held("empty yet")
	if _, err := f.Write(text[:len(text)-1]); err != nil {
		t.Fatal(err)
	}
	held("made")
	f.Close()
	if f, _, _, err = sample.Append(name); err != nil {
		t.Fatal(err)
	}
	held("appended to")
	f.Close()
	if f, _, _, err = sample.Append(name); err != nil {
		t.Fatalf("closed: %v", err)
	}
	f.Close()
}

// In any order, an index returns the intervals that a reader does, compressed or not, and
// no interval between two recordings in one file.
func TestIndex(t *testing.T) {
	samples := three(t)
	for _, compressed := range []bool{false, true} {
		lines := recording(t, compressed, samples...)
		text := bytes.Join([][]byte{bytes.Join(lines, nil), lines[0], lines[2], lines[0], lines[2], lines[3], lines[1][:len(lines[1])/2]}, nil)
		name := filepath.Join(t.TempDir(), "r")
		coschedtest.Append(t, name, string(text))
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := sample.NewIndex(f, name)
		if err != nil || x.Len() != 4 || !x.Torn {
			t.Fatalf("%+v, %v", x, err)
		}
		// From 1 to 2, to 3; 2 alone; from 2 to 3.
		for _, i := range []int{3, 0, 1, 2, 1, 3} {
			v, err := x.Interval(i)
			want := samples[[]int{1, 2, 1, 2}[i]]
			if err != nil || !v.Time.Equal(want.Time) || v.Seconds != []float64{1, 1, 0, 1}[i] || len(v.Clusters) != 3 {
				t.Errorf("interval %d: %+v, %v", i, v, err)
			}
		}
		x.Close()
		f.Close()
	}
	for text, says := range map[string]string{
		"": ":1: not a recording of cosched", "{}\n": ":1: not a recording of cosched", string(recording(t, false)[0]): "without samples",
	} {
		name := filepath.Join(t.TempDir(), "r")
		coschedtest.Append(t, name, text)
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var p *cosched.Problem
		if _, err := sample.NewIndex(f, name); !errors.As(err, &p) || p.Status != cosched.ExitData || !strings.Contains(p.Text, says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"cosched_recording\":1}\n{\"time\":\"2026-01-01T00:00:00Z\",\"monotonic_usec\":1,\"llcs\":[\"0-3\"],\"cpus\":[],\"clusters\":[{\"llcs\":[{\"llc\":0}]}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := sample.NewReader(bytes.NewReader(text), "file")
		var was *sample.Sample
		for err == nil {
			var now *sample.Sample
			if now, _, err = r.Next(); err == nil {
				v := sample.Between(was, now)
				v.Select("a", 1, true)
				_ = v.Summary()
				was = now
			}
		}
		if err != io.EOF && strings.Contains(err.Error(), "\n") {
			t.Errorf("two lines: %v", err)
		}
	})
}
