package debian

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakes puts programs on the PATH that stand for the real ones, and that download nothing.
func fakes(t *testing.T, mmdebstrap string) (cache string) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"mmdebstrap": mmdebstrap,
		"apt-get":    "echo 'Debian|Debian|mirror:/debian'",
		"tar":        "true",
		// -q -t ext4 -O FEATURES -d ROOT FILE SIZE
		"mke2fs": "echo disk >$8",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	cache = t.TempDir()
	t.Setenv("COSCHED_CACHE", cache)
	return cache
}

// An image is made once, from the mirror of this machine, and an image that is not used any
// more is removed.
func TestImage(t *testing.T) {
	// As root, mmdebstrap makes the archive only; otherwise it is also called to open a
	// user namespace.
	cache := fakes(t, `[ "$1" != --unshare-helper ] || { shift; exec "$@"; }
echo "$@" >>"$COSCHED_CACHE/calls"`)
	old := filepath.Join(cache, "debian", "trixie-0.ext4")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-unusedFor - time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for range 2 {
		image, err := Image(t.Context(), "trixie", &out)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(image); string(text) != "disk\n" {
			t.Errorf("the image is %q, %v", text, err)
		}
	}
	calls, _ := os.ReadFile(filepath.Join(cache, "calls"))
	if n := strings.Count(string(calls), "\n"); n != 1 || !strings.HasSuffix(string(calls), "mirror:/debian\n") || !strings.Contains(string(calls), "trixie") {
		t.Errorf("mmdebstrap was called %d times: %s", n, calls)
	}
	if !strings.Contains(out.String(), "up to date") {
		t.Errorf("the second time it says %q", out.String())
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("an image that nobody uses is kept")
	}
	left, _ := filepath.Glob(filepath.Join(cache, "debian", "new-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestImageFails(t *testing.T) {
	cache := fakes(t, "echo no such suite >&2; exit 1")
	for suite, want := range map[string]string{"trixie": "no such suite", "../x": "is no suite", "": "is no suite"} {
		if _, err := Image(t.Context(), suite, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", suite, err)
		}
	}
	if made, _ := filepath.Glob(filepath.Join(cache, "debian", "*.ext4")); len(made) > 0 {
		t.Errorf("made all the same: %v", made)
	}
}

// Another suite, another week and other packages make another image.
func TestKey(t *testing.T) {
	day := time.Date(2026, 1, 7, 0, 0, 0, 0, time.UTC)
	first := key("trixie", Packages, day)
	if key("trixie", Packages, day.Add(24*time.Hour)) != first {
		t.Error("the key changes within a week")
	}
	if key("bookworm", Packages, day) == first || key("trixie", Packages, day.Add(7*24*time.Hour)) == first {
		t.Error("the key is the same for another suite or week")
	}
	if key("trixie", Machines, day) == first {
		t.Error("the key is the same with other packages")
	}
}
