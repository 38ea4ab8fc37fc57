package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("fuzz", "feed the parsers of files, annotations and messages unexpected input", runFuzz)
}

const fuzzUsage = `usage: coslab fuzz [OPTIONS]

Runs each fuzz test in Go for a while. Go's fuzzer derives new inputs from those of the test,
guided by the code that they reach. The result of each test is printed as it ends, and the last
line is "N passed, N failed". An input that makes a test fail is kept in testdata/fuzz of its
package, where each later run of the tests tries it. Inputs that reach more code are kept in
Go's own cache.

options:
`

func runFuzz(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab fuzz", flag.ContinueOnError)
	lasting := fs.Duration("for", 20*time.Second, "how long each fuzz test runs, a `time`")
	pattern := fs.String("run", "", "only the fuzz tests whose name, PACKAGE/FuzzName, matches this `regexp`")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), fuzzUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	only, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if *lasting < time.Second {
		return fmt.Errorf("--for %s: want at least 1s, as shorter runs reach nothing", *lasting)
	}
	root, err := kbuild.FindRoot()
	if err != nil {
		return err
	}
	checks, err := fuzzChecks(ctx, filepath.Join(root, "tools/cosched"), *lasting)
	if err != nil {
		return err
	}
	var t tally
	if err := t.runChecks(ctx, checks, only); err != nil {
		fmt.Println(t)
		return err
	}
	return t.finish()
}

// fuzzChecks lists the fuzz tests of a module.
func fuzzChecks(ctx context.Context, dir string, lasting time.Duration) ([]check, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{if .TestGoFiles}}{{.ImportPath}} {{.Dir}}{{else if .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}", "./...")
	cmd.Dir = dir
	packages, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var cs []check
	for p := range strings.Lines(string(packages)) {
		path, folder, ok := strings.Cut(strings.TrimSpace(p), " ")
		if !ok {
			continue
		}
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no tests in %s: %w", folder, err)
		}
		// A package whose files contain no fuzz test does not have to be compiled.
		if exec.CommandContext(ctx, "grep", append([]string{"-q", "^func Fuzz"}, files...)...).Run() != nil {
			continue
		}
		list := exec.CommandContext(ctx, "go", "test", "-list", "^Fuzz", path)
		list.Dir = dir
		out, err := list.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", path, err, out)
		}
		for name := range strings.Lines(string(out)) {
			name = strings.TrimSpace(name)
			if !strings.HasPrefix(name, "Fuzz") {
				continue
			}
			cs = append(cs, check{filepath.Base(path) + "/" + name, func(ctx context.Context) error {
				return fuzz(ctx, dir, path, name, lasting)
			}, lasting + 5*time.Minute})
		}
	}
	return cs, nil
}

func fuzz(ctx context.Context, dir, path, name string, lasting time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", lasting.String(), path)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil && !timeWasUp(out) {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// timeWasUp reports whether the only failure is that the fuzzer's time was up while a worker was
// running, which Go before 1.27 sometimes reports as a failure (go.dev/issue/75804). A report of a
// fuzz test itself names its file, or comes with the input.
func timeWasUp(out []byte) bool {
	return overrun.Match(out) && !bytes.Contains(out, []byte("Failing input"))
}

var overrun = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([^)]*\)\n +context deadline exceeded\n(exit status 1\n)?FAIL\b`)
