package kbuild

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Matrix lists the configurations in which the overlay's files and every patched file must
// compile without warnings: one for each file in configs/matrix.
func Matrix(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "configs", "matrix", "*.config"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".config"))
	}
	return names, nil
}

// matrixTargets compile what the series and the overlay change, and nothing that only a
// bootable kernel needs.
var matrixTargets = []string{"W=1", "prepare", "kernel/sched/", "kernel/cgroup/"}

// CheckMatrix compiles one configuration of the matrix. It is an error if W=1 gives
// warnings in the overlay's files, or new warnings in a patched file.
func CheckMatrix(ctx context.Context, o Options, name string) error {
	fragments := []string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config", "matrix/" + name + ".config"}
	j := job{name: "matrix-" + name, arch: "x86_64", targets: matrixTargets}
	// A kernel for another machine does not know most of base.config.
	if name == "i386" || name == "arm64" {
		fragments = fragments[len(fragments)-1:]
		j.arch = name
	}
	return checkWarnings(ctx, o, j, fragments)
}

// CheckCompiles compiles kernel/sched and kernel/cgroup of the test kernel, with the same
// checks as CheckMatrix.
func CheckCompiles(ctx context.Context, o Options) error {
	j := job{name: "compiles", arch: "x86_64", targets: matrixTargets}
	return checkWarnings(ctx, o, j, []string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config"})
}

// CheckSparse runs sparse on kernel/sched and kernel/cgroup of the test kernel.
func CheckSparse(ctx context.Context, o Options) error {
	j := job{name: "sparse", arch: "x86_64", targets: []string{"C=2", "prepare", "kernel/sched/", "kernel/cgroup/"}}
	return checkWarnings(ctx, o, j, []string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config"})
}

func checkWarnings(ctx context.Context, o Options, j job, fragments []string) error {
	b, err := newBuilder(o)
	if err != nil {
		return err
	}
	if j.frag, err = b.fragments(fragments...); err != nil {
		return err
	}
	// Settings of base.config may get lost if the last fragment makes them impossible.
	if j.must, err = b.fragments(fragments[len(fragments)-1]); err != nil {
		return err
	}
	patched, unlock, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if len(patched.patched) == 0 {
		return fmt.Errorf("the series for Linux %s is empty", b.opt.Base)
	}
	j.quiet = true
	all, err := b.warningsOf(ctx, j, patched)
	if err != nil {
		return err
	}
	var fresh []string
	var suspects []warning
	for _, w := range all {
		switch {
		case slices.Contains(patched.overlay, w.file):
			fresh = append(fresh, w.text)
		case slices.Contains(patched.patched, w.file):
			suspects = append(suspects, w)
		}
	}
	if len(suspects) > 0 {
		// The unmodified source gives warnings here and there too. Those are not caused by
		// the series.
		theirs, err := b.plainWarnings(ctx, j)
		if err != nil {
			return err
		}
		for _, w := range suspects {
			if !slices.ContainsFunc(theirs, func(t warning) bool { return t.same(w) }) {
				fresh = append(fresh, w.text)
			}
		}
	}
	if len(fresh) > 0 {
		return fmt.Errorf("%d warnings that the unmodified Linux %s does not give:\n%s",
			len(fresh), patched.version, strings.Join(fresh, "\n"))
	}
	return nil
}

// plainWarnings does a job on the unmodified source, and returns the warnings.
func (b *builder) plainWarnings(ctx context.Context, j job) ([]warning, error) {
	src, err := b.unpack(ctx)
	if err != nil {
		return nil, err
	}
	j.name += "-plain"
	j.frag, j.must = withoutCosched(j.frag), ""
	return b.warningsOf(ctx, j, src)
}

func withoutCosched(frag string) string {
	var s strings.Builder
	for line := range strings.Lines(frag) {
		if !strings.Contains(line, "COSCHED") {
			s.WriteString(line)
		}
	}
	return s.String()
}

// warning is one message of the compiler or of sparse.
type warning struct {
	file string // relative to the source tree
	what string // the message without line numbers, which patches move
	text string
}

func (w warning) same(o warning) bool { return w.file == o.file && w.what == o.what }

var warningLine = regexp.MustCompile(`^(\S+?):\d+(?::\d+)?: ((?:warning|error): .*)$`)

// warningsOf does a job and returns the warnings in its log. If nothing has changed since
// an earlier run, these are the warnings of that run.
func (b *builder) warningsOf(ctx context.Context, j job, src source) ([]warning, error) {
	// make does not repeat the warnings of an object that need not be compiled again, so
	// all objects are removed and compiled again. ccache, which does repeat warnings, makes
	// that cheap.
	j.fresh = func(dir string) {
		for _, d := range []string{"kernel/sched", "kernel/cgroup"} {
			objects, _ := filepath.Glob(filepath.Join(dir, d, "*.o"))
			for _, o := range objects {
				os.Remove(o)
			}
		}
	}
	done, err := b.compile(ctx, j, src)
	if err != nil {
		return nil, err
	}
	defer done()
	dir := b.buildDir(j.name)
	log, err := os.ReadFile(filepath.Join(dir, "cosched-build.log"))
	if err != nil {
		return nil, err
	}
	return parseWarnings(string(log), src.dir), nil
}

func parseWarnings(log, dir string) []warning {
	var ws []warning
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		m := warningLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		file := filepath.Clean(m[1])
		// A relative name is relative to the build directory, which has no source.
		for {
			rest, ok := strings.CutPrefix(file, "../")
			if !ok {
				break
			}
			file = rest
		}
		file = strings.TrimPrefix(strings.TrimPrefix(file, dir+"/"), filepath.Base(dir)+"/")
		w := warning{file: file, what: m[2], text: strings.TrimPrefix(line, dir+"/")}
		if !slices.ContainsFunc(ws, func(o warning) bool { return o.text == w.text }) {
			ws = append(ws, w)
		}
	}
	return ws
}
