package detect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, stat := range map[string]string{"1": "1 (init) S 0 1", "10": "10 (a) b) S 1 10", "11": "11 (c (d) R 10 10",
		"12": "12 (e) S 11 10", "20": "20 (f) S 1 20"} {
		write(t, filepath.Join(proc, pid, "stat"), stat+"\n")
	}
	write(t, filepath.Join(proc, "uptime"), "1 2\n")
	ended := 0
	find := Processes(proc, []int{10, 20}, func() { ended++ })
	pids, err := find()
	slices.Sort(pids)
	if err != nil || !slices.Equal(pids, []int{10, 11, 12, 20}) {
		t.Errorf("%v, %v", pids, err)
	}
	// The kernel adds the children to come.
	if pids, err := find(); err != nil || pids != nil || ended != 0 {
		t.Errorf("again: %v, %v, ended %d", pids, err, ended)
	}
	for _, pid := range []string{"10", "20"} {
		if err := os.RemoveAll(filepath.Join(proc, pid)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := find(); err != nil || ended != 1 {
		t.Errorf("all ended: %v, ended %d", err, ended)
	}
	if _, err := Processes(proc, []int{99}, func() {})(); err == nil {
		t.Error("one that is not there is found")
	}
}

func TestCgroup(t *testing.T) {
	dir := t.TempDir()
	proc, group := filepath.Join(dir, "proc"), filepath.Join(dir, "shop")
	write(t, filepath.Join(proc, "10/status"), "Name:\ta\nTgid:\t10\n")
	write(t, filepath.Join(proc, "12/status"), "Name:\tb\nTgid:\t10\n")
	write(t, filepath.Join(proc, "20/status"), "Name:\tc\nTgid:\t20\n")
	write(t, filepath.Join(group, "cgroup.procs"), "10\n99\n")
	// A threaded cgroup has threads only.
	write(t, filepath.Join(group, "till/cgroup.threads"), "12\n20\n")
	pids, err := Cgroup(proc, group)()
	if err != nil || !slices.Equal(pids, []int{10, 20}) {
		t.Errorf("%v, %v", pids, err)
	}
	if _, err := Cgroup(proc, filepath.Join(dir, "nowhere"))(); err == nil {
		t.Error("one that is not there is found")
	}
}

func TestCPUTime(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	for err == nil {
		var now time.Duration
		if now, err = cpuTime(os.Getpid()); now > before {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := cpuTime(1 << 22); err == nil {
		t.Error("a process above the greatest PID has used CPU time")
	}
}

func TestExecutable(t *testing.T) {
	maps := filepath.Join(t.TempDir(), "maps")
	write(t, maps, `55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1001                       /usr/bin/shop
55d0c0a01000-55d0c0a05000 r-xp 00001000 fe:00 1001                       /usr/bin/shop
7f2a10000000-7f2a10155000 r-xp 00026000 fe:00 2002                       /usr/lib/x86_64-linux-gnu/libc.so.6
7f2a10200000-7f2a10201000 r-xp 00000000 00:2f 3003                       /srv/my files/libc.so.6 (deleted)
7f2a10300000-7f2a10301000 rwxp 00000000 00:00 0
7ffd4b5f8000-7ffd4b5fa000 r-xp 00000000 00:00 0                          [vdso]
`)
	got, err := executable(maps)
	want := []mapping{
		{"/usr/bin/shop", "fe:00 1001", 0x55d0c0a01000, 0x1000, 0x55d0c0a05000},
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", "fe:00 2002", 0x7f2a10000000, 0x26000, 0x7f2a10155000},
		{"/srv/my files/libc.so.6 (deleted)", "00:2f 3003", 0x7f2a10200000, 0, 0x7f2a10201000},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for file, want := range map[string]bool{
		"/usr/bin/shop": true, "/usr/bin/other": false, "/lib/libc.so.6": true, "/lib/libc-2.31.so": true,
		"/lib/libpthread.so.0": true, "/lib/ld-musl-x86_64.so.1": true, "/lib/libcap.so.2": false, "/lib/libm.so.6": false,
	} {
		if got := mayHaveLocks(file, "/usr/bin/shop"); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}
