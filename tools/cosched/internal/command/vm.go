package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/qemu"
)

// The parts of a cluster for a virtual machine. A home of the cluster itself would narrow the
// homes of all its parts, so the home that is asked for is given to the part for the vCPUs.
const (
	vcpuPart     = "vcpu"
	emulatorPart = "emulator"
	ioPart       = "iothread"
)

// machineFlags are the flags of run --vm.
type machineFlags struct {
	vm       bool
	emulator string
	io       string
}

func (f *machineFlags) flags(h cosched.Host, cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.vm, "vm", false, "the command is QEMU: the home and weights are those of its vCPUs")
	cmd.Flags().StringVar(&f.emulator, "emulator-home", "", "with --vm, the home of the other threads: `SPEC`, as for --home")
	cmd.Flags().StringVar(&f.io, "iothread-home", "", "with --vm, the home of I/O threads, `SPEC`; without it they are in emulator too")
	for _, name := range []string{"emulator-home", "iothread-home"} {
		_ = cmd.RegisterFlagCompletionFunc(name, homes(h))
	}
}

// machine is what was asked for the parts of a virtual machine.
type machine struct{ vcpu, emulator, io parsed }

// parse checks the flags before anything is changed.
func (f machineFlags) parse(h cosched.Host, cmd *cobra.Command, vcpu parsed, soft bool) (m machine, err error) {
	m.vcpu = vcpu
	m.emulator = parsed{setHome: cmd.Flags().Changed("emulator-home"), force: vcpu.force}
	m.io = parsed{setHome: cmd.Flags().Changed("iothread-home"), force: vcpu.force}
	switch {
	case f.vm && soft:
		return m, usage("--vm and --soften both put single threads into clusters: give one of them")
	case !f.vm && (m.emulator.setHome || m.io.setHome):
		return m, usage("--emulator-home and --iothread-home are for threads of QEMU: give --vm too")
	}
	if m.emulator.setHome {
		m.emulator.home, err = h.ParseHome(f.emulator)
	}
	if m.io.setHome && err == nil {
		m.io.home, err = h.ParseHome(f.io)
	}
	return m, err
}

func machineParts(h cosched.Host, cluster cosched.Group, io bool) *qemu.VM {
	part := func(name string) cosched.Group { return cosched.Group(filepath.Join(string(cluster), name)) }
	vm := &qemu.VM{Cgroups: h, VCPU: part(vcpuPart), Emulator: part(emulatorPart), IO: part(emulatorPart)}
	if io {
		vm.IO = part(ioPart)
	}
	return vm
}

// makeMachine makes those parts of a cluster, for the threads of one QEMU, that do not exist yet.
func makeMachine(h cosched.Host, cluster cosched.Group, io bool) (vm *qemu.VM, made []cosched.Group, err error) {
	vm = machineParts(h, cluster, io)
	parts := []cosched.Group{vm.VCPU, vm.Emulator}
	if io {
		parts = append(parts, vm.IO)
	}
	for _, g := range parts {
		part, err := h.Create(g, true)
		made = append(made, part...)
		if errors.Is(err, os.ErrExist) {
			if !g.Populated() {
				continue
			}
			err = &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf(
				"%s has threads of another machine: each needs a cluster of its own, such as a part of this one, CLUSTER/NAME", g)}
		}
		if err != nil {
			return nil, nil, h.Undo(made, err)
		}
	}
	return vm, made, nil
}

// runMachine replaces this process with QEMU. Another process puts QEMU's threads where they
// belong, so that QEMU's parent, terminal and exit status are the same as without cosched.
func runMachine(h cosched.Host, cmd *cobra.Command, m machine, name, path string, args []string) error {
	from, _ := h.CgroupOf(os.Getpid())
	g, made, err := runGroup(h, name)
	if err != nil {
		return err
	}
	vm, parts, err := makeMachine(h, g, m.io.setHome)
	if err != nil {
		return h.Undo(made, err)
	}
	if args, err = m.begin(h, cmd, vm, g, parts, name == "", path, args); err == nil {
		err = execute(path, args, os.Environ())
	}
	return goBack(h, from, append(made, parts...), err)
}

// begin gives the parts their settings, starts the process beside QEMU, and moves this process
// into the part for the vCPUs. So the vCPUs are at home from their first instruction on, and so is
// the memory that QEMU touches before that. The other threads leave that part when they are known.
func (m machine) begin(h cosched.Host, cmd *cobra.Command, vm *qemu.VM, g cosched.Group, made []cosched.Group, remove bool, path string, args []string) ([]string, error) {
	apply := func(isNew bool) error {
		for _, part := range []struct {
			g cosched.Group
			parsed
		}{{vm.VCPU, m.vcpu}, {vm.Emulator, m.emulator}, {vm.IO, m.io}} {
			if slices.Contains(made, part.g) != isNew {
				continue
			}
			if err := part.apply(h, part.g, cmd); err != nil {
				return err
			}
		}
		return nil
	}
	if err := apply(true); err != nil {
		return nil, err
	}
	// The other end of the pipe closes when this process has become QEMU, or has ended.
	start, wait, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer start.Close()
	watch := []string{watchVerb, "--io=" + strconv.FormatBool(m.io.setHome), "--remove=" + strconv.FormatBool(remove)}
	files := []*os.File{start}
	var monitor *os.File
	if isQEMU(path) || isQEMU(args[0]) {
		var ours *os.File
		if ours, monitor, err = pair(); err != nil {
			return nil, err
		}
		defer ours.Close()
		files = append(files, ours)
		watch = append(watch, "--qmp")
	}
	if err := detached(append(watch, string(g)), files); err != nil {
		return nil, err
	}
	if err := h.MoveProcess(vm.VCPU, os.Getpid()); err != nil {
		return nil, err
	}
	// Existing parts are changed only after the process was put into them, so that nothing changes
	// if that fails.
	if err := apply(false); err != nil {
		return nil, err
	}
	keep = append(keep, wait, monitor)
	if monitor == nil {
		return args, nil
	}
	_, more, err := qemu.MonitorConfig(int(monitor.Fd()))
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(monitor.Fd(), unix.F_SETFD, 0); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return append(append([]string{args[0]}, more...), args[1:]...), nil
}

// keep refers to files so that they stay open until this process becomes QEMU.
var keep []*os.File

// pair makes a pair of connected sockets, which other programs do not inherit.
func pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// isQEMU reports whether a command has a name of QEMU, and so takes QEMU's arguments.
func isQEMU(name string) bool {
	name = filepath.Base(name)
	return strings.HasPrefix(name, "qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

// detached starts a verb of this command in a session of its own. The verb must not stay a child
// of this process, as QEMU would not expect a child process.
func detached(args []string, files []*os.File) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(exe, args...)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", exe, err)
	}
	return nil
}

// watchVerb is the verb of the process beside QEMU.
const watchVerb = "watch-vm"

// File descriptors that the process beside QEMU inherits.
const (
	startFile = 3
	qmpFile   = 4
)

const (
	// How often to look for threads: soon until vCPUs are found, then often, for vCPUs that are
	// plugged in later. Each time, two files are read.
	soon  = 100 * time.Millisecond
	often = time.Second
	// How long to wait for named vCPU threads. QEMU names its threads when it makes them, and
	// setting up a large machine can take a while.
	namedAfter = 30 * time.Second
)

func watchCmd(h cosched.Host) *cobra.Command {
	var io, remove, qmp, again bool
	cmd := &cobra.Command{
		Use:    watchVerb + " CLUSTER",
		Short:  "put the threads of a QEMU into their parts until it ends; started by run --vm",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			files := []*os.File{os.NewFile(startFile, "start")}
			if qmp {
				files = append(files, os.NewFile(qmpFile, "QMP"))
			}
			if !again {
				return beside(os.Args[1:], files)
			}
			g, err := h.Find(args[0])
			if err != nil {
				return err
			}
			source := &qemu.Best{Names: qemu.Names{Proc: h.Proc}}
			if qmp {
				source.QMP = qemu.NewQMP(files[1])
			}
			if err := waitClosed(files[0]); err != nil {
				return err
			}
			watch(machineParts(h, g, io), source, g.Populated, func(text string) {
				if text != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "cosched run: note: %s\n", text)
				}
				silence()
			})
			if remove {
				// If this fails, a later cosched run removes the cluster.
				_ = h.Remove(g, true)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&io, "io", false, "I/O threads have a part of their own")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the cluster at the end")
	cmd.Flags().BoolVar(&qmp, "qmp", false, "there is a connection to a QMP monitor")
	cmd.Flags().BoolVar(&again, "again", false, "be the process that stays")
	return cmd
}

// beside starts the process that stays beside QEMU. This process is its parent and ends at once,
// so that init becomes the parent.
func beside(args []string, files []*os.File) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(exe, append(args, "--again")...)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	c.Dir = "/" // so that it does not keep a file system busy
	return c.Start()
}

// waitClosed waits until no process has the other end open.
func waitClosed(f *os.File) error {
	_, err := io.Copy(io.Discard, f)
	return err
}

// silence closes standard error, as a program that reads it may wait until all writers close it.
func silence() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_ = unix.Dup3(int(null.Fd()), 2, 0)
		null.Close()
	}
}

// watch places threads until the cluster is empty. done is called once: with an empty text when
// the vCPUs have been placed, or with the reason why they could not be placed.
func watch(vm *qemu.VM, source qemu.Source, populated func() bool, done func(text string)) {
	began := time.Now()
	pause := soon
	finish := func(text string) {
		if pause == soon {
			done(text)
			pause = often
		}
	}
	for ; populated(); time.Sleep(pause) {
		switch err := vm.Place(source); {
		case err == nil:
			finish("")
		case errors.Is(err, qemu.ErrRefused):
			// QEMU refuses the query for now, for example with --preconfig.
		case !errors.Is(err, qemu.ErrNoVCPUs):
			finish(err.Error())
		case time.Since(began) > namedAfter:
			finish(fmt.Sprintf("%v, so all threads prefer the home of %s: give QEMU -name debug-threads=on", err, vm.VCPU))
		}
	}
}

// qmpAnswers bounds how long a monitor takes to answer. A monitor that another program is
// connected to never answers.
const qmpAnswers = 5 * time.Second

// moveMachine puts the threads of a running QEMU into the parts of a cluster, once.
func moveMachine(h cosched.Host, g cosched.Group, pid int, socket string) error {
	task := filepath.Join(h.Proc, strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(task)
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitNoInput, Text: fmt.Sprintf("%s: no such process: it has exited", task), Err: err}
	}
	var source qemu.Source = qemu.Names{Proc: h.Proc}
	remedy := "--qmp SOCKET asks QEMU, if it has a monitor that no other program uses"
	if socket != "" {
		remedy = "is it the monitor of this process?"
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return &cosched.Problem{Status: cosched.ExitNoInput, Text: fmt.Sprintf("--qmp %s: %v", socket, err), Err: err}
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(qmpAnswers)); err != nil {
			return err
		}
		source = qemu.NewQMP(conn)
	}
	own := map[int]bool{}
	var all []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			own[tid] = true
			all = append(all, tid)
		}
	}
	// Find the threads before anything is changed.
	threads, err := source.Threads(all)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("--qmp %s: no answer in %v: a monitor has one client at a time", socket, qmpAnswers), Err: err}
	} else if err != nil {
		return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("--qmp %s: %v", socket, err), Err: err}
	}
	known := false
	for _, tid := range threads.VCPU {
		known = known || own[tid]
	}
	if !known {
		return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%s: %v: %s", task, qemu.ErrNoVCPUs, remedy)}
	}
	vm, made, err := makeMachine(h, g, false)
	if err != nil {
		return err
	}
	// Most new threads are started by threads of the emulator, so the process goes there first.
	if err := h.MoveProcess(vm.Emulator, pid); err != nil {
		return h.Undo(made, err)
	}
	return vm.Place(fixed(threads))
}

// fixed is a Source of threads that were found before.
type fixed qemu.Threads

func (f fixed) Threads([]int) (qemu.Threads, error) { return qemu.Threads(f), nil }
