package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cosched.io/cosched"
)

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}, "capabilities": ["oob"]}}`

// monitor returns a connection to a QMP server that greets, and that answers each command
// with one line, or with several.
func monitor(t *testing.T, hello string, answers map[string]string) io.ReadWriter {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	go func() {
		defer theirs.Close()
		fmt.Fprintf(theirs, "%s\r\n", hello)
		commands := bufio.NewScanner(theirs)
		for commands.Scan() {
			answer := "{}"
			for command, a := range answers {
				if strings.Contains(commands.Text(), `"`+command+`"`) {
					answer = a
				}
			}
			if answer == "" {
				return
			}
			fmt.Fprintf(theirs, "%s\r\n", answer)
		}
	}()
	return ours
}

const (
	cpus = `{"return": [{"thread-id": 3691, "props": {"core-id": 0, "thread-id": 0}, "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64"}, ` +
		`{"thread-id": 3692, "props": {"core-id": 1, "thread-id": 0}, "cpu-index": 1, "target": "x86_64"}]}`
	iothreads = `{"return": [{"poll-shrink": 0, "thread-id": 3689, "poll-max-ns": 32768, "id": "io1"}]}`
	event     = `{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "RESUME"}`
	refusal   = `{"error": {"class": "CommandNotFound", "desc": "The command is not permitted in preconfig state"}}`
)

func TestQMP(t *testing.T) {
	for _, tc := range []struct {
		name, hello, capabilities, cpus, io string
		says                                string
	}{
		{"as it is", greeting, `{"return": {}}`, cpus, iothreads, ""},
		{"events between", greeting, event + "\n" + `{"return": {}}`, event + "\r\n" + event + cpus, "\n" + iothreads, ""},
		{"not a monitor", `{"hello": 1}`, `{"return": {}}`, cpus, iothreads, "no greeting"},
		{"no JSON", "SSH-2.0", `{"return": {}}`, cpus, iothreads, "invalid character"},
		{"too early", greeting, `{"return": {}}`, refusal, iothreads, "QEMU refuses query-cpus-fast: The command is not permitted"},
		{"not a list", greeting, `{"return": {}}`, `{"return": {"thread-id": 1}}`, iothreads, "query-cpus-fast: json"},
		{"not a number", greeting, `{"return": {}}`, cpus, `{"return": [{"thread-id": "1"}]}`, "query-iothreads: json"},
		{"without end", greeting, `{"return": {}}`, `{"return": "` + strings.Repeat("x", maxMessage+1000), iothreads, "longer than 4194304 bytes"},
		{"gone", greeting, `{"return": {}}`, "", iothreads, "EOF"},
	} {
		got, err := NewQMP(monitor(t, tc.hello, map[string]string{"qmp_capabilities": tc.capabilities, "query-cpus-fast": tc.cpus, "query-iothreads": tc.io})).Threads(nil)
		switch {
		case tc.says == "":
			if err != nil || !slices.Equal(got.VCPU, []int{3691, 3692}) || !slices.Equal(got.IO, []int{3689}) {
				t.Errorf("%s: %v, %v", tc.name, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		case errors.Is(err, ErrRefused) != (tc.name == "too early"):
			t.Errorf("%s: a refusal or not: %v", tc.name, err)
		}
	}
}

// Whatever QEMU answers, the result is an error or threads, in bounded time and memory.
func FuzzQMP(f *testing.F) {
	f.Add([]byte(greeting + `{"return": {}}` + cpus + iothreads))
	f.Add([]byte(greeting + refusal))
	f.Add([]byte(greeting + `{"return": {}}` + event + `{"return": [{"thread-id": -1}, null, {}]}{"return": null}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		_, err := NewQMP(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(string(said)), io.Discard}).Threads(nil)
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Errorf("%q", err)
		}
	})
}

// These are the names that QEMU 7.2 gave its threads.
func TestNames(t *testing.T) {
	proc := t.TempDir()
	for tid, name := range map[string]string{
		"10": "qemu-system-x86", "11": "call_rcu", "12": "IO io1", "13": "IO mon_iothread", "14": "CPU 0/KVM", "15": "CPU 1023/TCG",
		"16": "ALL CPUs/TCG", "17": "worker", "18": "vhost-10", "19": "CPU x/KVM", "20": "CPU 0/KVM extra", "21": "my CPU 0/KVM",
	} {
		if err := errors.Join(os.Mkdir(filepath.Join(proc, tid), 0o755), os.WriteFile(filepath.Join(proc, tid, "comm"), []byte(name+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Names{proc}.Threads([]int{9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21})
	if err != nil || !slices.Equal(got.VCPU, []int{14, 15, 16}) || !slices.Equal(got.IO, []int{12}) {
		t.Errorf("%v, %v", got, err)
	}
	// If the monitor ends, as when QEMU closes it, threads are still known by their names.
	best := &Best{QMP: NewQMP(monitor(t, greeting, map[string]string{"qmp_capabilities": ""})), Names: Names{proc}}
	if got, err := best.Threads([]int{10, 14}); err != nil || !slices.Equal(got.VCPU, []int{14}) || best.QMP != nil {
		t.Errorf("%v, %v", got, err)
	}
	best.QMP = NewQMP(monitor(t, greeting, map[string]string{"qmp_capabilities": `{"return": {}}`, "query-cpus-fast": refusal}))
	if _, err := best.Threads([]int{10, 14}); !errors.Is(err, ErrRefused) || best.QMP == nil {
		t.Errorf("refused: %v", err)
	}
}

// fake stands for the kernel's cgroups: it has the cgroup of each thread.
type fake struct {
	at    map[int]cosched.Group
	moved int
	dying int // a thread that exits when it is moved
}

func (f *fake) ThreadIDs(g cosched.Group) (ids []int, err error) {
	for tid, at := range f.at {
		if at == g {
			ids = append(ids, tid)
		}
	}
	return ids, nil
}

func (f *fake) MoveThread(g cosched.Group, tid int) error {
	if tid == f.dying {
		delete(f.at, tid)
		return &cosched.Problem{Status: cosched.ExitNoInput, Text: "exited"}
	}
	if f.at[tid] == "" {
		return fmt.Errorf("thread %d of somebody else was moved", tid)
	}
	f.at[tid] = g
	f.moved++
	return nil
}

// says is a source that counts how often it is asked.
type says struct {
	threads Threads
	err     error
	asked   int
}

func (s *says) Threads([]int) (Threads, error) {
	s.asked++
	return s.threads, s.err
}

func TestPlace(t *testing.T) {
	f := &fake{at: map[int]cosched.Group{10: "v", 11: "v", 12: "v", 13: "v", 14: "v", 99: "other"}}
	vm := &VM{Cgroups: f, VCPU: "v", Emulator: "e", IO: "e"}
	want := func(what string, at map[int]cosched.Group) {
		t.Helper()
		for tid, g := range at {
			if f.at[tid] != g {
				t.Errorf("%s: thread %d is in %q, want %q", what, tid, f.at[tid], g)
			}
		}
	}
	none := &says{threads: Threads{IO: []int{12}, VCPU: []int{99}}}
	if err := vm.Place(none); !errors.Is(err, ErrNoVCPUs) {
		t.Error(err)
	}
	want("no vCPU is known", map[int]cosched.Group{10: "v", 12: "v", 99: "other"})

	s := &says{threads: Threads{VCPU: []int{13, 14, 99, 1}, IO: []int{12}}}
	if err := vm.Place(s); err != nil {
		t.Error(err)
	}
	want("at start", map[int]cosched.Group{10: "e", 11: "e", 12: "e", 13: "v", 14: "v", 99: "other"})
	// There are no new threads, so QEMU is not asked.
	if err := vm.Place(s); err != nil || s.asked != 1 || f.moved != 3 {
		t.Errorf("asked %d times, moved %d: %v", s.asked, f.moved, err)
	}
	// The thread of a vCPU that is plugged in is started by the main thread; a vCPU's
	// thread starts one of another kind.
	f.at[15], f.at[16], f.at[17] = "e", "v", "v"
	f.dying = 17
	s.threads.VCPU = append(s.threads.VCPU, 15)
	if err := vm.Place(s); err != nil || s.asked != 2 {
		t.Errorf("asked %d times: %v", s.asked, err)
	}
	want("plugged in", map[int]cosched.Group{15: "v", 16: "e", 17: ""})
	// The source names a thread that is not there any more, and I/O threads have a cgroup
	// of their own.
	delete(f.at, 15)
	vm.IO = "i"
	if err := vm.Place(s); err != nil {
		t.Error(err)
	}
	want("apart", map[int]cosched.Group{12: "i", 10: "e", 13: "v"})
	f.at[18] = "e"
	if err := vm.Place(&says{err: io.ErrUnexpectedEOF}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// A QEMU as it ships accepts the additional monitor, says which threads are its vCPUs, and
// keeps its default monitor.
func TestRealQEMU(t *testing.T) {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("qemu-system-x86_64 is not installed")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	const inherited = 3
	config, args, err := MonitorConfig(inherited)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(config), "config")
	args[1] = "/proc/self/fd/4"
	// This is far more than the test takes on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, "-machine", "q35", "-accel", "tcg,thread=multi", "-smp", "2", "-m", "16", "-nographic", "-S", "-object", "iothread,id=io1", "-name", "x,debug-threads=on")...)
	cmd.ExtraFiles = []*os.File{theirs, file}
	cmd.Stderr = os.Stderr
	// QEMU needs a standard input that does not end, like a terminal's.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	defer func() { cancel(); _ = cmd.Wait() }()
	q := NewQMP(ours)
	threads, err := q.Threads(nil)
	if err != nil || len(threads.VCPU) != 2 || len(threads.IO) != 1 {
		t.Fatalf("%v, %v", threads, err)
	}
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, dir := range all {
		var id int
		fmt.Sscan(filepath.Base(dir), &id)
		ids = append(ids, id)
	}
	named, err := Names{"/proc"}.Threads(ids)
	slices.Sort(named.VCPU)
	slices.Sort(threads.VCPU)
	if err != nil || !slices.Equal(named.VCPU, threads.VCPU) || !slices.Equal(named.IO, threads.IO) {
		t.Errorf("by name %v, by QMP %v, %v", named, threads, err)
	}
	var devices []struct{ Label, Filename string }
	if err := q.execute("query-chardev", &devices); err != nil {
		t.Fatal(err)
	}
	// The monitor of -nographic shares standard output with the serial line.
	if !slices.ContainsFunc(devices, func(d struct{ Label, Filename string }) bool { return d.Label == "serial0" && d.Filename == "mux" }) {
		t.Errorf("QEMU lost its own monitor: %+v", devices)
	}
}
