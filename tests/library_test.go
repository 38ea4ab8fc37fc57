package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// withLibrary adds to a guest what is built of the C library: its test on a real
// kernel, the example, a program that binds its threads, and the object that is preloaded
// into that program.
func withLibrary(t *testing.T, c vm.Config) vm.Config {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", filepath.Join(root, "tools/lib/cosched"), "O="+dir, "CFLAGS=-O2 -Werror", "guest")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the library: %v\n%s", err, out)
	}
	for _, name := range []string{"test_guest", "threadpool", "pin"} {
		c.Programs = append(c.Programs, filepath.Join(dir, name))
	}
	c.Programs = append(c.Programs, "taskset")
	// cosched looks for it there, relative to its own path, /bin/cosched.
	const object = "libcosched-soften.so"
	c.Files = append(c.Files, vm.File{Path: "/lib/cosched/" + object, Host: filepath.Join(dir, object)})
	return c
}

// pinned is what the program pin prints when its threads are really bound.
const pinned = `main result=0 reads=45 allowed=4-5 in=\S+
child result=0 reads=45 allowed=4-5 in=\S+
child's own result=0 reads=0 allowed=0 in=\S+
thread result=0 reads=01 allowed=0-1 in=\S+
attribute result=0 reads=23 allowed=2-3 in=\S+
no CPU result=-1 reads=45 allowed=4-5 in=\S+`

// softened is what pin prints when it is softened, in a cgroup: it reads what it set, and may run
// anywhere.
func softened(cgroup string) string {
	return `main result=0 reads=45 allowed=0-7 in=` + cgroup + `/soft-4-5
child result=0 reads=45 allowed=0-7 in=` + cgroup + `/soft-4-5
child's own result=0 reads=0 allowed=0-7 in=` + cgroup + `/soft-0
thread result=0 reads=01 allowed=0-7 in=` + cgroup + `/soft-0-1
attribute result=0 reads=23 allowed=0-7 in=` + cgroup + `/soft-2-3
no CPU result=-1 reads=45 allowed=0-7 in=` + cgroup + `/soft-4-5`
}

// in runs a command in a cgroup.
func in(cgroup, command string) string {
	return "mkdir -p " + cgroup + "; sh -c 'echo $$ >" + cgroup + "/cgroup.procs; exec " + command + "'"
}

// The C library, and the programs that are built with it, on a real kernel.
func TestLibrary(t *testing.T) {
	t.Parallel()
	const (
		handOver = "chown 1000 web web/cgroup.procs web/cgroup.threads web/cgroup.subtree_control web/shell web/shell/cgroup.procs web/shell/cgroup.threads web/shell/cgroup.subtree_control"
		pool     = "parse: 4 of 4 threads had a home, 0 jobs left\nstore: 4 of 4 threads had a home, 0 jobs left"
	)
	play(t, withLibrary(t, vm.Config{Topology: topology(t, "smt8")}), []step{
		// In a cgroup, with the controller enabled nowhere yet, and in the root.
		{sh: in("svc/app", "test_guest all"), out: "0 failures"},
		{sh: "cat cgroup.subtree_control svc/cgroup.subtree_control svc/app/cgroup.subtree_control; ls -d svc/app/*/ cosched/*/", status: 1, out: "cosched\ncosched\ncosched", err: "ls: .*"},
		{sh: "test_guest root", out: "0 failures"},
		{sh: in("svc/app", "threadpool 0-3 4-7"), out: pool},
		{sh: in("svc/app", "threadpool"), out: pool},

		// A program that binds its threads, unchanged and softened.
		{sh: "pin", out: pinned},
		{sh: "cosched run --soften -- pin", out: softened(`/cosched/run-\d+`)},
		{sh: "cat cosched/run-*/soft-4-5/cosched.cpus_preferred.effective cosched/run-*/soft-0/cosched.cpus_preferred.effective", out: "4-5\n0"},
		// The next cosched run removes what the previous one left.
		{sh: "cosched run --home 0-5 --cluster shop --soften -- pin; cosched run --home 0 true; ls -d cosched/run-*/soft-*; cat cosched/shop/soft-4-5/cosched.cpus_preferred.effective", out: softened(`/cosched/shop`) + "\n4-5", err: "ls: .*"},
		{sh: "cosched run --soften -- test_guest all", status: 125, err: "cosched run: --soften: /bin/test_guest: is linked statically, so that its calls cannot be seen"},
		// Without the path it would be busybox's taskset, which is static.
		{sh: "cosched run --soften -- /bin/taskset -c 4-5 pin child", out: `child result=0 reads=45 allowed=0-7 in=\S+/soft-4-5\n.*`},
		{sh: "COSCHED_LIBDIR=/tmp cosched run --soften -- pin", status: 125, err: "cosched run: --soften needs libcosched-soften.so, which is not in /tmp: make lib builds it, [^\n]*"},

		// A user to whom a cgroup is delegated, and a user to whom no cgroup is.
		{sh: "mkdir web web/shell other; " + handOver},
		{as: "web/shell", sh: "test_guest all", out: "0 failures"},
		{as: "web/shell", sh: "threadpool 0-3 4-7", out: pool},
		{as: "web/shell", sh: "cosched run --soften -- pin", out: softened(`/web/cosched/run-\d+`)},
		{as: "other", sh: "test_guest denied", out: "0 failures"},
		{as: "other", sh: "LD_PRELOAD=/lib/cosched/libcosched-soften.so pin", out: pinned},
	})
}

// Without the controller the library does nothing; with an implicit one, it does everything.
func TestLibraryKernels(t *testing.T) {
	t.Parallel()
	smt8 := topology(t, "smt8")
	t.Run("vanilla", func(t *testing.T) {
		play(t, withLibrary(t, vm.Config{Topology: smt8, Kernel: kernel(t, "vanilla").Image}), []step{
			{sh: "test_guest none", out: "0 failures"},
			{sh: "threadpool 0-3 4-7", out: "parse: 0 of 4 threads had a home, 0 jobs left\nstore: 0 of 4 [^\n]*", err: "threadpool: parse: no cluster: the kernel has no cosched\n[^\n]*"},
			{sh: "cosched run --soften -- pin", out: pinned, err: "cosched run: note: [^\n]*CONFIG_CGROUP_COSCHED=y; pin runs as it is"},
			{sh: "LD_PRELOAD=/lib/cosched/libcosched-soften.so pin", out: pinned},
			{sh: "cosched run --soften --home 0 -- pin", status: 125, err: "cosched run: [^\n]*CONFIG_CGROUP_COSCHED=y"},
			{sh: "ls -d */", status: 1, err: "ls: .*"},
		})
	})
	t.Run("implicit", func(t *testing.T) {
		play(t, withLibrary(t, vm.Config{Topology: smt8, Cmdline: []string{"cgroup.cosched=implicit"}}), []step{
			{sh: "test_guest root", out: "0 failures"},
			{sh: in("svc/app", "test_guest all"), out: "0 failures"},
			{sh: "cosched run --soften -- pin", out: softened(`/cosched/run-\d+`)},
			{sh: "cat cgroup.subtree_control svc/cgroup.subtree_control"},
		})
	})
}
