//go:build integration

package tests

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cosched.io/cosched/internal/debian"
	"cosched.io/cosched/internal/vm"
)

//go:embed libvirt.sh
var libvirtScript string

// Machines of a real libvirt have the homes that their XML asks for: when they start, when
// libvirt starts, and when the hook is called again. A wrong value is logged, or keeps the
// machine from starting.
func TestIntegrationLibvirt(t *testing.T) {
	image := firmware(t)
	hook, err := os.ReadFile(filepath.Join(root, "contrib/libvirt/cosched"))
	if err != nil {
		t.Fatal(err)
	}
	eachSuite(t, func(t *testing.T, suite string) {
		out := inDebianWith(t, suite, debian.Machines, libvirtScript, func(c *vm.Config) {
			c.Files = append(c.Files, vm.File{Path: "/spin.bin", Host: image}, vm.File{
				Path: "/etc/libvirt/hooks/qemu.d/cosched", Mode: 0o755,
				Data: []byte(strings.ReplaceAll(string(hook), "/usr/bin/cosched", "/usr/local/bin/cosched")),
			})
		})
		t.Log(out)
		want := regexp.MustCompile(`^libvirt \d+
cgroup: /machine\.slice/machine-qemu\\x2d1\\x2dshop\.scope/libvirt
started: \. , vcpu0 2-3, emulator 0-1, iothread1 0, 4 1000
ran at home: (9\d|100) %
plugged in: \. , vcpu0 2-3, vcpu1 , emulator 0-1, iothread1 0, 4 1000
called again: \. , vcpu0 2-3, vcpu1 2-3, emulator 0-1, iothread1 0, 4 1000
libvirt restarted: \. , vcpu0 2-3, vcpu1 2-3, emulator 0-1, iothread1 0, 4 1000
destroyed: gone
auto: \. auto, vcpu0 , emulator 1, iothread1 , 100 150
wrong: running, .*
wrong: logged
this machine has no llc 7
must not: shut off
$`)
		if !want.MatchString(out) {
			t.Errorf("the guest says\n%s\nwant\n%s", out, want)
		}
	})
}
