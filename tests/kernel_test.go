package tests

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// TestKernelIsFound: a kernel that is in the cache can be used while another kernel is built, even
// if that takes minutes.
func TestKernelIsFound(t *testing.T) {
	k := kernel(t, "test")
	base := filepath.Dir(filepath.Dir(filepath.Dir(k.Image)))
	for _, name := range []string{"tree.lock", "build-test.lock"} {
		f, err := os.OpenFile(filepath.Join(base, name), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// If another build really is going on, its locks serve as well.
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil && err != syscall.EWOULDBLOCK {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := kbuild.Build(ctx, kbuild.Options{Root: root, Variant: "test"})
	if err != nil {
		t.Fatalf("a kernel that is built waits for the locks of others: %v", err)
	}
	if again.Image != k.Image {
		t.Fatalf("%s is found again as %s", k.Image, again.Image)
	}
}
