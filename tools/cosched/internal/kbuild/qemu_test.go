package kbuild

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// qemuClone makes a repository with a series of one patch, and a cache.
func qemuClone(t *testing.T, dsc string) (Options, string) {
	t.Helper()
	root, cache := t.TempDir(), t.TempDir()
	t.Setenv("COSCHED_CACHE", cache)
	t.Setenv(qemuSourceEnv, dsc)
	write(t, filepath.Join(root, "patches/qemu-10.0/series"), "one.patch\n")
	write(t, filepath.Join(root, "patches/qemu-10.0/one.patch"),
		"One\n---\n--- a/accel/clock.c\n+++ b/accel/clock.c\n@@ -1,3 +1,3 @@\n first\n-second\n+changed\n third\n")
	return Options{Root: root, Out: io.Discard}, cache
}

// A source package of another version is refused before anything is built from it.
func TestOtherQEMUIsRefused(t *testing.T) {
	o, _ := qemuClone(t, "/nowhere/qemu_9.2.4+ds-1.dsc")
	_, err := BuildQEMU(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "/nowhere/qemu_9.2.4+ds-1.dsc") || !strings.Contains(err.Error(), "QEMU 10.0") {
		t.Errorf("the error is %v", err)
	}
	if _, err := FindQEMU(o); err == nil || !strings.Contains(err.Error(), "make lab") {
		t.Errorf("a QEMU that was not built: %v", err)
	}
}

// If a point release moved, the error names the patch, the file and the hunk.
func TestFailingHunkOfQEMUIsNamed(t *testing.T) {
	o, cache := qemuClone(t, "/nowhere/qemu_10.0.99+ds-1.dsc")
	pristine := filepath.Join(cache, "qemu-10.0", "pristine-10.0.99+ds-1")
	write(t, filepath.Join(pristine, "configure"), "#!/bin/false\n")
	write(t, filepath.Join(pristine, "accel/clock.c"), "first\nmoved\nthird\n")
	_, err := BuildQEMU(t.Context(), o)
	var p *PatchError
	if !errors.As(err, &p) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{"patches/qemu-10.0/one.patch does not apply to QEMU 10.0.99+ds-1", "accel/clock.c: hunk 1", "quilt push"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// The key has what the build depends on: another series is another QEMU.
func TestQEMUFollowsItsSeries(t *testing.T) {
	o, _ := qemuClone(t, "")
	a, err := newQEMUBuilder(o)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(o.Root, "patches/qemu-10.0/one.patch"), "another\n")
	b, err := newQEMUBuilder(o)
	if err != nil {
		t.Fatal(err)
	}
	if a.dir() == b.dir() {
		t.Error("a changed patch leads to the same build")
	}
}

func TestNinjaStep(t *testing.T) {
	for line, want := range map[string]string{
		"[5/1549] Compiling C object libqemuutil.a.p/util_error.c.o": "libqemuutil.a.p/util_error.c.o",
		"[1549/1549] Linking target qemu-system-x86_64":              "qemu-system-x86_64",
		"[7/9] Generating trace/trace-hw.h with a custom command":    "trace/trace-hw.h",
		"../util/error.c:5:1: error: no":                             "",
	} {
		m := ninjaStep.FindStringSubmatch(line)
		if got := ""; m != nil {
			got = m[len(m)-1]
			if got != want {
				t.Errorf("%q is step %q, want %q", line, got, want)
			}
		} else if want != "" {
			t.Errorf("%q is no step", line)
		}
	}
}
