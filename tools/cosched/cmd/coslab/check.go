package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/lint"
)

func init() {
	register("lint", "check style and types: gofmt, vet, staticcheck, shellcheck, docutils, checkpatch, sparse", runLint)
	register("matrix", "compile our files in every configuration of configs/matrix, without warnings", runMatrix)
}

// check is one thing that passes or fails. lint, matrix, test and fuzz run checks.
type check struct {
	name    string
	run     func(ctx context.Context) error
	timeout time.Duration
}

// checkTimeout is long because a lint may have to compile kernel/sched and, for
// sparse, prepare a build directory: minutes with a cold cache.
const checkTimeout = 10 * time.Minute

func lintChecks(o kbuild.Options) []check {
	var cs []check
	for _, l := range lint.Checks() {
		cs = append(cs, check{"lint/" + l.Name, func(ctx context.Context) error { return l.Run(ctx, o) }, checkTimeout})
	}
	return cs
}

func matrixChecks(o kbuild.Options) ([]check, error) {
	names, err := kbuild.Matrix(o.Root)
	if err != nil {
		return nil, err
	}
	var cs []check
	for _, n := range names {
		cs = append(cs, check{"matrix/" + n, func(ctx context.Context) error { return kbuild.CheckMatrix(ctx, o, n) }, checkTimeout})
	}
	return cs, nil
}

// otherBaseChecks are the checks that the patch series for the bases that are not built here apply
// and compile.
func otherBaseChecks(o kbuild.Options) ([]check, error) {
	bases, err := kbuild.Bases(o.Root)
	if err != nil {
		return nil, err
	}
	var cs []check
	for _, base := range bases {
		if base == o.Base {
			continue
		}
		o := o
		o.Base = base
		cs = append(cs,
			check{"linux-" + base + "/checkpatch", func(ctx context.Context) error { return lint.CheckPatches(ctx, o) }, checkTimeout},
			check{"linux-" + base + "/compiles", func(ctx context.Context) error { return kbuild.CheckCompiles(ctx, o) }, checkTimeout})
	}
	return cs, nil
}

// tally counts what has been run.
type tally struct{ passed, failed, skipped int }

func (t tally) String() string { return fmt.Sprintf("%d passed, %d failed", t.passed, t.failed) }

// runChecks runs the checks whose name only matches, or all if only is nil. It prints the result of
// each as it ends.
func (t *tally) runChecks(ctx context.Context, cs []check, only *regexp.Regexp) error {
	for _, c := range cs {
		if only != nil && !only.MatchString(c.name) {
			continue
		}
		start := time.Now()
		one, cancel := context.WithTimeout(ctx, c.timeout)
		err := c.run(one)
		cancel()
		took := time.Since(start).Round(100 * time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, kbuild.ErrNoSource) {
			t.skipped++
			fmt.Printf("skip %s: %v\n", c.name, err)
			continue
		}
		if err != nil {
			t.failed++
			fmt.Printf("FAIL %s (%s)\n%v\n", c.name, took, err)
			continue
		}
		t.passed++
		fmt.Printf("ok   %s (%s)\n", c.name, took)
	}
	return nil
}

// finish prints the last line and turns failures into an exit status.
func (t tally) finish() error {
	if t.skipped > 0 {
		fmt.Printf("%d skipped\n", t.skipped)
	}
	fmt.Println(t)
	if t.failed > 0 {
		return exitStatus(1)
	}
	if t.passed == 0 {
		return errors.New("nothing was run")
	}
	return nil
}

func checkFlags(name string, args []string) (kbuild.Options, *regexp.Regexp, error) {
	fs := flag.NewFlagSet("coslab "+name, flag.ContinueOnError)
	base := fs.String("base", kbuild.Base(), "Linux `version` to check on")
	pattern := fs.String("run", "", "only the checks whose name matches this `regexp`")
	if err := fs.Parse(args); err != nil {
		return kbuild.Options{}, nil, err
	}
	only, err := regexp.Compile(*pattern)
	if err != nil {
		return kbuild.Options{}, nil, fmt.Errorf("--run: %w", err)
	}
	root, err := kbuild.FindRoot()
	return kbuild.Options{Root: root, Base: *base, Out: os.Stderr}, only, err
}

func runLint(ctx context.Context, args []string) error {
	o, only, err := checkFlags("lint", args)
	if err != nil {
		return err
	}
	var t tally
	if err := t.runChecks(ctx, lintChecks(o), only); err != nil {
		return err
	}
	return t.finish()
}

func runMatrix(ctx context.Context, args []string) error {
	o, only, err := checkFlags("matrix", args)
	if err != nil {
		return err
	}
	cs, err := matrixChecks(o)
	if err != nil {
		return err
	}
	var t tally
	if err := t.runChecks(ctx, cs, only); err != nil {
		return err
	}
	return t.finish()
}
