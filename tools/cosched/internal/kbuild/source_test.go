package kbuild

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tarball of another version of Linux than the base is refused, and the source that the
// base is built from is left alone.
func TestOtherLinuxIsRefused(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	t.Setenv("COSCHED_CACHE", cache)
	tarball := filepath.Join(dir, "linux.tar")
	t.Setenv(sourceEnv, tarball)
	t.Setenv(BaseEnv, "7.3")
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for makefile, want := range map[string]string{
		"# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n": "linux.tar is the source of Linux 6.12, not of 7.3",
		"all:\n": "linux.tar is the source of Linux ?, not of 7.3",
	} {
		write(t, filepath.Join(dir, "linux", "Makefile"), makefile)
		if out, err := exec.Command("tar", "-cf", tarball, "-C", dir, "linux").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, err := Prepare(t.Context(), Options{Root: root, Base: "7.3"})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), sourceEnv) {
			t.Errorf("the error is %v, want %q and %s", err, want, sourceEnv)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, "linux-7.3", "pristine-*", "*")); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}

func TestBases(t *testing.T) {
	root := t.TempDir()
	for _, f := range []string{"linux-6.12/series", "linux-7.3/series", "linux-8.0/note", "qemu-10.0/series"} {
		write(t, filepath.Join(root, "patches", f), "")
	}
	if got, err := Bases(root); err != nil || !slices.Equal(got, []string{"6.12", "7.3"}) {
		t.Errorf("Bases() is %v, %v", got, err)
	}
	for env, want := range map[string]string{"": DefaultBase, "7.3": "7.3"} {
		t.Setenv(BaseEnv, env)
		if got := Base(); got != want {
			t.Errorf("with %s=%q Base() is %q, want %q", BaseEnv, env, got, want)
		}
	}
}

func TestGivenTarball(t *testing.T) {
	t.Setenv(BaseEnv, "6.12")
	for env, want := range map[string][2]string{
		"":                             {"", ""},
		"/a/linux.tar.xz":              {"/a/linux.tar.xz", ""},
		"/a/linux-source-7.3.tar.xz":   {"", "/a/linux-source-7.3.tar.xz"},
		"/a/linux-6.12.60.tar:/b/l.xz": {"/a/linux-6.12.60.tar", ""},
		"/7.3/linux-source-6.12.tar.xz:/b/linux_7.3.4.orig.tar.xz": {"/7.3/linux-source-6.12.tar.xz", "/b/linux_7.3.4.orig.tar.xz"},
	} {
		t.Setenv(sourceEnv, env)
		if got := [2]string{givenTarball("6.12"), givenTarball("7.3")}; got != want {
			t.Errorf("with %s=%q the tarballs are %q, want %q", sourceEnv, env, got, want)
		}
	}
}
