package kbuild

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// contribClone makes a repository with a series of one patch for systemd, a cache that has
// the source of a version as if it was just downloaded, and a mmdebstrap that "builds" one
// file.
func contribClone(t *testing.T, version string) (o Options, cache string) {
	t.Helper()
	root, cache, bin := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("COSCHED_CACHE", cache)
	write(t, filepath.Join(root, "contrib/systemd/series"), "one.patch\n")
	write(t, filepath.Join(root, "contrib/systemd/one.patch"),
		"One\n---\n--- a/src/unit.c\n+++ b/src/unit.c\n@@ -1,3 +1,3 @@\n first\n-second\n+changed\n third\n")
	base := filepath.Join(cache, "systemd-257")
	write(t, filepath.Join(base, "fetched"), "")
	write(t, filepath.Join(base, "apt/packages/systemd_"+version+".dsc"), "")
	write(t, filepath.Join(base, "pristine-"+version, "src/unit.c"), "first\nsecond\nthird\n")
	for name, script := range map[string]string{
		"apt-get": `case "$*" in indextargets*) echo 'Debian|Debian|mirror:/debian' ;; *) echo "$@" >>"$COSCHED_CACHE/apt" ;; esac`,
		"mmdebstrap": `echo "$@" >>"$COSCHED_CACHE/calls"
for arg; do
	case $arg in
	*sync-out\ /out*) mkdir -p "${arg##* }/usr/bin" && cp "$COSCHED_CACHE/systemd-257/tree/src/unit.c" "${arg##* }/usr/bin" ;;
	esac
done`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return Options{Root: root, Out: io.Discard}, cache
}

// A program is built once from the patched source, and again after a change of the series.
// The mirror is asked for a newer source after a week.
func TestContrib(t *testing.T) {
	o, cache := contribClone(t, "257.99-1")
	calls := func(of string) int {
		text, _ := os.ReadFile(filepath.Join(cache, of))
		return strings.Count(string(text), "\n")
	}
	build := func() *Contrib {
		t.Helper()
		c, err := BuildContrib(t.Context(), "systemd", o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := build()
	files, err := first.Files()
	if err != nil || first.Version != "257.99-1" || !slices.Equal(files, []string{"/usr/bin/unit.c"}) {
		t.Errorf("built %+v with %q, %v", first, files, err)
	}
	if text, err := os.ReadFile(filepath.Join(first.Root, "usr/bin/unit.c")); string(text) != "first\nchanged\nthird\n" {
		t.Errorf("built of %q, %v", text, err)
	}
	if again := build(); again.Root != first.Root || calls("calls") != 1 || calls("apt") != 0 {
		t.Errorf("the second time it is %s, after %d builds and %d calls of apt-get", again.Root, calls("calls"), calls("apt"))
	}
	write(t, filepath.Join(o.Root, "contrib/systemd/one.patch"), "--- a/src/unit.c\n+++ b/src/unit.c\n@@ -1,3 +1,3 @@\n first\n-second\n+other\n third\n")
	if other := build(); other.Root == first.Root || calls("calls") != 2 {
		t.Error("a changed patch leads to the same build")
	}
	then := time.Now().Add(-sourceAge - time.Hour)
	if err := os.Chtimes(filepath.Join(cache, "systemd-257", "fetched"), then, then); err != nil {
		t.Fatal(err)
	}
	if build(); calls("calls") != 2 || calls("apt") != 2 {
		t.Errorf("after a week there were %d builds and %d calls of apt-get", calls("calls"), calls("apt"))
	}
	left, _ := filepath.Glob(filepath.Join(cache, "systemd-257", "new-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// If Debian's source moved, the error names the patch that has to be brought to it.
func TestContribDoesNotApply(t *testing.T) {
	o, cache := contribClone(t, "257.99-1")
	write(t, filepath.Join(cache, "systemd-257/pristine-257.99-1/src/unit.c"), "first\nmoved\nthird\n")
	_, err := BuildContrib(t.Context(), "systemd", o)
	var p *PatchError
	if !errors.As(err, &p) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{"contrib/systemd/one.patch does not apply to systemd 257.99-1", "src/unit.c: hunk 1", "QUILT_PATCHES=CLONE/contrib/systemd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	o, _ = contribClone(t, "2570-1")
	if _, err := BuildContrib(t.Context(), "systemd", o); err == nil || !strings.Contains(err.Error(), "contrib/systemd is for 257") {
		t.Errorf("another version: %v", err)
	}
	if _, err := BuildContrib(t.Context(), "emacs", o); err == nil || !strings.Contains(err.Error(), "there are: systemd") {
		t.Errorf("another program: %v", err)
	}
}

// A build that fails leaves nothing that looks like a finished build, and the error has its
// messages.
func TestContribFails(t *testing.T) {
	o, cache := contribClone(t, "257.99-1")
	bin, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\necho 'no such header' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := BuildContrib(t.Context(), "systemd", o); err == nil || !strings.Contains(err.Error(), "no such header") || !strings.Contains(err.Error(), "cosched-build.log") {
		t.Errorf("the error is %v", err)
	}
	if built, _ := filepath.Glob(filepath.Join(cache, "systemd-257", "built-*")); len(built) > 0 {
		t.Errorf("built all the same: %v", built)
	}
}
