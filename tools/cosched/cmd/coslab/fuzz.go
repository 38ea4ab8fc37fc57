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
	register("fuzz", "feed the parsers of files, annotations and messages what they do not expect", runFuzz)
}

const fuzzUsage = `usage: coslab fuzz [OPTIONS]

Runs each fuzz test in Go for a while, with inputs that the fuzzer of Go derives from those of
the test by what they reach, tells of each as it ends, and ends with a line "N passed,
N failed". An input that makes a test fail is kept in testdata/fuzz of its package, where each
later run of the tests tries it. What was found to reach more is kept in Go's own cache.

options:
`

func runFuzz(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab fuzz", flag.ContinueOnError)
	lasting := fs.Duration("for", 20*time.Second, "how long each one runs, a `time`")
	pattern := fs.String("run", "", "only those whose name, PACKAGE/FuzzName, matches this `regexp`")
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
		return fmt.Errorf("--for %s: less than a second reaches nothing", *lasting)
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
		// Those of a package whose files name none need not be compiled to know.
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

// timeWasUp says whether all that failed is that the fuzzer's own time was up while a worker was
// at work, which Go before 1.27 now and then reports as a failure (go.dev/issue/75804). What a
// fuzz test itself reports names its file, or comes with the input.
func timeWasUp(out []byte) bool {
	return overrun.Match(out) && !bytes.Contains(out, []byte("Failing input"))
}

var overrun = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([^)]*\)\n +context deadline exceeded\n(exit status 1\n)?FAIL\b`)
