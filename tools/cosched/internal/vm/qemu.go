package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// The names of the guest's ports, by which init.sh looks for them.
const (
	portStdout = "coslab.stdout"
	portStderr = "coslab.stderr"
	portStatus = "coslab.status"
)

// qemuBinary is COSCHED_QEMU, or QEMU from the PATH.
func qemuBinary() string {
	if q := os.Getenv("COSCHED_QEMU"); q != "" {
		return q
	}
	return "qemu-system-x86_64"
}

// qemuArgs makes QEMU's command line. QEMU inherits four extra files, from file descriptor
// 3 on: console, standard output, standard error and status.
func qemuArgs(c Config, e emulator, initrd string) []string {
	t := c.Topology
	mem := c.MemoryMB
	if mem == 0 {
		mem = 1024 + 16*t.CPUs()
	}
	nodes := max(1, t.Nodes)
	mem -= mem % nodes
	args := []string{
		"-name", "guest=coslab-" + strings.ReplaceAll(c.Name, ",", ",,"), // a comma ends a value
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		// A guest on a PC with an HPET would spend its time on the emulation of it.
		"-machine", "q35,hpet=off,graphics=off",
		// Linux believes the die level of Intel CPUs only. It needs that level to see an
		// LLC for each die.
		"-cpu", "max,vendor=GenuineIntel",
		"-smp", fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Dies, t.Cores, t.Threads),
		"-m", strconv.Itoa(mem),
		"-kernel", c.Kernel, "-initrd", initrd,
		"-append", kernelCmdline(c, e.accel),
		"-accel", e.accel,
	}
	for _, dir := range e.firmware {
		args = append(args, "-L", dir)
	}
	if v := c.Virtual; v != nil {
		// Nothing of the host may influence the guest: not its clock, not its entropy, and
		// not the time at which its other threads serve a queue. RDRAND follows -seed.
		args = append(args, "-icount", fmt.Sprintf("shift=%d", v.Shift),
			"-rtc", "base=2020-01-01T00:00:00,clock=vm", "-seed", strconv.FormatUint(v.Seed, 10),
			"-device", "virtio-serial-pci,ioeventfd=off")
	} else {
		args = append(args, "-device", "virtio-serial-pci",
			"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng")
	}
	if nodes > 1 {
		for n, cpus := range t.NodeCPUs() {
			args = append(args,
				"-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", n, mem/nodes),
				"-numa", fmt.Sprintf("node,nodeid=%d,memdev=mem%d,cpus=%d-%d", n, n, cpus[0], cpus[len(cpus)-1]))
		}
		for a := range nodes {
			for b := range nodes {
				if a != b {
					args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", a, b, t.NodeDistance(a, b)))
				}
			}
		}
	}
	for i, name := range []string{"console", portStdout, portStderr, portStatus} {
		// append=on, because QEMU cannot truncate a pipe.
		id := "port" + strconv.Itoa(i)
		args = append(args,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", 3+i, 1+i),
			"-chardev", fmt.Sprintf("file,id=%s,path=/dev/fdset/%d,append=on", id, 1+i))
		if name == "console" {
			args = append(args, "-serial", "chardev:"+id)
		} else {
			args = append(args, "-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", id, name))
		}
	}
	if c.Disk != "" {
		// Writes go to a temporary file only, so nothing needs to reach the host's disk.
		args = append(args,
			"-drive", "if=none,id=disk,format=raw,snapshot=on,cache=unsafe,file="+strings.ReplaceAll(c.Disk, ",", ",,"),
			"-device", "virtio-blk-pci,drive=disk,serial=coslab")
	}
	return append(args, c.QEMUArgs...)
}

// kernelHZ is CONFIG_HZ of configs/base.config.
const kernelHZ = 1000

// kernelCmdline makes the kernel's command line. The caller's parameters come last and so
// take precedence.
func kernelCmdline(c Config, accel string) string {
	args := []string{
		"console=ttyS0", "panic=-1", "nokaslr",
		// An emulated TSC runs evenly on all CPUs, but on a busy host the kernel's checks
		// would conclude that it does not.
		"tsc=reliable", "clocksource=tsc", "nowatchdog", "random.trust_cpu=on",
	}
	if strings.HasPrefix(accel, "tcg") {
		args = append(args, "no_timer_check")
	}
	if c.Virtual != nil {
		// In virtual time the TSC counts nanoseconds. Without lpj=, each CPU would spend 60
		// ms in finding that out.
		args = append(args, "lpj="+strconv.Itoa(1_000_000_000/kernelHZ))
	}
	if c.Online > 0 {
		args = append(args, "maxcpus="+strconv.Itoa(c.Online))
	}
	return strings.Join(append(args, c.Cmdline...), " ")
}

// staleCode tells whether a guest failed because of a fault of the emulator, and has to be
// started again.
//
// The kernel patches a static key into running code by way of an int3 instruction. QEMU
// before 8.1, with a host thread for each CPU, can translate that int3 on one CPU just
// while another CPU replaces it, and keep the translation. The guest then dies of an int3
// that is no longer there. On a busy host that happens in one boot of ten.
func staleCode(ctx context.Context, e emulator, res *Result) bool {
	if e.accel != accelTCG || res == nil || len(res.Reports) == 0 || !strings.Contains(res.Reports[0], "int3: ") {
		return false
	}
	// The byte before the instruction pointer is where the int3 was. If the int3 (cc) is
	// still there, the fault is the kernel's own.
	m := trapCode.FindStringSubmatch(res.Console)
	return m != nil && m[1] != "cc" && qemuOlder(ctx, e.binary, 8, 1)
}

var trapCode = regexp.MustCompile(`Oops: int3: (?s:.*?)Code: (?:[0-9a-f]{2} )*([0-9a-f]{2}) <[0-9a-f]{2}>`)

var qemuVersion = regexp.MustCompile(`version (\d+)\.(\d+)`)

// qemuOlder tells whether a QEMU is older than a version. It is false if that cannot be
// found out.
func qemuOlder(ctx context.Context, binary string, major, minor int) bool {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	m := qemuVersion.FindSubmatch(out)
	if err != nil || m == nil {
		return false
	}
	a, _ := strconv.Atoi(string(m[1]))
	b, _ := strconv.Atoi(string(m[2]))
	return a < major || a == major && b < minor
}

const accelTCG = "tcg,thread=multi"

// emulator is the QEMU that runs a guest, and how.
type emulator struct {
	binary   string
	accel    string   // the value of -accel
	firmware []string // directories with firmware, if QEMU does not know them itself
}

// emulatorFor chooses the emulator: the distribution's QEMU, or the project's own QEMU for
// virtual time and for guests that live on a disk. Guests on a disk run for minutes and
// switch many static keys, so they do not come to their end on a QEMU that has the fault
// which staleCode describes.
func emulatorFor(ctx context.Context, c Config) (emulator, error) {
	v := c.Virtual
	e := emulator{binary: qemuBinary()}
	if v == nil {
		var err error
		if e.accel, err = accelFor(ctx, c); err != nil || c.Disk == "" || os.Getenv("COSCHED_QEMU") != "" || !qemuOlder(ctx, e.binary, 8, 1) {
			return e, err
		}
	}
	q, err := kbuild.FindQEMU(kbuild.Options{})
	if err != nil {
		q, err = kbuild.BuildQEMU(ctx, kbuild.Options{})
	}
	if err != nil {
		return emulator{}, err
	}
	if v == nil {
		return emulator{q.Binary, e.accel, q.Firmware}, nil
	}
	accel := fmt.Sprintf("tcg,thread=single,parallel-time=on,time-seed=%d", v.Seed)
	if v.Pause > 0 {
		accel += fmt.Sprintf(",time-pause=%d", v.Pause.Nanoseconds())
	}
	if v.Quantum > 0 {
		accel += fmt.Sprintf(",time-quantum=%d", v.Quantum.Nanoseconds())
	}
	return emulator{q.Binary, accel, q.Firmware}, nil
}

var accelProbe struct {
	sync.Mutex
	done bool
	err  error
}

// accelFor chooses QEMU's accelerator: TCG, unless COSCHED_ACCEL asks for kvm, or for auto,
// which is KVM if a guest boots with it and TCG otherwise.
func accelFor(ctx context.Context, c Config) (string, error) {
	want := os.Getenv("COSCHED_ACCEL")
	switch want {
	case "", "tcg":
		return accelTCG, nil
	case "kvm", "auto":
	default:
		return "", fmt.Errorf("COSCHED_ACCEL=%s: tcg, kvm or auto", want)
	}
	err := probeKVM(ctx, c.Kernel)
	if err == nil {
		return "kvm", nil
	}
	if want == "kvm" {
		return "", fmt.Errorf("COSCHED_ACCEL=kvm: KVM does not boot a guest here: %w", err)
	}
	return accelTCG, nil
}

// probeTimeout is several times what a two-CPU guest needs under KVM.
const probeTimeout = 20 * time.Second

// probeKVM boots a small guest, because guests can hang on nested or restricted hosts even
// if /dev/kvm is there. The result is kept for the life of the process.
func probeKVM(ctx context.Context, kernel string) error {
	accelProbe.Lock()
	defer accelProbe.Unlock()
	if accelProbe.done {
		return accelProbe.err
	}
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		accelProbe.done, accelProbe.err = true, err
		return err
	} else {
		f.Close()
	}
	dir, err := os.MkdirTemp("", "coslab-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := Config{Name: "kvm-probe", Kernel: kernel, Command: []string{"true"},
		Topology: Topology{Sockets: 1, Dies: 1, Cores: 2, Threads: 1}, Timeout: probeTimeout}
	initrd := filepath.Join(dir, "initramfs.gz")
	if err := writeInitramfs(initrd, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err = boot(ctx, c, emulator{binary: qemuBinary(), accel: "kvm"}, initrd)
	accelProbe.done, accelProbe.err = true, err
	return err
}

// slots is how many guests that share a cache run at a time: more would only slow each
// other down.
const slots = 2

// takeSlot waits until this guest may run, or, if all is true, until no other guest runs.
func takeSlot(ctx context.Context, all bool) (release func(), err error) {
	cache, err := kbuild.CacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "vm-slots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var held []*os.File
	release = func() {
		for _, f := range held {
			f.Close()
		}
	}
	need := 1
	if all {
		need = slots
	}
	for {
		// Slots are always taken in the same order, so that two guests that each want all
		// slots do not wait for each other.
		first := 0
		if all {
			first = len(held)
		}
		for i := first; i < slots && len(held) < need; i++ {
			f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(i)), os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				release()
				return nil, err
			}
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			if err == nil {
				held = append(held, f)
				continue
			}
			f.Close()
			if !errors.Is(err, syscall.EWOULDBLOCK) {
				release()
				return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
			}
			if all {
				break
			}
		}
		if len(held) == need {
			return release, nil
		}
		select {
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
