package kbuild

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is a repository and a kernel source that are small enough to patch in a test.
type fake struct {
	t    *testing.T
	root string
	tree tree
}

const fairC = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\ntwelve\nthirteen\nfourteen\n"

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, root: t.TempDir()}
	cache := t.TempDir()
	pristine := filepath.Join(cache, "pristine-6.12.1-1")
	write(t, filepath.Join(pristine, "kernel/sched/fair.c"), fairC)
	write(t, filepath.Join(pristine, "kernel/sched/core.c"), "core\n")
	f.tree = tree{
		pristine: source{dir: pristine, version: "6.12.1-1", hash: "pristine"},
		dir:      filepath.Join(cache, "tree-x"), root: f.root, product: "Linux", base: "6.12",
	}
	return f
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) patch(name, text string) {
	f.t.Helper()
	dir := filepath.Join(f.root, "patches/linux-6.12")
	write(f.t, filepath.Join(dir, name), text)
	old, _ := os.ReadFile(filepath.Join(dir, "series"))
	write(f.t, filepath.Join(dir, "series"), string(old)+name+" # a comment\n")
}

func (f *fake) update() (string, error) {
	f.t.Helper()
	var err error
	if f.tree.patches, err = readSeries(filepath.Join(f.root, "patches/linux-6.12")); err != nil {
		f.t.Fatal(err)
	}
	if f.tree.overlay, err = findOverlay(f.root); err != nil {
		f.t.Fatal(err)
	}
	want, err := f.tree.want(f.t.Context())
	if err != nil {
		return "", err
	}
	if !f.tree.current(want) {
		err = f.tree.update(f.t.Context(), want)
	}
	return hashWant(want), err
}

func (f *fake) mustUpdate() string {
	f.t.Helper()
	hash, err := f.update()
	if err != nil {
		f.t.Fatal(err)
	}
	return hash
}

func (f *fake) content(rel string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.tree.dir, rel))
	if errors.Is(err, os.ErrNotExist) {
		return "(absent)"
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

const goodPatch = `Subject: sched: two becomes TWO

--- a/kernel/sched/fair.c
+++ b/kernel/sched/fair.c
@@ -1,4 +1,4 @@
 one
-two
+TWO
 three
 four
`

// The second hunk expects a line that the source does not have.
const badPatch = `--- a/kernel/sched/fair.c
+++ b/kernel/sched/fair.c
@@ -1,3 +1,3 @@
 one
-TWO
+too
 three
@@ -9,5 +9,5 @@ static int select_task_rq_fair
 nine
 ten
-ELEVEN
+11
 twelve
 thirteen
`

func TestTreeFollowsSeriesAndOverlay(t *testing.T) {
	f := newFake(t)
	f.patch("0001-two.patch", goodPatch)
	write(t, filepath.Join(f.root, "kernel/sched/cosched.c"), "new\n")
	write(t, filepath.Join(f.root, "kernel/sched/cosched.c~"), "an editor's\n")
	first := f.mustUpdate()
	if got, want := f.content("kernel/sched/fair.c"), strings.Replace(fairC, "two", "TWO", 1); got != want {
		t.Errorf("fair.c is %q, want %q", got, want)
	}
	if got := f.content("kernel/sched/cosched.c"); got != "new\n" {
		t.Errorf("the overlay's file is %q", got)
	}
	if got := f.content("kernel/sched/cosched.c~"); got != "(absent)" {
		t.Errorf("an editor's backup is in the tree: %q", got)
	}
	if data, _ := os.ReadFile(filepath.Join(f.tree.pristine.dir, "kernel/sched/fair.c")); string(data) != fairC {
		t.Errorf("the pristine source changed to %q", data)
	}

	// A shadow reads the same, and leaves the pristine source alone.
	want, err := f.tree.want(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shadow := t.TempDir()
	if err := f.tree.shadow(shadow, want); err != nil {
		t.Fatal(err)
	}
	for _, rel := range []string{"kernel/sched/fair.c", "kernel/sched/core.c", "kernel/sched/cosched.c"} {
		if data, err := os.ReadFile(filepath.Join(shadow, rel)); err != nil || string(data) != f.content(rel) {
			t.Errorf("%s in a shadow is %q (%v), in the tree %q", rel, data, err, f.content(rel))
		}
	}

	// Nothing changed: the hash is the same, and no file is touched, or make would rebuild.
	past := time.Now().Add(-time.Hour)
	fair := filepath.Join(f.tree.dir, "kernel/sched/fair.c")
	if err := os.Chtimes(fair, past, past); err != nil {
		t.Fatal(err)
	}
	if again := f.mustUpdate(); again != first {
		t.Errorf("an unchanged tree hashes to %s, then %s", first, again)
	}
	if info, _ := os.Stat(fair); info.ModTime().After(past.Add(time.Minute)) {
		t.Error("an unchanged file was written again")
	}

	// Patches and overlay are gone: the tree is the pristine source again.
	for _, p := range []string{"patches/linux-6.12/series", "kernel/sched/cosched.c"} {
		if err := os.Remove(filepath.Join(f.root, p)); err != nil {
			t.Fatal(err)
		}
	}
	if again := f.mustUpdate(); again == first {
		t.Error("the hash does not tell the patched tree from the plain one")
	}
	if got := f.content("kernel/sched/fair.c"); got != fairC {
		t.Errorf("fair.c is %q after the patch has gone", got)
	}
	if got := f.content("kernel/sched/cosched.c"); got != "(absent)" {
		t.Errorf("cosched.c is %q after it has gone from the overlay", got)
	}
}

func TestFailingHunkIsNamed(t *testing.T) {
	f := newFake(t)
	f.patch("0001-two.patch", goodPatch)
	f.mustUpdate()
	before := f.content("kernel/sched/fair.c")
	f.patch("0002-eleven.patch", badPatch)
	_, err := f.update()
	var pe *PatchError
	if !errors.As(err, &pe) {
		t.Fatalf("the error is %v, not a PatchError", err)
	}
	want := Failure{File: "kernel/sched/fair.c", Hunk: 2, Line: "9", Head: "@@ -9,5 +9,5 @@ static int select_task_rq_fair"}
	if len(pe.Failures) != 1 || pe.Failures[0] != want {
		t.Errorf("failures are %+v, want %+v\n%s", pe.Failures, want, pe.Output)
	}
	for _, s := range []string{"patches/linux-6.12/0002-eleven.patch", "Linux 6.12.1-1", "kernel/sched/fair.c: hunk 2", "quilt refresh"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the message lacks %q:\n%v", s, err)
		}
	}
	if got := f.content("kernel/sched/fair.c"); got != before {
		t.Errorf("the failing series left fair.c as %q", got)
	}
}

func TestPatchesThatCannotApply(t *testing.T) {
	tests := []struct{ name, patch, want string }{
		{"missing file", "--- a/kernel/sched/none.c\n+++ b/kernel/sched/none.c\n@@ -1,1 +1,1 @@\n-a\n+b\n", "none.c"},
		{"already there", "--- a/kernel/sched/core.c\n+++ b/kernel/sched/core.c\n@@ -1,1 +1,1 @@\n-old\n+core\n", "core.c"},
		{"context moved by fuzz", "--- a/kernel/sched/fair.c\n+++ b/kernel/sched/fair.c\n@@ -1,5 +1,5 @@\n ONE\n two\n-three\n+3\n four\n five\n", "hunk 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			f.patch("0001-x.patch", tt.patch)
			_, err := f.update()
			var pe *PatchError
			if !errors.As(err, &pe) {
				t.Fatalf("the error is %v, not a PatchError", err)
			}
			if !strings.Contains(err.Error(), tt.want) || len(pe.Failures) == 0 {
				t.Errorf("the message lacks %q or a failure:\n%v\n%s", tt.want, err, pe.Output)
			}
		})
	}
}

func TestOverlayHoldsNewFilesOnly(t *testing.T) {
	f := newFake(t)
	write(t, filepath.Join(f.root, "kernel/sched/core.c"), "mine\n")
	if _, err := f.update(); err == nil || !strings.Contains(err.Error(), "kernel/sched/core.c exists in Linux 6.12.1-1") {
		t.Errorf("an overlay file over an existing one: %v", err)
	}
}

func TestNotTaken(t *testing.T) {
	frag := "CONFIG_A=y\nCONFIG_B=n\nCONFIG_C=n\nCONFIG_D=64\n# CONFIG_E=y\nCONFIG_F=y\nCONFIG_F=n\n"
	config := "CONFIG_C=y\nCONFIG_D=8\n# CONFIG_A is not set\n"
	got := strings.Join(notTaken(frag, config), " ")
	if want := "CONFIG_A=y CONFIG_C=n CONFIG_D=64"; got != want {
		t.Errorf("not taken: %q, want %q", got, want)
	}
}

func TestParseWarnings(t *testing.T) {
	log := `  CC      kernel/sched/fair.o
/c/tree-x/kernel/sched/fair.c:12:3: warning: unused variable 'a' [-Wunused-variable]
In file included from /c/tree-x/kernel/sched/build_policy.c:60:
../tree-x/kernel/sched/rt.c:9: warning: expecting prototype for x()
/c/tree-x/kernel/sched/fair.c:12:3: warning: unused variable 'a' [-Wunused-variable]
`
	got := parseWarnings(log, "/c/tree-x")
	if len(got) != 2 || got[0].file != "kernel/sched/fair.c" || got[1].file != "kernel/sched/rt.c" {
		t.Fatalf("warnings are %+v", got)
	}
	if moved := (warning{file: got[0].file, what: got[0].what, text: "elsewhere"}); !got[0].same(moved) {
		t.Error("a warning whose line moved is taken for another")
	}
}
