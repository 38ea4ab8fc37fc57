package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// Each cluster makes the makefile with an output folder of its own, and afterwards the
// script checks that everything is there.
func TestMakefileRow(t *testing.T) {
	row := `"makefile": "kernbench.mk", "args": ["-j", "8"]`
	s, err := parseSuite("s", []byte(strings.Replace(sound, `"program": "warehouse", "args": []`, row, 1)))
	if err != nil {
		t.Fatal(err)
	}
	script := Run{Row: s.Rows[0], Kernel: "test", Policy: "none", Transfer: 1, Seed: 1}.script(vm.Topology{Sockets: 2, Dies: 1, Cores: 4, Threads: 1})
	for _, text := range []string{
		"\ngang --model --cgroup /sys/fs/cgroup/bench/w%d --instances 2 -- make -s -C /linux -f kernbench.mk O=/tmp/made%d -j 8\n",
		"\nmake -q -C /linux -f kernbench.mk O=/tmp/made0 -j 8 ||", "\nmake -q -C /linux -f kernbench.mk O=/tmp/made1 -j 8 ||",
	} {
		if !strings.Contains(script, text) {
			t.Errorf("no %q in\n%s", text, script)
		}
	}
	both := strings.Replace(sound, `"args": []`, row, 1)
	if _, err := parseSuite("s", []byte(both)); err == nil || !strings.Contains(err.Error(), "makefile") {
		t.Errorf("a row with a program and a makefile: %v", err)
	}
}

// tree writes files, given by path and content, into a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A guest gets the programs, their libraries, and the sources that a makefile names. The
// hash depends on all of these, and not on the directory that they are in.
func TestLoad(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "absolute.h")
	if err := os.WriteFile(lib, []byte("int b;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"m.mk":   "carry-programs:\n\t@echo /bin/ls\ncarry-sources:\n\t@printf 'a.o: s/a.c \\\\\\n s/../a.h " + lib + "\\n\\nb.o: s/a.c\\n'\n",
		"s/a.c":  "int a;\n",
		"a.h":    "int h;\n",
		"unused": "",
	}
	made := func() *cargo {
		t.Helper()
		dir := tree(t, files)
		c, err := load(t.Context(), filepath.Join(dir, "m.mk"), dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := made()
	var paths []string
	for _, f := range c.files {
		paths = append(paths, f.Path)
		if want := os.FileMode(0o644); f.Mode != want && !strings.HasPrefix(f.Path, "/lib") && f.Path != "/bin/ls" {
			t.Errorf("%s has mode %o", f.Path, f.Mode)
		}
	}
	for _, p := range []string{"/bin/ls", "/linux/m.mk", "/linux/s/a.c", "/linux/a.h", lib} {
		if !slices.Contains(paths, p) {
			t.Errorf("no %s in %s", p, paths)
		}
	}
	if !slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, "/libc.so") }) {
		t.Errorf("no libraries in %s", paths)
	}
	if slices.ContainsFunc(paths, func(p string) bool {
		return strings.Contains(p, "unused") || strings.Contains(p, ".o") && !strings.Contains(p, ".so")
	}) {
		t.Errorf("more than was asked for: %s", paths)
	}
	if c.hashes["ls"] == "" {
		t.Errorf("hashes of %v", c.hashes)
	}
	if again := made(); again.hash != c.hash {
		t.Errorf("the hash is %s, and %s elsewhere", c.hash, again.hash)
	}
	for name, text := range map[string]string{"s/a.c": "int c;\n", "m.mk": files["m.mk"] + "#\n"} {
		old := files[name]
		files[name] = text
		if made().hash == c.hash {
			t.Errorf("the hash is the same with another %s", name)
		}
		files[name] = old
	}
	if err := os.WriteFile(lib, []byte("int d;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if made().hash == c.hash {
		t.Error("the hash is the same with another absolute.h")
	}
}

func TestLoadSaysWhatIsMissing(t *testing.T) {
	for text, says := range map[string]string{
		"carry-programs:\n\t@echo /nonesuch/as\n":                             "binutils",
		"carry-programs:\n\t@echo cc1\n":                                      "package gcc",
		"carry-programs:\n\t@echo\ncarry-sources:\n\t@echo lost >&2; false\n": "lost",
		"carry-programs:\n\t@echo\ncarry-sources:\n\t@echo a.c\n":             "a.c",
	} {
		dir := tree(t, map[string]string{"m.mk": text})
		if _, err := load(t.Context(), filepath.Join(dir, "m.mk"), dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// For each program that a row or a makefile of the workloads runs, packages has its
// package.
func TestPackages(t *testing.T) {
	root, err := kbuild.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	list, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, s := range list {
		for _, r := range s.Rows {
			if r.Host != "" {
				programs = append(programs, r.Host)
			}
			if r.Makefile != "" {
				more, err := ask(t.Context(), filepath.Join(root, "tests", "workloads", r.Makefile), t.TempDir(), "carry-programs")
				if err != nil {
					t.Fatal(err)
				}
				programs = append(programs, more...)
			}
		}
	}
	if !slices.ContainsFunc(programs, func(p string) bool { return filepath.Base(p) == "cc1" }) {
		t.Errorf("the suites run %s: no compiler", programs)
	}
	for _, p := range programs {
		if packages[filepath.Base(p)] == "" {
			t.Errorf("%s: no package", p)
		}
	}
}
