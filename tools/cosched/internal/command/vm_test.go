package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/qemu"
)

// The command that --vm runs replaces this process, in the part for vCPUs. If it is QEMU, it has one
// more monitor. The parts have the settings that were asked for.
func TestRunVM(t *testing.T) {
	for _, tc := range []struct {
		program string
		args    []string
		monitor bool
		io      bool
	}{
		{"qemu-system-fake", []string{"--home", "llc:1", "--weights", "4:1000", "--emulator-home", "node:0"}, true, false},
		{"qemu-system-fake", []string{"--home", "llc:1", "--weights", "4:1000", "--emulator-home", "0-3", "--iothread-home", "2"}, true, true},
		{"machine", []string{"--home", "llc:1", "--weights", "4:1000", "--emulator-home", "node:0"}, false, false},
	} {
		h := coschedtest.Host(t)
		dir := strings.TrimSuffix(h.Sys, "/sys")
		cluster := filepath.Join(h.Cgroup, "cosched/vm")
		// There is no kernel that would make the files of new cgroups, so they exist already.
		parts := []string{"vcpu", "emulator"}
		if tc.io {
			parts = append(parts, "iothread")
		}
		if err := h.Mkdir(cluster); err != nil {
			t.Fatal(err)
		}
		coschedtest.Replace(t, filepath.Join(cluster, "cgroup.subtree_control"), "cosched\n")
		for _, part := range parts {
			if err := h.Mkdir(filepath.Join(cluster, part)); err != nil {
				t.Fatal(err)
			}
			coschedtest.Replace(t, filepath.Join(cluster, part, "cgroup.type"), "threaded\n")
		}
		bin := t.TempDir()
		program := filepath.Join(bin, tc.program)
		// The command prints its PID, its arguments, and the content of the monitor's file.
		script := "#!/bin/sh\necho \"$$ $*\"\n[ \"$1\" != -readconfig ] || cat \"$2\"\nexit 7\n"
		if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		// The kernel has this process too, which the machine for tests has not.
		if err := os.RemoveAll(h.Proc); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc", h.Proc); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, exe, append(append([]string{"run", "--vm", "--cluster", "vm"}, tc.args...), "--", program, "-smp", "2")...)
		cmd.Env = append(os.Environ(), treeVariable+"="+dir)
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("%s: %v, want exit status 7: %s", tc.program, err, exit.Stderr)
		}
		first, config, _ := strings.Cut(string(out), "\n")
		var pid int
		fmt.Sscan(first, &pid)
		if pid != cmd.Process.Pid || !strings.HasSuffix(first, "-smp 2") || strings.Contains(first, "-readconfig /proc/self/fd/") != tc.monitor {
			t.Errorf("%s: it is %q, want process %d", tc.program, first, cmd.Process.Pid)
		}
		if tc.monitor != strings.Contains(config, "[mon \"cosched-qmp\"]\n  chardev = \"cosched-qmp\"\n  mode = \"control\"") {
			t.Errorf("%s: %q", tc.program, config)
		}
		for file, want := range map[string]string{
			"vcpu/cosched.cpus_preferred": "4-7", "vcpu/cosched.weights": "4 1000", "vcpu/cgroup.procs": fmt.Sprint(pid),
			"emulator/cosched.cpus_preferred": "0-3", "emulator/cgroup.procs": "", "cosched.cpus_preferred": "", "iothread/cosched.cpus_preferred": "2",
		} {
			text, err := os.ReadFile(filepath.Join(cluster, file))
			if strings.HasPrefix(file, "iothread") && !tc.io {
				continue
			}
			if err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("%s: %s has %q, %v; want %q", tc.program, file, text, err, want)
			}
		}
	}
}

// Existing parts are not changed if QEMU cannot be put into them. It cannot here, as this process
// does not exist on the machine for tests.
func TestRunVMFails(t *testing.T) {
	h := coschedtest.Host(t)
	vcpu := filepath.Join(h.Cgroup, "cosched/shop/vcpu")
	if err := errors.Join(h.Mkdir(vcpu), h.Mkdir(filepath.Join(filepath.Dir(vcpu), "emulator"))); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "run", "--vm", "--cluster", "shop", "--home", "4-5", "--weights", "1:2", "true")
	cmd.Env = append(os.Environ(), treeVariable+"="+strings.TrimSuffix(h.Sys, "/sys"))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != notRun || !strings.Contains(string(out), ": no such process") {
		t.Errorf("%v: %s", err, out)
	}
	for file, want := range map[string]string{cosched.FilePreferred: "", cosched.FileWeights: "100 150\n"} {
		if text, err := os.ReadFile(filepath.Join(vcpu, file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
}

func TestVMRefused(t *testing.T) {
	h := coschedtest.Host(t)
	coschedtest.Append(t, filepath.Join(h.Cgroup, "cosched/night/vcpu/cgroup.events"), "populated 1\n")
	for _, tc := range []struct {
		args   string
		status int
		says   string
	}{
		{"run --vm --soften --home 0 -- true", notRun, "give one of them"},
		{"run --emulator-home 0 --home 0 -- true", notRun, "give --vm too"},
		{"run --vm --home 0 --emulator-home llc:9 -- true", notRun, "no llc 9"},
		{"run --vm --home 0 --iothread-home x -- true", notRun, `"x" is not a CPU list`},
		{"run --vm -- true", notRun, "neither a home nor a cluster"},
		{"run --vm --cluster night -- true", notRun, "night/vcpu has threads of another machine"},
		{"run --vm --cluster night -- no-such-qemu", notFound, "no such command"},
		{"move --vm night 41 50", cosched.ExitUsage, "one process at a time"},
		{"move --vm --threads night 41", cosched.ExitUsage, "give one of them"},
		{"move --qmp /x night 41", cosched.ExitUsage, "give --vm too"},
		{"move --vm night 99", cosched.ExitNoInput, "no such process"},
		{"move --vm --qmp /no/such night 60", cosched.ExitNoInput, "--qmp /no/such: "},
		{"move --vm shop 60", cosched.ExitData, "none of the threads is known for a vCPU: --qmp SOCKET asks QEMU"},
	} {
		coschedtest.Append(t, filepath.Join(h.Proc, "60/task/60/comm"), "")
		status, _, errs := call(h, strings.Fields(tc.args)...)
		if status != tc.status || !strings.Contains(errs, tc.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %s", tc.args, status, errs)
		}
	}
	for _, name := range []string{"shop/vcpu", "shop/emulator", "night/emulator", "run-" + fmt.Sprint(os.Getpid())} {
		if _, err := os.Stat(filepath.Join(h.Cgroup, "cosched", name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

// For a running QEMU, the whole process is first put into the part of the emulator.
func TestMoveVM(t *testing.T) {
	h := coschedtest.Host(t)
	for tid, name := range map[string]string{"50": "qemu-system-x86", "51": "CPU 0/KVM"} {
		coschedtest.Append(t, filepath.Join(h.Proc, "50/task", tid, "comm"), name+"\n")
		coschedtest.Append(t, filepath.Join(h.Proc, tid, "comm"), name+"\n")
	}
	if status, _, errs := call(h, "move", "--vm", "night", "50"); status != 0 || errs != "" {
		t.Fatalf("%d: %s", status, errs)
	}
	for part, want := range map[string]string{"emulator": "50", "vcpu": ""} {
		text, err := os.ReadFile(filepath.Join(h.Cgroup, "cosched/night", part, "cgroup.procs"))
		kind, _ := os.ReadFile(filepath.Join(h.Cgroup, "cosched/night", part, "cgroup.type"))
		if err != nil || strings.TrimSpace(string(text)) != want || !strings.HasPrefix(string(kind), "threaded") {
			t.Errorf("%s: %q, %q, %v", part, text, kind, err)
		}
	}
}

type script struct {
	answers []error
	asked   int
}

func (s *script) Threads([]int) (qemu.Threads, error) {
	err := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	return qemu.Threads{VCPU: []int{1}}, err
}

type crowd map[int]cosched.Group

func (c crowd) ThreadIDs(g cosched.Group) (ids []int, err error) {
	for tid, at := range c {
		if at == g {
			ids = append(ids, tid)
		}
	}
	return ids, nil
}

func (c crowd) MoveThread(g cosched.Group, tid int) error { c[tid] = g; return nil }

// Threads are looked for as long as there are any. An error is reported once, and a QEMU that does
// not answer yet is asked again.
func TestWatchVM(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []error
		says    string
		placed  bool
	}{
		{"at once", []error{nil}, "", true},
		{"not yet", []error{qemu.ErrRefused, qemu.ErrRefused, nil}, "", true},
		{"broken", []error{errors.New("no rights"), nil}, "no rights", true},
	} {
		c := crowd{1: "v", 2: "v"}
		vm := &qemu.VM{Cgroups: c, VCPU: "v", Emulator: "e", IO: "e"}
		s := &script{answers: tc.answers}
		var said []string
		turns := len(tc.answers) + 1
		watch(vm, s, func() bool { turns--; return turns > 0 }, func(text string) { said = append(said, text) })
		if len(said) != 1 || said[0] != tc.says {
			t.Errorf("%s: said %q, want %q once", tc.name, said, tc.says)
		}
		if placed := c[2] == "e" && c[1] == "v"; placed != tc.placed {
			t.Errorf("%s: threads are at %v", tc.name, c)
		}
	}
}
