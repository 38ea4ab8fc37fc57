package tests

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// A plugin of QEMU sets the time of a guest whose clock counts instructions: it goes forward, and
// never back. The model of the lab moves the clocks of vCPUs instead, so nothing else would notice.
// If QEMU cannot set its clock, it tries for ever.
func TestPluginSetsTime(t *testing.T) {
	q, err := kbuild.BuildQEMU(t.Context(), kbuild.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	dir, source := t.TempDir(), filepath.Join(root, "tests", "plugin", "forward")
	plugin, object, firmware := filepath.Join(dir, "forward.so"), filepath.Join(dir, "forward.o"), filepath.Join(dir, "forward.bin")
	build := func(argv ...string) string {
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
		return string(out)
	}
	glib := strings.Fields(build("pkg-config", "--cflags", "glib-2.0"))
	build(append([]string{"gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I" + q.PluginDir, "-o", plugin, source + ".c"}, glib...)...)
	build("gcc", "-m32", "-c", "-o", object, source+".S")
	build("objcopy", "-O", "binary", object, firmware)

	for _, accel := range []string{"tcg,thread=single", "tcg,thread=single,parallel-time=on"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, q.Binary, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35",
			"-accel", accel, "-icount", "shift=0", "-bios", firmware, "-plugin", plugin, "-device", "isa-debug-exit,iobase=0xf4,iosize=1")
		for _, d := range q.Firmware {
			cmd.Args = append(cmd.Args, "-L", d)
		}
		out, err := cmd.CombinedOutput()
		// The device ends QEMU with twice what was written, plus 1.
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 9 {
			t.Errorf("%s: %v, where exit status 9 is expected; 3 is a clock that is wrong at first, 5 one that does not go forward, 7 one that goes back\n%s",
				accel, err, out)
		}
	}
}
