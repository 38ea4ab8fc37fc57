package tests

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// The runner keeps its promises about a guest's program: output, status, arguments and files.
func TestGuestOutputAndStatus(t *testing.T) {
	var live strings.Builder
	res := guest(t, vm.Config{
		Topology: topology(t, "paper"),
		Command:  []string{"sh", "-c", `echo "to stdout: $1 $WORD"; echo to stderr >&2; cat /x/data; exit 7`, "sh", "an 'argument'"},
		Env:      []string{"WORD=two words"},
		Files:    []vm.File{{Path: "/x/data", Data: []byte("file\n")}},
		Stdout:   &live,
	})
	if res.ExitStatus != 7 {
		t.Errorf("exit status is %d, want 7", res.ExitStatus)
	}
	want := "to stdout: an 'argument' two words\nfile\n"
	if string(res.Stdout) != want {
		t.Errorf("stdout is %q, want %q", res.Stdout, want)
	}
	if live.String() != want {
		t.Errorf("live stdout is %q, want %q", live.String(), want)
	}
	if string(res.Stderr) != "to stderr\n" {
		t.Errorf("stderr is %q", res.Stderr)
	}
	if !strings.Contains(res.Console, "Linux version "+kbuild.Base()) || strings.Contains(res.Console, "to std") {
		t.Errorf("the console is not the kernel's alone:\n%s", res.Console)
	}
}

// A program of the host runs with its shared libraries, and 1 MiB of output arrives complete.
func TestGuestProgramWithLibraries(t *testing.T) {
	res := guest(t, vm.Config{
		Topology: topology(t, "paper"),
		Command:  []string{"/usr/bin/perl", "-e", `print "x" x (1 << 20); print "\nend\n"`},
	})
	if n := len(res.Stdout); n != 1<<20+5 || !strings.HasSuffix(string(res.Stdout), "x\nend\n") || res.ExitStatus != 0 {
		t.Errorf("%d bytes of output, status %d, stderr %s", n, res.ExitStatus, res.Stderr)
	}
}

func TestGuestTimeout(t *testing.T) {
	_, err := vm.Run(t.Context(), vm.Config{
		Name: t.Name(), Kernel: kernel(t, "test").Image, Topology: topology(t, "paper"),
		Command: []string{"sh", "-c", "echo started; sleep 1000"}, Timeout: 15 * time.Second,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v, want a timeout", err)
	}
	var e *vm.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "no end after 15s") || !strings.Contains(err.Error(), "Run /init") {
		t.Errorf("the error does not say what happened, with the end of the console:\n%v", err)
	}
	whole, readErr := os.ReadFile(e.LogFile)
	if readErr != nil || !strings.Contains(string(whole), "Linux version") {
		t.Errorf("the whole console is not in %q: %v", e.LogFile, readErr)
	}
}

func TestGuestPanicIsReported(t *testing.T) {
	_, err := vm.Run(t.Context(), vm.Config{
		Name: t.Name(), Kernel: kernel(t, "test").Image, Topology: topology(t, "paper"),
		Command: []string{"sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60"}, Timeout: time.Minute,
	})
	if !vm.IsReport(err) || !strings.Contains(err.Error(), "sysrq triggered crash") {
		t.Errorf("a panic gives: %v", err)
	}
}

// The exit status of a program killed by a signal is 128 plus the signal's number, and CPUs can
// be left offline.
func TestGuestSignalAndOfflineCPUs(t *testing.T) {
	res := guest(t, vm.Config{
		Topology: topology(t, "uma8"), Online: 3,
		Command: []string{"sh", "-c", `cat /sys/devices/system/cpu/online /sys/devices/system/cpu/possible
echo 1 >/sys/devices/system/cpu/cpu7/online; cat /sys/devices/system/cpu/online; kill -9 $$`},
	})
	if got, want := string(res.Stdout), "0-2\n0-7\n0-2,7\n"; got != want {
		t.Errorf("online, possible and online CPUs are %q, want %q", got, want)
	}
	if res.ExitStatus != 128+9 {
		t.Errorf("exit status is %d, want 137", res.ExitStatus)
	}
}

// In parallel virtual time, two runs with one seed are the same to the last digit of the clock
// and of each counter, even if several CPUs work; another seed gives another run.
func TestGuestVirtualTime(t *testing.T) {
	run := func(seed uint64) string {
		return sh(t, "paper", `
			for i in 1 2 3 4 5 6; do (n=0; while [ $n -lt 3000 ]; do n=$((n + 1)); done) & done
			wait
			cat /proc/stat /proc/schedstat /proc/interrupts`,
			func(c *vm.Config) { c.Virtual = &vm.VirtualTime{Seed: seed} })
	}
	a, b, other := run(1), run(1), run(2)
	if a != b {
		t.Errorf("two runs with one seed differ:\n%s\n%s", a, b)
	}
	if a == other {
		t.Error("the seed makes no difference")
	}
}
