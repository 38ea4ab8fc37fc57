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

Runs everything that make test runs. The result of each check or test is printed
as it ends, and the last line is "N passed, N failed". Names are lint/...,
matrix/..., linux-BASE/..., qemu, kernel/VARIANT, and PACKAGE/TestName for tests
in Go.

options:
`

// testedVariants are the kernels that the tests boot. They and QEMU are built first,
// so that the time of a test does not include a build.
var testedVariants = []string{"test", "vanilla", "debug"}

// buildTimeout: a build of the debug kernel from scratch takes 15 minutes on two slow cores.
const buildTimeout = 30 * time.Minute

// imageTimeout: making an image of Debian takes 100 s while a kernel is built at the same time, and
// a slow mirror can make that longer.
const imageTimeout = 20 * time.Minute

// goTestTimeout bounds the tests of one module. Each guest has its own, shorter timeout.
const goTestTimeout = 100 * time.Minute

func runTest(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab test", flag.ContinueOnError)
	base := fs.String("base", kbuild.Base(), "Linux `version` to test on")
	pattern := fs.String("run", "", "only checks, kernels and Go tests whose name matches this `regexp`; for Go tests,\nonly the name of the top-level function is matched")
	integration := fs.Bool("integration", false, "instead, run the tests with real software in guests of Debian: kernel/integration,\nimage/SUITE, contrib/NAME and tests/TestIntegration...; --run then matches the part\nof a test's name after TestIntegration")
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
	// The tests in Go read this, as they build the kernels that they boot.
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
		variants = append(slices.Clone(variants), "large", "nonumab")
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

// runIntegration makes what the tests with real software boot, and runs these tests. Their
// build tag keeps them out of all other runs.
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
		// No test ran: only what the guests need was prepared.
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

// goTests runs the tests of a module. Packages run one after the other, because two
// that boot guests at the same time would disturb each other's timing.
func (t *tally) goTests(ctx context.Context, dir, pattern string, more ...string) error {
	// -count=1, because cached results of go test depend on the files of the module, but not on
	// those of the kernel. Two guests run at a time; the third test prepares its own meanwhile.
	args := append([]string{"test", "-json", "-p=1", "-count=1", "-parallel=3", "-timeout", goTestTimeout.String()}, more...)
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
	said := map[string]string{} // output of a test, or of a package, until its result is known
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

// take accounts for one event. Only top-level tests are counted. The failing
// subtests of a test are shown in its output.
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
		// Leave out the lines of go test that repeat what is printed here.
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
			// A package fails if one of its tests fails, which is already counted, or if it does not
			// compile or panics, which is counted here.
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

// shortPackage is a package's path without the parts that all packages share.
func shortPackage(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, "cosched.io/cosched/"), "internal/")
}
