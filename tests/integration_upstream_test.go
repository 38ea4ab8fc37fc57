//go:build integration

package tests

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// unusedFor is how long a program that was built is kept when no test uses it.
const unusedFor = 30 * 24 * time.Hour

// upstream builds a program that Debian does not have, or finds it in the cache. It is built of
// a module in a folder here that names the program's version and has the checksums of everything
// that the program is built of. The program is static, as a guest's libraries are not this
// machine's.
func upstream(t *testing.T, folder, pkg, tags, ldflags string) string {
	t.Helper()
	cache, err := kbuild.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "upstream")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "tests", folder)
	// Everything that the program depends on.
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q\n", output(t, source, "go", "env", "GOVERSION"), pkg, tags, ldflags)
	err = filepath.WalkDir(source, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) == ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(h, "%q\n", text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(pkg)
	program := filepath.Join(dir, fmt.Sprintf("%s-%x", name, h.Sum(nil)[:8]), name)
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := os.Stat(program); err == nil {
		// The time of the last use decides what is kept.
		if err := os.Chtimes(program, now, now); err != nil {
			t.Fatal(err)
		}
		return program
	}
	old, _ := filepath.Glob(filepath.Join(dir, name+"-*", name))
	for _, f := range old {
		if st, err := os.Stat(f); err == nil && now.Sub(st.ModTime()) > unusedFor {
			os.RemoveAll(filepath.Dir(f))
		}
	}
	t.Logf("building %s, several minutes", name)
	tmp := filepath.Join(dir, "new-"+name, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-mod=readonly", "-tags", tags, "-ldflags=-s -w "+ldflags, "-o", tmp, pkg)
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, text)
	}
	if err := os.Rename(filepath.Dir(tmp), filepath.Dir(program)); err != nil {
		t.Fatal(err)
	}
	t.Logf("built %s in %s", name, time.Since(now).Round(time.Second))
	return program
}

// module is a Go module whose source is there: fetched if need be, and checked.
type module struct{ Version, Dir string }

// moduleOf returns a module in the version that a folder here asks for.
func moduleOf(t *testing.T, folder, path string) (m module) {
	t.Helper()
	if err := json.Unmarshal([]byte(output(t, filepath.Join(root, "tests", folder), "go", "mod", "download", "-json", path)), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func output(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(text))
}
