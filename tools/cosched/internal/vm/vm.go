// Package vm boots a kernel in QEMU with a chosen topology, runs one program in the guest,
// and returns the program's exit status and output.
//
// The guest lives in an initramfs that is made for each run: busybox, a small init
// (init.sh), the requested programs with their shared libraries, and extra files. Standard
// output, standard error and the exit status come back through a virtio-serial port each,
// so that kernel messages never mix with them. The console is watched for panics and for
// reports of the kernel's own checks.
//
// With a disk, the initramfs only copies these programs and files to a Debian system on the
// disk (disk-init.sh), whose systemd then starts the program (disk-start.sh).
//
// Guests run under TCG, QEMU's emulator, unless COSCHED_ACCEL says otherwise: TCG is
// available everywhere, it can give a guest any topology on any host, and the two cores of
// a small machine can carry 64 emulated CPUs. The time that something takes in a guest says
// nothing about hardware.
//
// github.com/hugelgupf/vmtest was considered and not used. It starts a QEMU process and
// builds u-root guests, but it has neither topologies nor separate output and exit status
// of a guest's program, which are this package's work. It never made a release, and its
// module brings thirty others. The initramfs is written with the cpio package of u-root,
// its neighbour.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// Config says what to boot and what to run in it.
type Config struct {
	Name       string   // shown in errors and in the name of the kept log; the program's name when empty
	Kernel     string   // bzImage
	Topology   Topology // Find("demo").Topology, or any other
	KernelCPUs int      // the number of CPUs that the kernel is configured for; 64, as most kernels of this project are, when 0
	MemoryMB   int      // at least 64 per NUMA node; 1024 plus 16 per CPU when 0
	Cmdline    []string // more kernel parameters
	Online     int      // number of CPUs brought up at boot (maxcpus=); the rest can be put online later; 0 means all
	// Virtual runs the guest in parallel virtual time, on the QEMU that `make lab` builds.
	// If that QEMU is not there yet, it is built.
	Virtual  *VirtualTime
	QEMUArgs []string // more arguments for QEMU, such as a plugin
	// Disk is the image of a Debian system, as package debian makes them. The guest then
	// lives on that disk: systemd is its first process, and the program is one of its
	// services. Nothing that the guest writes is kept. Host programs are put into
	// /usr/local/bin, and without their libraries: they use those of the image.
	Disk string

	// Command is the program and its arguments. A name that has a slash and exists on the
	// host is copied, with its shared libraries, to /bin in the guest. Any other name is
	// looked up in the guest: a busybox applet, one of Programs, or a file of Files.
	Command  []string
	Programs []string // more host programs for the guest's /bin, found on the host's PATH unless the name has a slash
	Files    []File   // more files
	Env      []string // NAME=VALUE, in addition to PATH, HOME and TERM
	// Stdout and Stderr receive the program's output while it runs. The result has the
	// output too.
	Stdout, Stderr io.Writer
	Console        io.Writer // receives the kernel's console while it runs

	Timeout time.Duration // for boot and program together; DefaultTimeout when 0
	// FailOnReport turns a report of the kernel on the console (oops, lockdep, KASAN, RCU,
	// hung task, ...) into an error, and ends the guest early.
	FailOnReport bool
	// Exclusive keeps other guests from running at the same time. It is for guests in which
	// times are measured.
	Exclusive bool
}

// VirtualTime makes a guest's time a count of the instructions that each of its CPUs
// executes. In the guest's time its CPUs work simultaneously, and what the guest does is
// the same in every run, whatever else the host does. One host thread executes all CPUs.
type VirtualTime struct {
	// Shift says how long an instruction takes: 2 to the power of Shift, in nanoseconds; 0
	// to 10. A guest with slower CPUs ends sooner.
	Shift int
	Seed  uint64 // of QEMU's choices between CPUs; another seed makes another run
	// Pause is the time that the guest's PAUSE instruction takes; QEMU's default, 50 ns,
	// when 0. The longer it is, the fewer instructions a program executes that spins with
	// PAUSE.
	Pause time.Duration
	// Quantum is how far the clocks of two busy CPUs may be apart; QEMU's default, 10 us, when 0.
	Quantum time.Duration
}

// File is a file put into the guest.
type File struct {
	Path string      // in the guest
	Host string      // copied from here,
	Data []byte      // or this content
	Mode os.FileMode // 0644 when 0 (the host file's when Host is set)
}

// DefaultTimeout bounds a run whose Config has no Timeout.
const DefaultTimeout = 2 * time.Minute

// Result is what a program left behind.
type Result struct {
	ExitStatus     int // 128 plus the signal's number when a signal ended it
	Stdout, Stderr []byte
	Console        string   // everything that the kernel printed
	Reports        []string // the kernel's reports found in Console, first line of each
	Elapsed        time.Duration
}

// Error is the error for a guest that did not come to its end.
type Error struct {
	Name    string
	Why     string
	Console string // the whole console
	LogFile string // where the console is kept; empty if it could not be saved
	Reports []string
	Stderr  []byte // the messages of the program and of QEMU until then
	Err     error  // context.DeadlineExceeded for a timeout, or another cause
}

const errorLines = 25

func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "guest %s: %s", e.Name, e.Why)
	if len(e.Stderr) > 0 {
		fmt.Fprintf(&s, "\n--- the last lines of its standard error:\n%s", lastLines(string(e.Stderr), errorLines))
	}
	if e.Console == "" {
		s.WriteString("\n--- the console is empty: the kernel did not start")
	} else {
		fmt.Fprintf(&s, "\n--- the last lines of the console:\n%s", lastLines(e.Console, errorLines))
	}
	if e.LogFile != "" {
		fmt.Fprintf(&s, "\n--- the whole console is in %s", e.LogFile)
	}
	return s.String()
}

func (e *Error) Unwrap() error { return e.Err }

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Run boots the guest, runs the program and returns when both have ended. The
// error is an *Error when the guest failed; a program that exits with a status
// other than 0 is not an error.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Name == "" && len(c.Command) > 0 {
		c.Name = filepath.Base(c.Command[0])
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if err := c.Topology.check(); err != nil {
		return nil, fmt.Errorf("guest %s: %w", c.Name, err)
	}
	// The kernel would not use the other CPUs, and would say so only where nobody looks.
	if n, most := c.Topology.CPUs(), cmp.Or(c.KernelCPUs, usualCPUs); n > most {
		return nil, fmt.Errorf("guest %s: its kernel is for %d CPUs, not %d: take the variant large", c.Name, most, n)
	}
	if c.Topology.lastAPIC() >= everybody && (c.Online == 0 || c.Online > everybody) {
		return nil, fmt.Errorf("guest %s: the CPU with APIC number %d cannot be used: bring up %d CPUs (--online)", c.Name, everybody, everybody)
	}
	dir, err := os.MkdirTemp("", "coslab-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initramfs.gz")
	if err := writeInitramfs(initrd, c); err != nil {
		return nil, fmt.Errorf("guest %s: building its initramfs: %w", c.Name, err)
	}
	e, err := emulatorFor(ctx, c)
	if err != nil {
		return nil, err
	}
	release, err := takeSlot(ctx, c.Exclusive)
	if err != nil {
		return nil, err
	}
	defer release()
	for attempt := 1; ; attempt++ {
		// The time of the wait for a slot does not count as the guest's.
		timed, cancel := context.WithTimeout(ctx, c.Timeout)
		res, err := boot(timed, c, e, initrd)
		cancel()
		if attempt == maxAttempts || !staleCode(ctx, e, res) {
			return res, err
		}
		fmt.Fprintf(os.Stderr, "guest %s: this QEMU, older than 8.1, ran code that the guest's kernel had just patched; starting again\n", c.Name)
	}
}

// reportTime is the time for the rest of a report after its first line. What staleCode
// looks for is near the end: 2 s were too short with three guests on two cores.
const reportTime = 10 * time.Second

// maxAttempts bounds how often one guest is started because of what staleCode finds. On a
// quiet host with two cores, six of seven boots of the demonstration's guest ended that
// way, each after 5 s.
const maxAttempts = 20

// boot runs QEMU until the guest powers off or something goes wrong.
func boot(ctx context.Context, c Config, e emulator, initrd string) (*Result, error) {
	start := time.Now()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	watch := &console{live: c.Console, realTime: c.Virtual == nil, onReport: func(line string) {
		if c.FailOnReport {
			// Wait for the rest of the report, which takes seconds on a busy host.
			time.AfterFunc(reportTime, func() { giveUp(errReport) })
		}
	}}
	var stdout, stderr, status, qemuErr capture
	stdout.live, stderr.live = c.Stdout, c.Stderr
	ports := []struct {
		name string
		w    io.Writer
	}{{"console", watch}, {portStdout, &stdout}, {portStderr, &stderr}, {portStatus, &status}}

	cmd := exec.CommandContext(ctx, e.binary, qemuArgs(c, e, initrd)...)
	cmd.Stderr = &qemuErr
	// QEMU dies with this process, and does not get the terminal's interrupt before this
	// process does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	var copies sync.WaitGroup
	var ends []*os.File
	closeEnds := func() {
		for _, f := range ends {
			f.Close()
		}
		ends = nil
	}
	defer closeEnds()
	for _, p := range ports {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ends = append(ends, w)
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
		copies.Go(func() {
			defer r.Close()
			// The pipe ends when QEMU ends.
			_, _ = io.Copy(p.w, r)
		})
	}
	err := runLocked(cmd, closeEnds)
	copies.Wait()

	res := &Result{
		ExitStatus: -1,
		Stdout:     stdout.bytes(), Stderr: stderr.bytes(),
		Console: watch.text(), Reports: watch.reports(), Elapsed: time.Since(start),
	}
	text := strings.TrimSpace(string(status.bytes()))
	n, convErr := strconv.Atoi(text)
	fail := func(why string, err error) (*Result, error) {
		e := &Error{Name: c.Name, Why: why, Console: res.Console, Reports: res.Reports, Err: err}
		e.Stderr = append(slices.Clone(qemuErr.bytes()), res.Stderr...)
		e.LogFile = keepLog(c.Name, res.Console)
		return res, e
	}
	switch {
	case len(res.Reports) > 0 && c.FailOnReport:
		return fail("the kernel reported: "+strings.Join(res.Reports, "; "), errReport)
	case watch.panicked():
		return fail("the kernel panicked: "+watch.panic, errReport)
	case convErr == nil:
		res.ExitStatus = n
		return res, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(fmt.Sprintf("no end after %s", c.Timeout), context.DeadlineExceeded)
	case ctx.Err() != nil:
		return fail("stopped", context.Cause(ctx))
	case err != nil:
		return fail("QEMU failed: "+err.Error(), err)
	default:
		return fail("it ended without the exit status of its program", nil)
	}
}

var errReport = errors.New("the kernel reported a problem")

// IsReport tells whether an error of Run was caused by a report of the kernel's own checks.
func IsReport(err error) bool { return errors.Is(err, errReport) }

// runLocked runs a command with Pdeathsig. That signal is sent when the thread that started
// the process ends, so this thread is kept until the process has ended.
func runLocked(cmd *exec.Cmd, started func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started()
		if err == nil {
			err = cmd.Wait()
		}
		done <- err
	}()
	return <-done
}

// capture keeps what is written, and passes it on at once.
type capture struct {
	live io.Writer
	mu   sync.Mutex
	buf  bytes.Buffer
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		// A listener that fails must not stop the guest.
		_, _ = c.live.Write(b)
	}
	return c.buf.Write(b)
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Bytes()
}

// Lines returns a writer, for Stdout, Stderr or Console, that calls f for each complete
// line.
func Lines(f func(line string)) io.Writer { return &lineWriter{f: f} }

type lineWriter struct {
	f    func(string)
	part []byte
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.f(strings.TrimRight(string(line), "\r"))
		l.part = rest
	}
}

// logAge is how long the console of a failed guest is kept.
const logAge = 7 * 24 * time.Hour

// keepLog saves a console and returns the name of the file, or "" if it cannot be saved.
func keepLog(name, text string) string {
	cache, err := kbuild.CacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(cache, "vm-logs")
	if os.MkdirAll(dir, 0o755) != nil {
		return ""
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, f := range old {
		if info, err := os.Stat(f); err == nil && time.Since(info.ModTime()) > logAge {
			os.Remove(f)
		}
	}
	safe := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '_'
		}
		return r
	}, name)
	f, err := os.CreateTemp(dir, fmt.Sprintf("%s-%s-*.log", time.Now().Format("20060102-150405"), safe))
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return ""
	}
	return f.Name()
}
