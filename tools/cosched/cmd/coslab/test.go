package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"cosched.io/cosched/internal/debian"
	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("test", "run every check and test: lint, matrix, Go tests, guests", runTest)
}

const testUsage = `usage: coslab test [OPTIONS]

Runs everything that make test runs, tells of each as it ends, and ends with a
line "N passed, N failed". Names are lint/..., matrix/..., linux-BASE/..., qemu,
kernel/VARIANT, and PACKAGE/TestName for tests in Go.

options:
`

// testedVariants are the kernels that the tests boot. They and QEMU are built first,
// so that no test's time includes a build.
var testedVariants = []string{"test", "vanilla", "debug"}

// A cold build of the debug kernel takes 15 minutes on two slow cores.
const buildTimeout = 30 * time.Minute

// An image of Debian takes 100 s beside a kernel build, and a slow mirror has its say.
const imageTimeout = 20 * time.Minute

// goTestTimeout bounds the tests of one module; each guest has a shorter one of its own.
const goTestTimeout = 100 * time.Minute

func runTest(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab test", flag.ContinueOnError)
	base := fs.String("base", kbuild.Base(), "Linux `version` to test on")
	pattern := fs.String("run", "", "only checks, kernels and Go tests whose name matches this `regexp`; Go tests\nare matched by the name of the top-level function alone")
	integration := fs.Bool("integration", false, "instead, the tests with real software in guests of Debian: kernel/integration,\nimage/SUITE, contrib/NAME and tests/TestIntegration...; --run then matches what follows that")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), testUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	only, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	root, err := kbuild.FindRoot()
	if err != nil {
		return err
	}
	o := kbuild.Options{Root: root, Base: *base, Out: os.Stderr}
	// For the tests in Go, which build what they boot.
	if err := os.Setenv(kbuild.BaseEnv, *base); err != nil {
		return err
	}
	if *integration {
		return runIntegration(ctx, o, *pattern)
	}
	checks := lintChecks(o)
	matrix, err := matrixChecks(o)
	if err != nil {
		return err
	}
	checks = append(checks, matrix...)
	others, err := otherBaseChecks(o)
	if err != nil {
		return err
	}
	checks = append(checks, others...)
	checks = append(checks, check{"qemu", func(ctx context.Context) error {
		_, err := kbuild.BuildQEMU(ctx, o)
		return err
	}, buildTimeout})
	variants := testedVariants
	if os.Getenv("COSCHED_LONG") != "" {
		variants = append(slices.Clone(variants), "large")
	}
	for _, v := range variants {
		vo := o
		vo.Variant = v
		checks = append(checks, check{"kernel/" + v, func(ctx context.Context) error {
			_, err := kbuild.Build(ctx, vo)
			return err
		}, buildTimeout})
	}
	var t tally
	if err := t.runChecks(ctx, checks, only); err != nil {
		fmt.Println(t)
		return err
	}
	for _, module := range []string{"tools/cosched", "tests"} {
		if err := t.goTests(ctx, filepath.Join(root, module), *pattern); err != nil {
			fmt.Println(t)
			return err
		}
	}
	return t.finish()
}

// runIntegration makes what the tests with real software boot, and runs them. Their
// build tag keeps them out of everything else.
func runIntegration(ctx context.Context, o kbuild.Options, pattern string) error {
	o.Variant = "integration"
	checks := []check{{"qemu", func(ctx context.Context) error {
		_, err := kbuild.BuildQEMU(ctx, o)
		return err
	}, buildTimeout}, {"kernel/integration", func(ctx context.Context) error {
		_, err := kbuild.Build(ctx, o)
		return err
	}, buildTimeout}}
	for _, suite := range debian.Suites {
		checks = append(checks, check{"image/" + suite, func(ctx context.Context) error {
			_, err := debian.Image(ctx, suite, o.Out)
			return err
		}, imageTimeout})
	}
	for _, name := range kbuild.Contribs() {
		checks = append(checks, check{"contrib/" + name, func(ctx context.Context) error {
			_, err := kbuild.BuildContrib(ctx, name, o)
			return err
		}, buildTimeout})
	}
	var t tally
	if err := t.runChecks(ctx, checks, nil); err != nil {
		fmt.Println(t)
		return err
	}
	if t.failed > 0 {
		return t.finish()
	}
	before := t
	if err := t.goTests(ctx, filepath.Join(o.Root, "tests"), "^TestIntegration.*("+pattern+")", "-tags", "integration"); err != nil {
		fmt.Println(t)
		return err
	}
	if t == before {
		// What the guests need was only prepared.
		fmt.Println(t)
		return fmt.Errorf("--run %s: no test has a name of TestIntegration and something that matches: grep -h ^func.TestIntegration tests/*.go", pattern)
	}
	return t.finish()
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
	ImportPath  string
}

// goTests runs the tests of a module. Packages run one after the other: two that
// boot guests at the same time would only disturb each other's timing.
func (t *tally) goTests(ctx context.Context, dir, pattern string, more ...string) error {
	// What go test remembers of a test hangs on the files of its module, not on the kernel's.
	args := append([]string{"test", "-json", "-p=1", "-count=1", "-timeout", goTestTimeout.String()}, more...)
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./...")...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	before := t.failed
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	said := map[string]string{} // output of a test, or of a package, until its fate is known
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Println(lines.Text())
			continue
		}
		t.take(e, said)
	}
	readErr := lines.Err()
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case readErr != nil:
		return fmt.Errorf("reading the output of go test: %w", readErr)
	case err != nil && t.failed == before:
		t.failed++
		fmt.Printf("FAIL go test in %s: %v\n", dir, err)
	}
	return nil
}

// take accounts for one event. Only tests at the top are counted; the failing
// parts of one show in its output.
func (t *tally) take(e event, said map[string]string) {
	name := e.Package
	if e.Test != "" {
		name = shortPackage(e.Package) + "/" + e.Test
	} else if e.ImportPath != "" {
		name = e.ImportPath
	}
	took := time.Duration(e.Elapsed * float64(time.Second)).Round(100 * time.Millisecond)
	top, _, part := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output", "build-output":
		if part {
			name = shortPackage(e.Package) + "/" + top
		}
		// The frames around a test's output say nothing that is not said here.
		if l := strings.TrimSpace(e.Output); !strings.HasPrefix(l, "=== ") && l != "PASS" && l != "FAIL" {
			said[name] += e.Output
		}
	case "pass", "skip", "fail":
		if part {
			if e.Action != "pass" {
				fmt.Printf("     %s %s (%s)\n", e.Action, name, took)
			}
			return
		}
		if e.Test == "" {
			// A package fails when one of its tests does, which is counted, or with none, when
			// it does not compile or panics.
			if e.Action == "fail" && (e.FailedBuild != "" || strings.Contains(said[name], "panic: ") || strings.Contains(said[name], "setup failed")) {
				t.failed++
				fmt.Printf("FAIL %s (%s)\n%s%s", name, took, said[e.FailedBuild], said[name])
			}
			return
		}
		switch e.Action {
		case "pass":
			t.passed++
			fmt.Printf("ok   %s (%s)\n", name, took)
		case "skip":
			t.skipped++
			fmt.Printf("skip %s (%s)\n%s", name, took, said[name])
		case "fail":
			t.failed++
			fmt.Printf("FAIL %s (%s)\n%s", name, took, said[name])
		}
		delete(said, name)
	}
}

// shortPackage is a package's path without what all of them share.
func shortPackage(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, "cosched.io/cosched/"), "internal/")
}
