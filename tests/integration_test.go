//go:build integration

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cosched.io/cosched/internal/debian"
	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// The tests in the files integration_*_test.go run real software of Debian, and are
// those of `make test-integration`. Guests are slow and share two cores with other work: tests
// wait for a state, not for a fixed time, and the bounds are generous.

// debianTimeout is the time limit of a guest of Debian. Booting takes half a minute if nothing
// else runs on the host, and five times that if much does.
const debianTimeout = 25 * time.Minute

// inDebian runs a shell script as root in a guest with a suite of Debian, and returns what
// it printed. The guest has 4 CPUs in 2 LLC domains, and the cosched command. A script that
// exits with a status other than 0 fails the test.
func inDebian(t *testing.T, suite, script string, change ...func(*vm.Config)) string {
	t.Helper()
	return inDebianWith(t, suite, nil, script, change...)
}

// inDebianWith is inDebian with additional packages of Debian.
func inDebianWith(t *testing.T, suite string, packages []string, script string, change ...func(*vm.Config)) string {
	t.Helper()
	image, err := debian.ImageWith(t.Context(), suite, packages, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return sh(t, "paper", script, append([]func(*vm.Config){func(c *vm.Config) {
		c.Kernel = kernel(t, "integration").Image
		c.Disk = image
		c.MemoryMB = 2048
		c.Programs = []string{command(t)}
		c.Timeout = debianTimeout
		// It has happened that a busy host ran none of the vCPUs for 24 s, and the kernel reports
		// a stall after 21 s. This is the longest timeout that it accepts.
		c.Cmdline = append(c.Cmdline, "rcupdate.rcu_cpu_stall_timeout=300")
	}}, change...)...)
}

// eachSuite runs a test in the Debian releases that are supported, at the same time, and
// returns when all have ended.
func eachSuite(t *testing.T, f func(t *testing.T, suite string)) {
	t.Run("debian", func(t *testing.T) {
		for _, suite := range debian.Suites {
			t.Run(suite, func(t *testing.T) {
				t.Parallel()
				f(t, suite)
			})
		}
	})
}

// contrib builds a program of Debian 13 with the patches in contrib/NAME, and returns a function
// that puts it into a guest: systemd in the place of Debian's, crun beside it.
func contrib(t *testing.T, name string) func(*vm.Config) {
	t.Helper()
	built, err := kbuild.BuildContrib(t.Context(), name, kbuild.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	files, err := built.Files()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *vm.Config) {
		for _, path := range files {
			c.Files = append(c.Files, vm.File{Path: path, Host: filepath.Join(built.Root, path)})
		}
	}
}

// share builds the program share, whose groups of threads and whose locks are known.
func share(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "share")
	source := filepath.Join(root, "tools/cosched/internal/command/testdata/share.c")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-O2", "-pthread", "-o", bin, source).CombinedOutput(); err != nil {
		t.Fatalf("building share: %v\n%s", err, out)
	}
	return bin
}

// Debian's systemd boots from the disk without failed units, and leaves the controller alone.
func TestIntegrationDebian(t *testing.T) {
	eachSuite(t, func(t *testing.T, suite string) {
		out := inDebian(t, suite, `systemctl --failed --plain --no-legend
			. /etc/os-release; echo "$VERSION_CODENAME"
			ps -o comm= 1
			grep -o cosched /sys/fs/cgroup/cgroup.controllers
			grep -c cosched /sys/fs/cgroup/system.slice/cgroup.controllers || true
			cosched ls >/dev/null && echo ls`)
		if want := suite + "\nsystemd\ncosched\n0\nls\n"; out != want {
			t.Errorf("the guest says %q, want %q", out, want)
		}
	})
}
