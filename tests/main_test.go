// Package tests boots the kernels of this repository and asserts on what they do.
// Every test is run by `make test`; `go test -run NAME .` in this directory runs
// one. Kernels are built when they are not there yet.
package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// root is the repository.
var root string

func TestMain(m *testing.M) {
	dir, err := kbuild.FindRoot()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	root = dir
	code := m.Run()
	if binDir != "" {
		os.RemoveAll(binDir)
	}
	os.Exit(code)
}

type built struct {
	once sync.Once
	k    *kbuild.Kernel
	err  error
}

var (
	kernelsMu sync.Mutex
	kernels   = map[string]*built{}
)

// kernel builds a variant of the kernel, once for all tests.
func kernel(t testing.TB, variant string) *kbuild.Kernel {
	t.Helper()
	kernelsMu.Lock()
	b := kernels[variant]
	if b == nil {
		b = &built{}
		kernels[variant] = b
	}
	kernelsMu.Unlock()
	b.once.Do(func() { b.k, b.err = kbuild.Build(t.Context(), kbuild.Options{Root: root, Variant: variant}) })
	if b.err != nil {
		t.Fatalf("kernel variant %s: %v", variant, b.err)
	}
	return b.k
}

// topology is a preset's topology.
func topology(t testing.TB, preset string) vm.Topology {
	t.Helper()
	p, err := vm.Find(preset)
	if err != nil {
		t.Fatal(err)
	}
	return p.Topology
}

// guest runs a guest to its end, and fails the test if the end is not reached or if the
// kernel reports a problem. The kernel is the test variant unless c names another.
func guest(t testing.TB, c vm.Config) *vm.Result {
	t.Helper()
	if c.Kernel == "" {
		c.Kernel = kernel(t, "test").Image
	}
	if c.Name == "" {
		c.Name = t.Name()
	}
	c.FailOnReport = true
	res, err := vm.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// sh runs a shell script in a guest of a preset's topology and returns its
// standard output. A script that exits with a status other than 0 fails the test.
func sh(t testing.TB, preset, script string, change ...func(*vm.Config)) string {
	t.Helper()
	c := vm.Config{Topology: topology(t, preset), Command: []string{"sh", "-euc", script}}
	for _, f := range change {
		f(&c)
	}
	res := guest(t, c)
	if res.ExitStatus != 0 {
		t.Fatalf("the script exits with %d\nstdout:\n%s\nstderr:\n%s", res.ExitStatus, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

var (
	binMu  sync.Mutex
	binDir string
	made   = map[string]error{}
)

// programs builds the C programs of a directory of tests, workloads or selftests,
// once for all tests, and returns the directory that they are in.
func programs(t testing.TB, dir string) string {
	t.Helper()
	binMu.Lock()
	defer binMu.Unlock()
	if binDir == "" {
		d, err := os.MkdirTemp("", "cosched-tests-")
		if err != nil {
			t.Fatal(err)
		}
		binDir = d
	}
	out := filepath.Join(binDir, dir)
	err, done := made[dir]
	if !done {
		cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", filepath.Join(root, "tests", dir), "O="+out, "OUT="+out)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		var text []byte
		if text, err = cmd.CombinedOutput(); err != nil {
			err = errors.New(strings.TrimSpace(fmt.Sprintf("building tests/%s: %v\n%s", dir, err, text)))
		}
		made[dir] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// long tells whether the tests may take an hour: make test-long.
func long() bool { return os.Getenv("COSCHED_LONG") != "" }

// seeds returns the seeds that a test of placement runs with; each gives another interleaving.
func seeds() []uint64 {
	if long() {
		return []uint64{1, 2, 3, 4, 5}
	}
	return []uint64{1}
}
