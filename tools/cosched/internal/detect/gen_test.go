package detect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const remedy = "run go generate here (Debian: clang-14, llvm-14, libbpf-dev)"

func TestObjectIsCurrent(t *testing.T) {
	sum := sha256.New()
	for _, name := range []string{"bpf/detect.bpf.c", "bpf/kernel.h"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	made, err := os.ReadFile("bpf/sources.sha256")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(made), hex.EncodeToString(sum.Sum(nil))+" ") {
		t.Errorf("the sources are newer than the object: %s", remedy)
	}
}

// If the compiler that the object was made with is installed, the object is what it makes
// from the sources.
func TestObjectIsWhatItIsMadeOf(t *testing.T) {
	for _, what := range []string{"clang-14", "llvm-strip-14", "/usr/include/bpf/bpf_helpers.h"} {
		if _, err := exec.LookPath(what); err != nil && !filepath.IsAbs(what) {
			t.Skipf("no %s", what)
		}
		if _, err := os.Stat(what); err != nil && filepath.IsAbs(what) {
			t.Skipf("no %s", what)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "//go:generate ")
	line, _, _ = strings.Cut(line, "\n")
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.Replace(line, "bpf2go ", "bpf2go -output-dir "+dir+" -go-package detect ", 1))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	for _, name := range []string{"object_x86_bpfel.o", "object_x86_bpfel.go"} {
		is, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(is, made) {
			t.Errorf("%s is not what its sources give: %s", name, remedy)
		}
	}
}
