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

// The parts of a cluster that is a virtual machine. A home of the cluster itself would
// narrow those of all its parts, so the one that is asked for is that of the vCPUs.
const (
	vcpuPart     = "vcpu"
	emulatorPart = "emulator"
	ioPart       = "iothread"
)

// machineFlags are those of run --vm.
type machineFlags struct {
	vm       bool
	emulator string
	io       string
}

func (f *machineFlags) flags(h cosched.Host, cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.vm, "vm", false, "the command is QEMU: the home and weights are those of its vCPUs")
	cmd.Flags().StringVar(&f.emulator, "emulator-home", "", "with --vm, the home of the other threads: `SPEC`, as for --home")
	cmd.Flags().StringVar(&f.io, "iothread-home", "", "with --vm, the home of I/O threads, `SPEC`; they are with the others otherwise")
	for _, name := range []string{"emulator-home", "iothread-home"} {
		_ = cmd.RegisterFlagCompletionFunc(name, homes(h))
	}
}

// machine is what is asked for a virtual machine.
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

// makeMachine makes the parts of a cluster for the threads of one QEMU that are not there.
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

// runMachine becomes QEMU. A process beside it puts its threads where they belong, so that
// its parent, terminal and exit status are what they are without.
func runMachine(h cosched.Host, cmd *cobra.Command, m machine, name, path string, args []string) error {
	g, made, err := runGroup(h, name)
	if err != nil {
		return err
	}
	vm, parts, err := makeMachine(h, g, m.io.setHome)
	if err != nil {
		return h.Undo(made, err)
	}
	if args, err = m.begin(h, cmd, vm, g, parts, name == "", path, args); err != nil {
		return h.Undo(append(made, parts...), err)
	}
	return execute(path, args, os.Environ())
}

// begin gives the parts what they were asked for, starts the process beside QEMU, and moves
// this one to the vCPUs: they are at home from their first instruction on, and so is the
// memory that QEMU touches before. The others leave when they are known.
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
	// Its other end closes when this process is QEMU, or is no more.
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
	// Parts that were there do not change for a process that cannot be put into them.
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

// keep has files that are open until this process is QEMU.
var keep []*os.File

// pair makes two ends of a socket, which commands do not inherit.
func pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket"), nil
}

// isQEMU reports whether a command takes QEMU's arguments.
func isQEMU(name string) bool {
	name = filepath.Base(name)
	return strings.HasPrefix(name, "qemu-system-") || name == "qemu-kvm" || name == "kvm"
}

// detached starts a verb of this command in a session of its own, and as nobody's child:
// QEMU would not expect one.
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

// Files that it inherits.
const (
	startFile = 3
	qmpFile   = 4
)

const (
	// How often threads are looked for until vCPUs are found, and for those that are
	// plugged in later. A look is a read of two files.
	soon  = 100 * time.Millisecond
	often = time.Second
	// QEMU names its threads when it makes them; setting up a large machine can take a while.
	namedAfter = 30 * time.Second
)

func watchCmd(h cosched.Host) *cobra.Command {
	var io, remove, qmp, again bool
	cmd := &cobra.Command{
		Use:    watchVerb + " CLUSTER",
		Short:  "put the threads of a QEMU where they belong until it ends; run --vm starts it",
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
				// Or a later cosched run does.
				_ = h.Remove(g, true)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&io, "io", false, "I/O threads are apart")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the cluster at the end")
	cmd.Flags().BoolVar(&qmp, "qmp", false, "there is a connection to QEMU")
	cmd.Flags().BoolVar(&again, "again", false, "be the process that stays")
	return cmd
}

// beside starts the process that stays, whose parent this one is for a moment only.
func beside(args []string, files []*os.File) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(exe, append(args, "--again")...)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	c.Dir = "/" // it is not to keep a file system busy
	return c.Start()
}

// waitClosed waits until nobody has the other end open.
func waitClosed(f *os.File) error {
	_, err := io.Copy(io.Discard, f)
	return err
}

// silence lets go of what errors are written to: who reads it may wait for its end.
func silence() {
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_ = unix.Dup3(int(null.Fd()), 2, 0)
		null.Close()
	}
}

// watch places threads until there are none. done is called once: when the vCPUs have been
// placed, or with why they could not.
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
			// Not yet, as with --preconfig.
		case !errors.Is(err, qemu.ErrNoVCPUs):
			finish(err.Error())
		case time.Since(began) > namedAfter:
			finish(fmt.Sprintf("%v, so that all prefer the home of %s: give QEMU -name debug-threads=on", err, vm.VCPU))
		}
	}
}

// qmpAnswers bounds how long a monitor takes to answer. One whose client is another
// program never does.
const qmpAnswers = 5 * time.Second

// moveMachine puts a QEMU that runs into the parts of a cluster, once.
func moveMachine(h cosched.Host, g cosched.Group, pid int, socket string) error {
	task := filepath.Join(h.Proc, strconv.Itoa(pid), "task")
	entries, err := os.ReadDir(task)
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitNoInput, Text: fmt.Sprintf("%s: no such process: it has exited", task), Err: err}
	}
	var source qemu.Source = qemu.Names{Proc: h.Proc}
	remedy := "--qmp SOCKET asks QEMU, if it has a monitor that nobody else uses"
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
	// Before anything is changed.
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
	// New threads are begun by the emulator's, mostly.
	if err := h.MoveProcess(vm.Emulator, pid); err != nil {
		return h.Undo(made, err)
	}
	return vm.Place(fixed(threads))
}

// fixed are threads that were asked for before.
type fixed qemu.Threads

func (f fixed) Threads([]int) (qemu.Threads, error) { return qemu.Threads(f), nil }
