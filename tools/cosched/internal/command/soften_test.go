package command

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Which commands can be softened, and the messages about those that cannot.
func TestSoften(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("main.c", []byte("int main(void) { return 0; }\n"), 0o644)
	build := func(name string, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "gcc", append(args, "-o", name, "main.c")...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dynamic := build("dynamic")
	build("static", "-static")
	build(softenObject, "-shared", "-fPIC")
	foreign := slices.Clone(dynamic)
	foreign[18], foreign[19] = 0xf3, 0 // EM_RISCV, in the machine of the header
	file("foreign", foreign, 0o755)
	file("setuid", dynamic, 0o755|os.ModeSetuid)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, text := range map[string]string{
		"script":         "#!" + dir + "/dynamic\n",
		"script-static":  "#! " + dir + "/static -x\n",
		"script-script":  "#!" + dir + "/script-static\n",
		"script-env":     "#!/usr/bin/env static\n",
		"script-nothing": "true\n",
		"script-loop":    "#!" + dir + "/script-loop",
		"empty":          "",
	} {
		file(name, []byte(text), 0o755)
	}
	t.Setenv("COSCHED_LIBDIR", dir)
	object := filepath.Join(dir, softenObject)
	for _, tc := range []struct{ name, says string }{
		{"dynamic", ""},
		{"static", "/static: is linked statically"},
		{"foreign", "/foreign: is for EM_RISCV, " + object + " for EM_"},
		{"setuid", "/setuid: runs with the rights of another user"},
		{"script", ""},
		{"script-static", "/static: is linked statically"},
		{"script-script", "/static: is linked statically"},
		{"script-env", "/static: is linked statically"},
		{"script-nothing", ""},
		{"script-loop", ""},
		{"empty", ""},
	} {
		env, err := soften(filepath.Join(dir, tc.name), []string{"A=1"}, 0)
		if tc.says == "" {
			if err != nil || !slices.Equal(env, []string{"A=1", "LD_PRELOAD=" + object}) {
				t.Errorf("%s: %q, %v", tc.name, env, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
	t.Run("capabilities", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root gives a file capabilities")
		}
		capable := file("capable", dynamic, 0o755)
		script := file("script-capable", []byte("#!"+capable+"\n"), 0o755)
		for _, path := range []string{capable, script} {
			if _, err := soften(path, nil, 1000); err != nil {
				t.Errorf("without any: %v", err)
			}
		}
		// cap_net_raw+ep: struct vfs_cap_data of linux/capability.h, revision 2.
		value := [20]byte{0: 1, 3: 2, 5: 1 << (unix.CAP_NET_RAW - 8)}
		err := unix.Setxattr(capable, "security.capability", value[:], 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("no file capabilities in " + dir)
		} else if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{capable, script} {
			if _, err := soften(path, nil, 1000); err == nil || !strings.Contains(err.Error(), "/capable: has file capabilities") {
				t.Errorf("%s: %v", path, err)
			}
			if _, err := soften(path, nil, 0); err != nil {
				t.Errorf("%s, as root: %v", path, err)
			}
		}
	})
	// Libraries that are preloaded already are kept.
	if env, err := soften(filepath.Join(dir, "dynamic"), []string{"LD_PRELOAD=/other.so", "B=2"}, 0); err != nil || !slices.Equal(env, []string{"LD_PRELOAD=" + object + ":/other.so", "B=2"}) {
		t.Errorf("%q, %v", env, err)
	}
	t.Setenv("COSCHED_LIBDIR", "/no/such")
	if _, err := findSoften(); err == nil || err.Error() != "--soften needs libcosched-soften.so, which is not in /no/such: make lib builds it, or set COSCHED_LIBDIR to its directory" {
		t.Error(err)
	}
	t.Setenv("COSCHED_LIBDIR", "")
	defer func(dir string) { softenDir = dir }(softenDir)
	softenDir = t.TempDir() // the library may be installed on this machine
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := findSoften(); err == nil || !strings.Contains(err.Error(), "not in "+filepath.Join(filepath.Dir(exe), "../lib/cosched")+" or "+softenDir+": make lib") {
		t.Error(err)
	}
}
