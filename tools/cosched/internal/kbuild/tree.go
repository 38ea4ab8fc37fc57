package kbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tree is a patched source tree and what it should contain.
type tree struct {
	pristine source
	dir      string
	root     string            // the repository
	product  string            // Linux; QEMU
	base     string            // 6.12
	patches  []string          // paths, in order
	overlay  []string          // paths relative to root
	wanted   map[string][]byte // the files that differ from the pristine source, by path; set by patch
}

// treeState records what update last did to a tree, so that the next update can undo it.
type treeState struct {
	Pristine string   // directory that the tree was linked from
	Managed  []string // files that differ from the pristine source
	Hash     string   // of their content
	Complete bool     // all of them are written
}

func (t *tree) stateFile() string { return t.dir + ".json" }

// state reads what the last update did; an unreadable state means a new tree.
func (t *tree) state() treeState {
	var state treeState
	data, err := os.ReadFile(t.stateFile())
	if err != nil || json.Unmarshal(data, &state) != nil {
		return treeState{}
	}
	return state
}

// current tells whether the tree already has the files of want.
func (t *tree) current(want map[string][]byte) bool {
	state := t.state()
	return state.Complete && state.Pristine == t.pristine.dir && state.Hash == hashWant(want)
}

// patched makes the tree the pristine source with the series applied. The caller holds the
// lock of whatever is built from the tree.
func (t *tree) patched(ctx context.Context) error {
	want, err := t.want(ctx)
	if err != nil || t.current(want) {
		return err
	}
	return t.update(ctx, want)
}

// update makes the tree the pristine source with the files of want on top,
// touching only files whose content changes.
func (t *tree) update(ctx context.Context, want map[string][]byte) error {
	state := t.state()
	if state.Pristine != t.pristine.dir {
		// This is another point release: link a new tree.
		if err := t.link(ctx); err != nil {
			return err
		}
		state = treeState{Pristine: t.pristine.dir}
	}
	for _, rel := range state.Managed {
		if _, still := want[rel]; still {
			continue
		}
		orig, err := os.ReadFile(filepath.Join(t.pristine.dir, rel))
		switch {
		case errors.Is(err, os.ErrNotExist):
			err = os.Remove(filepath.Join(t.dir, rel))
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		case err == nil:
			err = replace(filepath.Join(t.dir, rel), orig)
		}
		if err != nil {
			return fmt.Errorf("restoring %s: %w", rel, err)
		}
	}
	// Record this before it is done, so that the next run finishes or undoes the work of a
	// run that dies half-way.
	state.Hash, state.Complete = hashWant(want), false
	state.Managed = slices.Sorted(maps.Keys(want))
	if err := t.record(state); err != nil {
		return err
	}
	for _, rel := range state.Managed {
		if err := replace(filepath.Join(t.dir, rel), want[rel]); err != nil {
			return fmt.Errorf("updating the patched tree: %w", err)
		}
	}
	state.Complete = true
	return t.record(state)
}

func (t *tree) record(state treeState) error {
	data, err := json.MarshalIndent(state, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(t.stateFile(), append(data, '\n'), 0o644)
}

func hashWant(want map[string][]byte) string {
	var parts []string
	for _, rel := range slices.Sorted(maps.Keys(want)) {
		parts = append(parts, rel, string(want[rel]))
	}
	return hashOf(parts...)
}

// link makes the tree anew, as hard links to the pristine source: 80,000 files in two
// seconds, without using disk space. Nothing in this package writes into a linked file.
func (t *tree) link(ctx context.Context) error {
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "cp", "-al", t.pristine.dir, t.dir)
	killGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("linking %s: %w\n%s", t.dir, err, out)
	}
	return nil
}

// replace writes a file, only if its content changes, by renaming a new file over it. That
// also breaks its link to the pristine source.
func replace(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".cosched-new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// shadow makes the patched source in an empty directory: files that differ are real files,
// and everything else is symbolic links to the pristine source. It is for tools that only
// read, which need not wait for a build that keeps the tree itself from changing.
func (t *tree) shadow(dir string, want map[string][]byte) error {
	opened := map[string]bool{} // directories that are not one link
	var open func(rel string) error
	open = func(rel string) error {
		if opened[rel] {
			return nil
		}
		if rel != "." {
			if err := open(filepath.Dir(rel)); err != nil {
				return err
			}
			if err := os.Remove(filepath.Join(dir, rel)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err := os.Mkdir(filepath.Join(dir, rel), 0o755); err != nil {
				return err
			}
		}
		opened[rel] = true
		entries, err := os.ReadDir(filepath.Join(t.pristine.dir, rel))
		if errors.Is(err, os.ErrNotExist) {
			return nil // a directory of the overlay's own
		}
		for _, e := range entries {
			if err := os.Symlink(filepath.Join(t.pristine.dir, rel, e.Name()), filepath.Join(dir, rel, e.Name())); err != nil {
				return err
			}
		}
		return err
	}
	for rel, content := range want {
		if err := open(filepath.Dir(rel)); err != nil {
			return err
		}
		if err := replace(filepath.Join(dir, rel), content); err != nil {
			return err
		}
	}
	return open(".")
}

// want returns every file that differs from the pristine source, with its content.
func (t *tree) want(ctx context.Context) (map[string][]byte, error) {
	want, err := t.applyPatches(ctx)
	if err != nil {
		return nil, err
	}
	for _, rel := range t.overlay {
		if _, err := os.Stat(filepath.Join(t.pristine.dir, rel)); err == nil {
			return nil, fmt.Errorf("%s exists in %s %s already: change it with a patch, the overlay holds new files only", rel, t.product, t.pristine.version)
		}
		if _, both := want[rel]; both {
			return nil, fmt.Errorf("%s is in the overlay and in a patch: it can be in one of them only", rel)
		}
		data, err := os.ReadFile(filepath.Join(t.root, rel))
		if err != nil {
			return nil, fmt.Errorf("reading the overlay: %w", err)
		}
		want[rel] = data
	}
	return want, nil
}

// applyPatches applies the series to copies of the files that it touches.
func (t *tree) applyPatches(ctx context.Context) (map[string][]byte, error) {
	want := map[string][]byte{}
	if len(t.patches) == 0 {
		return want, nil
	}
	stage, err := os.MkdirTemp(filepath.Dir(t.dir), "stage-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stage)
	touched := map[string]bool{}
	for _, p := range t.patches {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("the series names a patch that cannot be read: %w", err)
		}
		for _, rel := range patchedFiles(string(text)) {
			if touched[rel] {
				continue
			}
			touched[rel] = true
			orig, err := os.ReadFile(filepath.Join(t.pristine.dir, rel))
			if errors.Is(err, os.ErrNotExist) {
				continue // a file that the patch creates, or patch's own message
			}
			if err != nil {
				return nil, err
			}
			if err := replace(filepath.Join(stage, rel), orig); err != nil {
				return nil, err
			}
		}
		if err := t.applyOne(ctx, stage, p, string(text)); err != nil {
			return nil, err
		}
	}
	for rel := range touched {
		data, err := os.ReadFile(filepath.Join(stage, rel))
		if err != nil {
			return nil, fmt.Errorf("after the series: %w", err)
		}
		want[rel] = data
	}
	return want, nil
}

var patchTarget = regexp.MustCompile(`(?m)^\+\+\+ [^/\s]+/(\S+)`)

// patchedFiles lists the files that a -p1 patch changes or creates.
func patchedFiles(patch string) []string {
	var files []string
	for _, m := range patchTarget.FindAllStringSubmatch(patch, -1) {
		if !slices.Contains(files, m[1]) {
			files = append(files, m[1])
		}
	}
	return files
}

// applyOne applies a patch. It does so first without writing, so that a patch that fails is
// reported with all its failing hunks.
func (t *tree) applyOne(ctx context.Context, stage, path, text string) error {
	for _, dry := range []bool{true, false} {
		args := []string{"-p1", "--fuzz=0", "--forward", "--batch", "--no-backup-if-mismatch", "--reject-file=-", "-i", path}
		if dry {
			args = append(args, "--dry-run")
		}
		cmd := exec.CommandContext(ctx, "patch", args...)
		cmd.Dir = stage
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				return fmt.Errorf("running patch: %w", err)
			}
			return &PatchError{
				Patch: t.rel(path), Product: t.product, Version: t.pristine.version, Base: t.base,
				Pristine: t.pristine.dir, Series: t.rel(filepath.Dir(path)),
				Failures: failures(string(out), text), Output: string(out),
			}
		}
	}
	return nil
}

func (t *tree) rel(path string) string {
	if r, err := filepath.Rel(t.root, path); err == nil {
		return r
	}
	return path
}

// Failure is one place where a patch does not apply.
type Failure struct {
	File string
	Hunk int    // counted from 1 within the file; 0 when the whole file is the problem
	Line string // where patch looked for the hunk
	Head string // the hunk's own @@ line
	Why  string // set if there is no hunk: the file is missing, or has the change already
}

// PatchError says which patch, file and hunk do not apply to which source.
type PatchError struct {
	Patch    string
	Product  string // Linux or QEMU
	Version  string
	Base     string
	Pristine string
	Series   string
	Failures []Failure
	Output   string
}

func (e *PatchError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s does not apply to %s %s:\n", e.Patch, e.Product, e.Version)
	for _, f := range e.Failures {
		switch {
		case f.Why != "":
			fmt.Fprintf(&s, "  %s: %s\n", f.File, f.Why)
		default:
			fmt.Fprintf(&s, "  %s: hunk %d fails near line %s: %s\n", f.File, f.Hunk, f.Line, f.Head)
		}
	}
	if len(e.Failures) == 0 {
		fmt.Fprintf(&s, "  patch says:\n    %s\n", strings.ReplaceAll(strings.TrimSpace(e.Output), "\n", "\n    "))
	}
	fmt.Fprintf(&s, `The source has moved under it. Refresh it with quilt, in a copy of the source:
  cp -r %s /tmp/%s && cd /tmp/%s
  export QUILT_PATCHES=CLONE/%s    # CLONE: this repository
  quilt push -a                    # stops at the patch
  quilt push -f                    # then put in by hand what is in the .rej files
  quilt refresh`, e.Pristine, filepath.Base(e.Series), filepath.Base(e.Series), e.Series)
	return s.String()
}

var (
	checking   = regexp.MustCompile(`^(?:checking|patching) file '?([^']+?)'?(?: \(.*\))?$`)
	hunkFailed = regexp.MustCompile(`^Hunk #(\d+) FAILED at (\d+)`)
	already    = regexp.MustCompile(`^Reversed \(or previously applied\) patch detected`)
	wholeName  = regexp.MustCompile(`^\|\+\+\+ [^/\s]+/(\S+)`)
)

// failures reads the failures from the output of patch.
func failures(out, text string) []Failure {
	var fs []Failure
	file, mentioned := "", ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if m := checking.FindStringSubmatch(line); m != nil {
			file = m[1]
		} else if m := wholeName.FindStringSubmatch(line); m != nil {
			mentioned = m[1]
		} else if m := hunkFailed.FindStringSubmatch(line); m != nil {
			var n int
			fmt.Sscanf(m[1], "%d", &n)
			fs = append(fs, Failure{File: file, Hunk: n, Line: m[2], Head: hunkHead(text, file, n)})
		} else if already.MatchString(line) {
			fs = append(fs, Failure{File: file, Why: "the source has this change already"})
		} else if strings.HasPrefix(line, "No file to patch") {
			fs = append(fs, Failure{File: mentioned, Why: "the source has no such file"})
		}
	}
	return fs
}

// hunkHead finds the @@ line of the n-th hunk for a file in a patch.
func hunkHead(text, file string, n int) string {
	in, count := false, 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := patchTarget.FindStringSubmatch(line); m != nil {
			in, count = m[1] == file, 0
		} else if in && strings.HasPrefix(line, "@@ ") {
			if count++; count == n {
				return line
			}
		}
	}
	return ""
}
