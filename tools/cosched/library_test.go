package cosched_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// library is the directory of the C library, beside this module.
const library = "../lib/cosched"

// makeLibrary runs make in that directory.
func makeLibrary(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", library}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %q: %v\n%s", args, err, out)
	}
}

// The C library's own tests, without warnings and with sanitizers.
func TestLibrary(t *testing.T) {
	for name, args := range map[string][]string{
		"plain":     {"check", "CFLAGS=-O2 -Werror"},
		"addresses": {"check", "CFLAGS=-O1 -g -Werror", "SANITIZE=address,undefined"},
		"threads":   {"check", "CFLAGS=-O1 -g -Werror", "SANITIZE=thread"},
		"clang":     {"all", "check", "CC=clang", "CFLAGS=-O2 -Werror"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "clang" {
				if _, err := exec.LookPath("clang"); err != nil {
					t.Skip("no clang here")
				}
			}
			makeLibrary(t, append(args, "O="+t.TempDir())...)
		})
	}
}

// A program needs only what is installed, and finds it with pkg-config.
func TestLibraryInstalled(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "usr")
	// All directories are set, as the environment may have those that an outer make was given.
	makeLibrary(t, "install", "O="+filepath.Join(dir, "build"), "DESTDIR=", "prefix="+prefix, "libdir="+filepath.Join(prefix, "lib"),
		"includedir="+filepath.Join(prefix, "include"), "mandir="+filepath.Join(prefix, "share/man"), "pkgconfigdir="+filepath.Join(prefix, "lib/pkgconfig"))
	for _, file := range []string{"lib/libcosched.so.0", "lib/libcosched.a", "lib/cosched/libcosched-soften.so", "share/man/man3/cosched_open.3",
		"share/man/man3/cosched_get_effective_home.3"} {
		if _, err := os.Stat(filepath.Join(prefix, file)); err != nil {
			t.Error(err)
		}
	}
	example, err := filepath.Abs(filepath.Join(library, "examples", "threadpool.c"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"", "-static"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", `
			gcc $1 -pthread -o "$2/pool" "$3" $(pkg-config ${1:+-$1} --cflags --libs libcosched)
			LD_LIBRARY_PATH=$4/lib "$2/pool"`, "sh", link, dir, example, prefix)
		cmd.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib/pkgconfig"))
		// The program does its work with the controller and without it, as is most likely here.
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "parse: ") || !strings.Contains(string(out), " of 4 threads had a home, 0 jobs left") {
			t.Errorf("%q: %v\n%s", link, err, out)
		}
	}
}
