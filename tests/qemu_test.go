package tests

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// build runs a command and returns its output.
func build(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// assembled assembles a file of tests/plugin and returns the path of the result.
func assembled(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	object, bios := filepath.Join(dir, name+".o"), filepath.Join(dir, name+".bin")
	build(t, "gcc", "-m32", "-c", "-o", object, filepath.Join(root, "tests", "plugin", name+".S"))
	build(t, "objcopy", "-O", "binary", object, bios)
	return bios
}

// machine returns a command that runs a PC with this firmware.
func machine(ctx context.Context, q *kbuild.QEMU, accel, bios string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, q.Binary, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35",
		"-accel", accel, "-icount", "shift=0", "-bios", bios)
	for _, d := range q.Firmware {
		cmd.Args = append(cmd.Args, "-L", d)
	}
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// A guest that halts without interrupts, while a timer fires for ever, takes no notice of that. QEMU
// still does what it is told.
func TestHaltedGuestEnds(t *testing.T) {
	q, err := kbuild.BuildQEMU(t.Context(), kbuild.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := machine(ctx, q, "tcg,thread=single,parallel-time=on", assembled(t, "halted"), "-monitor", "stdio")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // It is halted long before.
	if _, err := io.WriteString(in, "stop\ncont\nquit\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("QEMU was told to quit, and ends with: %v", err)
	}
}

// A plugin of QEMU sets the time of a guest whose clock counts instructions: it goes forward, and
// never back. The model of the lab moves the clocks of vCPUs instead, so nothing else would notice.
// If QEMU cannot set its clock, it tries for ever.
func TestPluginSetsTime(t *testing.T) {
	q, err := kbuild.BuildQEMU(t.Context(), kbuild.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "forward.so")
	glib := strings.Fields(build(t, "pkg-config", "--cflags", "glib-2.0"))
	build(t, append([]string{"gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I" + q.PluginDir, "-o", plugin,
		filepath.Join(root, "tests", "plugin", "forward.c")}, glib...)...)
	bios := assembled(t, "forward")

	for _, accel := range []string{"tcg,thread=single", "tcg,thread=single,parallel-time=on"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := machine(ctx, q, accel, bios, "-plugin", plugin, "-device", "isa-debug-exit,iobase=0xf4,iosize=1")
		out, err := cmd.CombinedOutput()
		// The device ends QEMU with twice what was written, plus 1.
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 9 {
			t.Errorf("%s: %v, where exit status 9 is expected; 3 is a clock that is wrong at first, 5 one that does not go forward, 7 one that goes back\n%s",
				accel, err, out)
		}
	}
}
