package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// events is a short run: one act that shows what it promises, one that does not.
func events() []Event {
	llcs := []string{"0-3", "4-7", "8-11", "12-15"}
	rows := []Row{
		{Cluster: "shop", Home: "0-3", Share: []float64{98.6, 1.4, 0, 0}, Source: "cosched.load"},
		{Cluster: "batch", Home: "8-11", Share: []float64{10, 30, 60, 0}, Source: "cosched.load"},
	}
	return []Event{
		{Hello: &Hello{Kernel: "6.12.1", CPUs: 16, LLCs: llcs, Acts: 2}},
		{Begin: &Begin{N: 1, Title: "kept at home", See: "Each group prefers one LLC domain and becomes a cluster: its threads move there and stay."}},
		{Cmd: "echo 0-3 > /sys/fs/cgroup/shop/cosched.cpus_preferred"},
		{Note: "waiting for 4 workers of stress-ng"},
		{Sample: &Sample{Seconds: 1.2, Busy: 8, Rows: rows}},
		{Sample: &Sample{Seconds: 1.5, Busy: 8.1, Rows: rows}},
		{Result: &Result{N: 1, Title: "kept at home", Rows: rows, OK: true, Checks: []Check{
			{What: "shop: CPU time at home", Got: "98.6 %", Want: "at least 97.0 %", Source: "cosched.stat", OK: true}}}},
		{Begin: &Begin{N: 2, Title: "weights", See: "To be seen."}},
		{Sample: &Sample{Seconds: 1.1, Busy: 4, Rows: []Row{{Cluster: "shop", Source: "/proc"}, rows[1]}}},
		{Result: &Result{N: 2, Title: "weights", Rows: []Row{
			{Cluster: "shop", When: "4 1000", Home: "0-3", Share: []float64{100, 0, 0, 0}, Source: "cosched.load"},
			{Cluster: "batch", When: "4 1000", Source: "/proc"},
		}, Checks: []Check{
			{What: "shop: CPU time at home", Got: "71.0 %", Want: "at least 97.0 %", Source: "cosched.stat"}}}},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", file, got)
	}
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	v := NewView(&out, Terminal{})
	v.Status("Booting")
	for _, e := range events() {
		v.Event(e)
	}
	r := v.Finish(nil)
	golden(t, "plain.txt", out.String())
	if r.OK || len(r.Acts) != 2 || r.Error != "" {
		t.Errorf("report: %+v", r)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape sequences off a terminal")
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 110 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}

// After all cursor movements, a terminal must show the same as a log, except for
// the samples.
func TestRedraw(t *testing.T) {
	var out bytes.Buffer
	v := NewView(&out, Terminal{Redraw: true, Width: 100})
	v.Status("Booting")
	for _, e := range events() {
		v.Event(e)
	}
	v.Finish(nil)
	golden(t, "redraw.txt", screen(out.String()))
}

func TestColor(t *testing.T) {
	var out bytes.Buffer
	v := NewView(&out, Terminal{Redraw: true, Color: true, Width: 100})
	for _, e := range events() {
		v.Event(e)
	}
	v.Finish(nil)
	if !strings.Contains(out.String(), "\x1b[48;5;") || !strings.Contains(out.String(), "\x1b[32m✓") {
		t.Error("no colors")
	}
	for line := range strings.Lines(screen(out.String())) {
		if strings.Contains(line, "\x1b[48;5;") && !strings.HasSuffix(strings.TrimRight(line, "- \n"), "\x1b[0m") {
			t.Errorf("color left on: %q", line)
		}
	}
}

// screen interprets the two cursor movements that a View uses.
func screen(s string) string {
	var lines []string
	for len(s) > 0 {
		if strings.HasPrefix(s, "\x1b[") && len(s) > 3 && s[2] >= '0' && s[2] <= '9' {
			digits := s[2 : strings.IndexFunc(s[2:], func(r rune) bool { return r < '0' || r > '9' })+2]
			if s[2+len(digits)] == 'A' {
				n := 0
				for _, d := range digits {
					n = 10*n + int(d-'0')
				}
				lines = lines[:len(lines)-n]
				s = strings.TrimPrefix(s[2+len(digits)+1:], "\x1b[J")
				continue
			}
		}
		line, rest, _ := strings.Cut(s, "\n")
		lines, s = append(lines, line), rest
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestFinish(t *testing.T) {
	for _, tc := range []struct {
		name   string
		events []Event
		err    error
		ok     bool
		says   string
	}{
		{"nothing came", nil, errors.New("no boot"), false, "stopped: no boot"},
		{"one act short", events()[:7], nil, false, "played 1 of 2 acts"},
		{"the guest's own words win", append(events()[:2], Event{Error: "writing failed"}), errors.New("exit 1"), false, "stopped: writing failed"},
		{"the guest started again", append(events()[:7], Event{Hello: &Hello{Acts: 1}}, Event{Result: &Result{N: 1, OK: true}}), nil, true, "1 of 1 acts"},
		{"an error after the last act", []Event{{Hello: &Hello{Acts: 1}}, {Result: &Result{N: 1, OK: true}}}, errors.New("the kernel reported"), false, "the kernel reported"},
		{"all well", []Event{{Hello: &Hello{Acts: 1}}, {Result: &Result{N: 1, OK: true}}}, nil, true, "1 of 1 acts"},
	} {
		var out bytes.Buffer
		v := NewView(&out, Terminal{})
		for _, e := range tc.events {
			v.Event(e)
		}
		if r := v.Finish(tc.err); r.OK != tc.ok {
			t.Errorf("%s: OK = %v", tc.name, r.OK)
		}
		if !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: does not say %q:\n%s", tc.name, tc.says, out.String())
		}
	}
}

func TestSendReceive(t *testing.T) {
	for _, e := range events() {
		var b bytes.Buffer
		if err := Send(&b, e); err != nil {
			t.Fatal(err)
		}
		if bytes.Count(b.Bytes(), []byte("\n")) != 1 {
			t.Errorf("not one line: %q", b.String())
		}
		got, ok := Receive(strings.TrimSuffix(b.String(), "\n"))
		if !ok || !reflect.DeepEqual(got, e) {
			x, _ := json.Marshal(got)
			t.Errorf("came back as %s", x)
		}
	}
	if _, ok := Receive("stress-ng: info"); ok {
		t.Error("any line is an event")
	}
}

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		in    string
		width int
		out   string
	}{
		{"abc", 0, "abc"},
		{"abc", 3, "abc"},
		{"abc", 2, "ab\x1b[0m"},
		{"\x1b[31m✓✓\x1b[0m", 2, "\x1b[31m✓✓\x1b[0m"},
		{"\x1b[31m✓✓✓", 2, "\x1b[31m✓✓\x1b[0m"},
	} {
		if got := clip(tc.in, tc.width); got != tc.out {
			t.Errorf("clip(%q, %d) = %q, want %q", tc.in, tc.width, got, tc.out)
		}
	}
}
