package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/demo"
	"cosched.io/cosched/internal/demo/acts"
	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

func init() {
	register("demo", "watch clusters keep their home on 16 CPUs in 4 LLC domains", runDemo)
}

const demoUsage = `usage: coslab demo [OPTIONS]

Boots the kernel on 16 emulated CPUs in 4 LLC domains, runs two clusters under
load, and shows where the kernel places their threads. Everything shown is read
from cosched.stat, cosched.load and /proc in that guest. Exits with 1 if an act did
not show what it promises. Set NO_COLOR to switch colors off.

options:
`

func runDemo(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab demo", flag.ContinueOnError)
	base := fs.String("base", kbuild.Base(), "Linux `version` to build on")
	kernel := fs.String("kernel", "test", "kernel `variant`, which is built if necessary, or the path of a bzImage")
	asJSON := fs.Bool("json", false, "print the result as JSON on standard output, and everything else on standard error")
	timeout := fs.Duration("timeout", 5*time.Minute, "give up after this `time`, once the kernel is built")
	guest := fs.Bool("guest", false, "play the acts on this machine; the command uses this in its guest")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), demoUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *guest {
		return exitStatus(acts.Main(ctx, acts.Config{
			Cgroup: "/sys/fs/cgroup", Proc: "/proc", SysCPU: cosched.SysCPU,
			StressNG: "/bin/stress-ng", Warehouse: "/bin/warehouse", Out: os.Stdout,
		}))
	}
	out := os.Stdout
	if *asJSON {
		out = os.Stderr
	}
	report, err := showDemo(ctx, out, *kernel, *base, *timeout)
	if ctx.Err() != nil {
		// A user who interrupts the run does not need the log of the guest's console.
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if *asJSON {
		if err := printJSON(os.Stdout, report); err != nil {
			return err
		}
	}
	if !report.OK {
		return exitStatus(1)
	}
	return nil
}

// showDemo builds the kernel, boots the guest and shows its events.
func showDemo(ctx context.Context, out *os.File, image, base string, timeout time.Duration) (demo.Report, error) {
	var none demo.Report
	topology, err := vm.Find("demo")
	if err != nil {
		return none, err
	}
	// A missing program is reported before minutes are spent on building a kernel.
	stress, err := exec.LookPath("stress-ng")
	if err != nil {
		return none, errors.New("stress-ng is not on the PATH; `make setup` installs it, or the distribution's package stress-ng")
	}
	self, err := os.Executable()
	if err != nil {
		return none, err
	}
	workloads, err := os.MkdirTemp("", "coslab-demo-")
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(workloads)
	if err := buildWorkloads(ctx, workloads); err != nil {
		return none, err
	}
	if !strings.Contains(image, "/") {
		k, err := kbuild.Build(ctx, kbuild.Options{Base: base, Variant: image})
		if err != nil {
			return none, err
		}
		image = k.Image
	}

	view := demo.NewView(out, terminal(out))
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				view.Tick()
			}
		}
	}()
	view.Status("Booting %s", topology.About)
	res, err := vm.Run(ctx, vm.Config{
		Name: "demo", Kernel: image, Topology: topology.Topology,
		Command:  []string{self, "demo", "--guest"},
		Programs: []string{stress, filepath.Join(workloads, "warehouse")},
		Timeout:  timeout,
		// The figures mean little if the guest shares the host's cores with other guests.
		Exclusive: true,
		Stdout: vm.Lines(func(line string) {
			if e, ok := demo.Receive(line); ok {
				view.Event(e)
			}
		}),
	})
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	if err == nil && len(res.Reports) > 0 {
		err = fmt.Errorf("the kernel reported a problem: %s", res.Reports[0])
	}
	if err == nil && res.ExitStatus != 0 {
		err = fmt.Errorf("the program in the guest exited with %d: %s", res.ExitStatus, res.Stderr)
	}
	return view.Finish(err), nil
}

// buildWorkloads compiles the sharing workload, which takes a second.
func buildWorkloads(ctx context.Context, dir string) error {
	root, err := kbuild.FindRoot()
	if err != nil {
		return err
	}
	make := exec.CommandContext(ctx, "make", "-s", "-C", filepath.Join(root, "tests", "workloads"),
		"OUT="+dir, filepath.Join(dir, "warehouse"))
	if text, err := make.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the sharing workload: %w\n%s", err, text)
	}
	return nil
}

// terminal finds out what the output can do.
func terminal(f io.Writer) demo.Terminal {
	file, ok := f.(*os.File)
	if !ok {
		return demo.Terminal{}
	}
	var size struct{ rows, cols, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return demo.Terminal{}
	}
	return demo.Terminal{Redraw: true, Color: os.Getenv("NO_COLOR") == "", Width: int(size.cols)}
}
