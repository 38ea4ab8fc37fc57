// Package coschedtest makes a machine for tests from host.txt, which has files of sysfs,
// cgroupfs and proc as grep -r prints them, and links as ls -l prints them. The machine has
// 8 CPUs with SMT in 2 LLC domains, sockets and nodes, and 4 CPUs that may come online.
package coschedtest

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cosched.io/cosched"
)

//go:embed host.txt
var recorded string

// Host returns the machine, as root sees it. A cgroup that is made there gets the
// controller's files if its parent passes the controller on.
func Host(t testing.TB) cosched.Host {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(recorded) {
		line = strings.TrimSuffix(line, "\n")
		if link, target, ok := strings.Cut(line, " -> "); ok {
			link = filepath.Join(dir, link)
			if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(target, link)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		// Names of PCI devices have colons, so the colon that ends the path is the first
		// one after the last "/". The text behind it may have colons, and "/" too if it is
		// that of a cgroup.
		at := strings.LastIndexByte(strings.SplitN(line, " ", 2)[0], '/')
		if c := strings.Index(line, ":0::/"); c >= 0 {
			at = strings.LastIndexByte(line[:c], '/')
		}
		name, text, _ := strings.Cut(line[at:], ":")
		file := filepath.Join(dir, line[:at]+name)
		if text != "" {
			text += "\n"
		}
		Append(t, file, text)
	}
	h := At(dir)
	h.Mkdir = func(path string) error {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		files := map[string]string{"cgroup.type": "domain\n", "cgroup.procs": "", "cgroup.threads": "", "cgroup.subtree_control": ""}
		control, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup.subtree_control"))
		if err != nil {
			return err
		}
		if strings.Contains(string(control), "cosched") {
			files["cosched.cpus_preferred"] = ""
			files["cosched.cpus_preferred.effective"] = ""
			files["cosched.weights"] = "100 150\n"
		}
		for name, text := range files {
			Append(t, filepath.Join(path, name), text)
		}
		return nil
	}
	return h
}

// Overtaken returns a machine where another program makes a certain cluster just before the
// caller does.
func Overtaken(h cosched.Host, name string) cosched.Host {
	mkdir := h.Mkdir
	h.Mkdir = func(path string) error {
		if g, err := h.Find(name); err != nil || path != string(g) {
			return mkdir(path)
		}
		return errors.Join(mkdir(path), mkdir(path))
	}
	return h
}

// At returns a machine that was made in a directory before, as root sees it.
func At(dir string) cosched.Host {
	return cosched.Host{
		Cgroup: filepath.Join(dir, "sys/fs/cgroup"), Sys: filepath.Join(dir, "sys"), Proc: filepath.Join(dir, "proc"), Root: true,
		Etc: filepath.Join(dir, "etc"), Run: filepath.Join(dir, "run"),
		Writable: func(string) bool { return true },
		Mkdir:    func(path string) error { return os.Mkdir(path, 0o755) },
		// A directory of cgroupfs can be removed although it has files.
		Rmdir: func(path string) error {
			entries, err := os.ReadDir(path)
			if err != nil {
				return err
			}
			threads, _ := os.ReadFile(filepath.Join(path, "cgroup.threads"))
			if len(threads) > 0 || slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
				return syscall.EBUSY
			}
			return os.RemoveAll(path)
		},
	}
}

// Append adds text to a file, which is made if it is not there.
func Append(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(old, text...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Replace replaces the content of a file.
func Replace(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Remove removes a cgroup with everything below it.
func Remove(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}
