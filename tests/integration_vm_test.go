//go:build integration

package tests

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"cosched.io/cosched/internal/vm"
)

// firmware builds the code that the vCPUs of a QEMU run: each vCPU spins.
func firmware(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	object, image := filepath.Join(dir, "spin.o"), filepath.Join(dir, "spin.bin")
	for _, args := range [][]string{
		{"gcc", "-m32", "-c", "-o", object, filepath.Join(root, "tools/cosched/internal/qemu/testdata/spin.S")},
		{"objcopy", "-O", "binary", object, image},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	return image
}

// machineScript runs QEMU in QEMU. The inner QEMU has a monitor on a pipe, as a user's QEMU may
// have.
const machineScript = `
cd /sys/fs/cgroup/cosched 2>/dev/null || { cosched create first; cd /sys/fs/cgroup/cosched; }
# until CONDITION: for up to five minutes of the guest's time
within() {
	i=0
	until eval "$1"; do
		i=$((i+1))
		[ $i -lt 3000 ] || { echo "never: $1" >&2; cat /tmp/err >&2; grep -s . */cgroup.threads */*/cgroup.threads >&2; exit 1; }
		sleep 0.1
	done
}
count() { wc -l <"$1/cgroup.threads"; }
counter() { sed -n "s/^$2 //p" "$1/cosched.stat"; }
# The CPU that each thread of a part ran on last.
cpus() { for t in $(cat $1/cgroup.threads); do sed 's/.*) //' /proc/$t/stat | cut -d' ' -f37; done | sort | tr '\n' ' '; }
qemu="qemu-system-x86_64 -L /none -machine pc -accel tcg,thread=multi -m 16 -nodefaults -display none -bios /spin.bin"

mkfifo /tmp/m.in /tmp/m.out
cat /tmp/m.out >/tmp/said &
cosched run --vm --home llc:1 --weights 4:1000 --emulator-home llc:0 --iothread-home 0 -- \
	$qemu -smp 1,maxcpus=2 -object iothread,id=io1 -chardev pipe,id=m,path=/tmp/m -mon m 2>/tmp/err &
pid=$!
within '[ -d run-$pid/vcpu ] && [ $(count run-$pid/emulator) -gt 0 ]'
echo "it is QEMU: $(tr '\0' '\n' </proc/$pid/cmdline | head -n 1)"
echo "homes: $(cat run-$pid/vcpu/cosched.cpus_preferred.effective) $(cat run-$pid/emulator/cosched.cpus_preferred.effective) $(cat run-$pid/iothread/cosched.cpus_preferred.effective), weights $(cat run-$pid/vcpu/cosched.weights)"
within '[ $(count run-$pid/vcpu) = 1 ] && [ $(count run-$pid/iothread) = 1 ]'
grep -qx $pid run-$pid/emulator/cgroup.threads && echo "main thread: emulator"
echo 'device_add qemu64-x86_64-cpu,id=c1,socket-id=0,core-id=1,thread-id=0' >/tmp/m.in
within '[ $(count run-$pid/vcpu) = 2 ]'
echo "plugged in: yes"
echo 'info cpus' >/tmp/m.in
within 'grep -q "CPU #1: thread_id=" /tmp/said'
for t in $(sed -n 's/.*CPU #[01]: thread_id=\([0-9]*\).*/\1/p' /tmp/said); do grep -qx $t run-$pid/vcpu/cgroup.threads && echo "vCPU: vcpu"; done
sleep 2
at=$(counter run-$pid/vcpu preferred_usec); out=$(counter run-$pid/vcpu outside_usec)
sleep 3
at=$(($(counter run-$pid/vcpu preferred_usec) - at)); out=$(($(counter run-$pid/vcpu outside_usec) - out))
echo "ran at home: $((100 * at / (at + out + 1))) % of $(((at + out) / 1000)) ms, on CPUs $(cpus run-$pid/vcpu)"
echo quit >/tmp/m.in
status=0; wait $pid || status=$?
echo "status: $status $(grep -v kvmvapic.bin /tmp/err)"
within '[ ! -d run-$pid ]'
within '! pidof cosched >/dev/null'
echo "removed: yes"

# One that was killed, and one that goes to the background.
cosched run --vm --home llc:1 -- $qemu -smp 2 & pid=$!
within '[ -d run-$pid/vcpu ] && [ $(count run-$pid/emulator) -gt 0 ] && [ $(count run-$pid/vcpu) = 2 ]'
kill -9 $pid
status=0; wait $pid || status=$?
within '[ ! -d run-$pid ]'
echo "killed: $status"
cosched run --vm --cluster back --home llc:1 -- $qemu -smp 2 -daemonize -pidfile /tmp/pid
within '[ $(count back/vcpu) = 2 ] && grep -qx $(cat /tmp/pid) back/emulator/cgroup.threads'
echo "in the background: yes"
cosched run --vm --cluster back --home llc:1 -- $qemu 2>&1 | grep -o "has threads of another machine"
kill $(cat /tmp/pid)
within '! pidof qemu-system-x86_64 >/dev/null'

# By names: a script is not given a monitor, and one that runs is asked nothing.
printf '#!/bin/sh\nexec %s -smp 2 -name x,debug-threads=on\n' "$qemu" >/tmp/machine; chmod +x /tmp/machine
cosched run --vm --cluster names --home llc:1 -- /tmp/machine & pid=$!
within '[ $(count names/vcpu) = 2 ] && grep -qx $pid names/emulator/cgroup.threads'
echo "by names: yes"
kill $pid; wait $pid || true
$qemu -smp 2 -name x,debug-threads=on & pid=$!
within 'grep -q "CPU 1/TCG" /proc/$pid/task/*/comm'
cosched create late
cosched move --vm late $pid
echo "moved: $(count late/vcpu) $(grep -cx $pid late/emulator/cgroup.threads)"
kill $pid; wait $pid || true
`

// The vCPUs of a real QEMU are in the cluster that they should be in, and run at its home, and so
// are vCPUs that are plugged in later.
func TestIntegrationVM(t *testing.T) {
	image := firmware(t)
	out := sh(t, "paper", machineScript, func(c *vm.Config) {
		c.MemoryMB = 2048
		c.Programs = []string{command(t), "qemu-system-x86_64"}
		// Debian has the emulation of CPUs in a module, which QEMU looks for relative to its own
		// path.
		c.Files = []vm.File{{Path: "/spin.bin", Host: image}, {Path: "/modules/accel-tcg-x86_64.so", Host: "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so"}}
		c.Env = []string{"QEMU_MODULE_DIR=/modules"}
		// QEMU in QEMU is slow.
		c.Timeout = 20 * time.Minute
	})
	t.Log(out)
	want := regexp.MustCompile(`^it is QEMU: qemu-system-x86_64
homes: 2-3 0-1 0, weights 4 1000
main thread: emulator
plugged in: yes
vCPU: vcpu
vCPU: vcpu
ran at home: (9\d|100) % of \d{3,} ms, on CPUs [23] [23] 
status: 0 
removed: yes
killed: 137
in the background: yes
has threads of another machine
by names: yes
moved: 2 1
$`)
	if !want.MatchString(out) {
		t.Errorf("the guest says\n%s\nwant\n%s", out, want)
	}
}
