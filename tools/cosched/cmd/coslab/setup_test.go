package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cosched.io/cosched/internal/kbuild"
)

// On a machine that has nothing of what is needed, not even Go, tools/setup.sh says so.
func TestSetupOnBareMachine(t *testing.T) {
	root, err := kbuild.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, tool := range []string{"sed", "id", "dirname"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/bash", filepath.Join(root, "tools/setup.sh"), "--check")
	cmd.Env = []string{"PATH=" + bin, "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	said := string(out)
	for _, want := range []string{"missing: gcc ", " ccache ", " golang-go\n", "make setup"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in what it says", want)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 || t.Failed() {
		t.Errorf("it exits with %d:\n%s", code, said)
	}
}
