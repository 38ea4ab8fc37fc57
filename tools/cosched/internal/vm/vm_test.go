package vm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func TestTopology(t *testing.T) {
	p, err := Find("smt8")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Topology.LLCs(), [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the LLC domains of smt8 are %v, want %v", got, want)
	}
	if got, want := p.Topology.NodeCPUs(), [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the nodes of smt8 are %v, want %v", got, want)
	}
	for _, p := range Presets {
		if err := p.Topology.check(); err != nil {
			t.Errorf("preset %s: %v", p.Name, err)
		}
	}
	if _, err := Find("nosuch"); err == nil || !strings.Contains(err.Error(), "uma8") {
		t.Errorf("looking for a preset that is not there: %v", err)
	}
}

func TestParseTopology(t *testing.T) {
	tests := []struct{ in, err string }{
		{"2,1,2,1", ""},
		{"2,2,8,2,2,21", ""},
		{"2,1,2", "is not SOCKETS"},
		{"2,1,x,1", "not a number"},
		{"0,1,2,1", "at least 1"},
		{"4,8,8,1", ""},
		{"4,8,8,2", "more than the 256"},
		{"3,1,1,1,2", "do not divide"},
		{"2,1,2,1,2,10", "distance 10"},
	}
	for _, tt := range tests {
		_, err := ParseTopology(tt.in)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("ParseTopology(%q): %v, want %q", tt.in, err, tt.err)
		}
	}
	bad := Topology{Sockets: 2, Dies: 1, Cores: 1, Threads: 1, Nodes: 2, Distances: [][]int{{10, 20}, {20, 11}}}
	if err := bad.check(); err == nil {
		t.Error("a node at distance 11 from itself is accepted")
	}
}

// Each level of a topology has its own bits in a CPU's number.
func TestLastAPIC(t *testing.T) {
	for in, want := range map[string]int{"1,1,1,1": 0, "2,1,2,2": 7, "2,1,22,1": 53, "4,4,4,1": 63, "1,3,3,3": 42, "4,8,8,1": 255} {
		p, err := ParseTopology(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.lastAPIC(); got != want {
			t.Errorf("the last CPU of %s has number %d, want %d", in, got, want)
		}
	}
}

func TestMoreCPUsThanThereCanBe(t *testing.T) {
	c := Config{Topology: Topology{Sockets: 4, Dies: 8, Cores: 8, Threads: 1}, Command: []string{"true"}}
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "64 CPUs, not 256") {
		t.Errorf("256 CPUs on a kernel for 64: %v", err)
	}
	c.KernelCPUs = 256
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "bring up 255") {
		t.Errorf("256 CPUs on one for as many: %v", err)
	}
}

func TestConsoleFindsReports(t *testing.T) {
	tests := []struct {
		line string
		want bool
	}{
		{"[    1.5] BUG: KASAN: slab-use-after-free in cosched_css_free+0x12/0x20", true},
		{"[    1.5] WARNING: possible circular locking dependency detected", true},
		{"[    1.5] WARNING: CPU: 1 PID: 20 at kernel/sched/core.c:1 f+0x1/0x2", true},
		{"[    1.5] WARNING: suspicious RCU usage", true},
		{"[    1.5] BUG: sleeping function called from invalid context at mm/slab.h:1", true},
		{"[    1.5] rcu: INFO: rcu_sched self-detected stall on CPU", true},
		{"[    1.5] INFO: task sh:12 blocked for more than 120 seconds.", true},
		{"[    1.5] Oops: general protection fault, 0000 [#1] SMP", true},
		{"[    1.5] list_add corruption. next->prev should be prev", true},
		{"[    1.5] Kernel panic - not syncing: Attempted to kill init!", true},
		{"[    1.5] sched: DL replenish lagged too much", true},
		{"[    1.5] Run /init as init process", false},
		{"[    1.5] ACPI: PM: Power Button: WARNINGS", false},
		{"[    1.5] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar", false},
		{"[    1.5] printk: legacy console [ttyS0] enabled", false},
	}
	for _, tt := range tests {
		c := &console{}
		// In two pieces, as a pipe may deliver it.
		for _, part := range []string{tt.line[:9], tt.line[9:] + "\r\n"} {
			if _, err := c.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(c.reports()) > 0; got != tt.want {
			t.Errorf("%q: report is %v, want %v", tt.line, got, tt.want)
		}
	}
	// A message about a vCPU that the host did not run.
	c := &console{realTime: true}
	if _, err := c.Write([]byte("[    1.5] sched: DL replenish lagged too much\n")); err != nil || len(c.reports()) > 0 {
		t.Errorf("%v, reports %q", err, c.reports())
	}
}

func TestSharedLibraries(t *testing.T) {
	libs, err := SharedLibraries("/bin/ls")
	if err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(libs, func(p string) bool { return strings.HasPrefix(filepath.Base(p), name) })
	}
	if !has("ld-linux") || !has("libc.so") {
		t.Errorf("what /bin/ls needs has no loader or no C library: %v", libs)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if libs, err := SharedLibraries(script); err != nil || len(libs) > 0 {
		t.Errorf("a script needs %v, %v", libs, err)
	}
}

func TestShellQuote(t *testing.T) {
	if got, want := shellQuote("it's $HOME"), `'it'\''s $HOME'`; got != want {
		t.Errorf("quoted %s, want %s", got, want)
	}
}

func TestLines(t *testing.T) {
	var got []string
	w := Lines(func(l string) { got = append(got, l) })
	for _, s := range []string{"a", "b\r\nc\n", "d"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"ab", "c"}; !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}

// A QEMU that cannot start is reported as such, with its messages.
func TestQEMUFails(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho no such machine >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSCHED_QEMU", fake)
	t.Setenv("COSCHED_CACHE", t.TempDir())
	_, err := Run(t.Context(), Config{Kernel: "none", Topology: Presets[0].Topology, Command: []string{"true"}})
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "no such machine") {
		t.Errorf("the error is: %v", err)
	}
}

// A guest that dies of the emulator's stale code is started again. A guest that dies of
// anything else is not.
func TestStaleCode(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "qemu")
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo \"QEMU emulator version $QVERSION\"; exit; }\n" +
		"echo start >>\"$0.starts\"\necho \"[    0.9] $CONSOLE\" >&3\necho \"[    0.9] Code: 41 54 $BEFORE <90> e8 cc\" >&3\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSCHED_QEMU", fake)
	t.Setenv("COSCHED_CACHE", t.TempDir())
	for _, tt := range []struct {
		version, console, before string
		starts                   int
	}{
		{"7.2.22 (Debian)", "Oops: int3: 0000 [#1] SMP", "66", maxAttempts},
		{"7.2.22 (Debian)", "Oops: int3: 0000 [#1] SMP", "cc", 1},
		{"8.1.0", "Oops: int3: 0000 [#1] SMP", "66", 1},
		{"7.2.22 (Debian)", "Oops: general protection fault, 0000 [#1] SMP", "66", 1},
	} {
		t.Setenv("QVERSION", tt.version)
		t.Setenv("CONSOLE", tt.console)
		t.Setenv("BEFORE", tt.before)
		os.Remove(fake + ".starts")
		if _, err := Run(t.Context(), Config{Kernel: "none", Topology: Presets[0].Topology, Command: []string{"true"}}); err == nil {
			t.Errorf("%+v: no error", tt)
		}
		starts, _ := os.ReadFile(fake + ".starts")
		if n := strings.Count(string(starts), "start"); n != tt.starts {
			t.Errorf("%+v: started %d times", tt, n)
		}
	}
}

// With a disk, programs and files are put on the disk, and programs come without libraries.
func TestDiskInitramfs(t *testing.T) {
	c := Config{
		Disk: "/images/a,b.ext4", Command: []string{"/bin/ls", "/"}, Programs: []string{"sh"},
		Files: []File{{Path: "/etc/x", Data: []byte("x")}}, Topology: Presets[0].Topology,
	}
	file := filepath.Join(t.TempDir(), "initramfs")
	if err := writeInitramfs(file, c); err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("sh", "-c", "gzip -dc <"+file+" | cpio -t --quiet").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(list))
	for _, want := range []string{"init", "bin/busybox", "files/usr/local/bin/ls", "files/usr/local/bin/sh", "files/etc/x",
		"files/coslab/run", "files/coslab/start", "files/etc/systemd/system/multi-user.target.wants/coslab.service"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "libc.so") }) {
		t.Errorf("libraries are put over those of the disk: %q", names)
	}
	args := strings.Join(qemuArgs(c, emulator{}, file), " ")
	if !strings.Contains(args, "snapshot=on") || !strings.Contains(args, "file=/images/a,,b.ext4 ") {
		t.Errorf("QEMU is called with %s", args)
	}
}

// The hash is of all that the initramfs has, but for the script that starts the command.
func TestGuestHash(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("#!/bin/sh\n")
	usual := Config{Programs: []string{"/bin/ls", program}, Files: []File{{Path: "/etc/x", Data: []byte("x")}, {Path: "/etc/y", Data: []byte("y")}}}
	hash := func(c Config) string {
		t.Helper()
		h, err := GuestHash(c)
		if err != nil || len(h) != 16 {
			t.Fatalf("%q, %v", h, err)
		}
		return h
	}
	first := hash(usual)
	other := usual
	other.Command, other.Env, other.Name = []string{"sh", "-c", "program"}, []string{"A=b"}, "guest"
	if hash(usual) != first || hash(other) != first {
		t.Error("the hash of the same guest is another")
	}
	with := func(files ...File) Config {
		c := usual
		c.Files = files
		return c
	}
	x, y := usual.Files[0], usual.Files[1]
	for name, c := range map[string]Config{
		"no program": {Files: usual.Files}, "no files": with(), "one file": with(x), "another order": with(y, x),
		"another mode":    with(File{Path: "/etc/x", Data: x.Data, Mode: 0o600}, y),
		"another name":    with(File{Path: "/etc/z", Data: x.Data}, y),
		"another content": with(File{Path: "/etc/x", Data: []byte("z")}, y),
	} {
		if hash(c) == first {
			t.Errorf("%s: the hash is the same", name)
		}
	}
	write("#!/bin/dash\n")
	if hash(usual) == first {
		t.Error("another program: the hash is the same")
	}
	write("#!/bin/sh\n")
	defer func(script []byte) { initScript = script }(initScript)
	initScript = append([]byte("#"), initScript...)
	if hash(usual) == first {
		t.Error("another init: the hash is the same")
	}
	m, _, err := contents(usual)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/busybox", "bin/ls", "libc.so.6", "ld-linux-x86-64.so.2"} {
		if !slices.ContainsFunc(m.records, func(r cpio.Record) bool { return r.Name == name || filepath.Base(r.Name) == name }) {
			t.Errorf("no %s in what the hash is of", name)
		}
	}
	if _, err := GuestHash(Config{Programs: []string{filepath.Join(dir, "nonesuch")}}); err == nil {
		t.Error("a guest with a program that is not there")
	}
}
