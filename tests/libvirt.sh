# shellcheck shell=dash
# Runs machines with libvirt, with the hook of contrib/libvirt, and prints a line for each step.
cg=/sys/fs/cgroup

# within waits for a condition, for up to three minutes of the guest's time.
within() {
	i=0
	until eval "$1"; do
		i=$((i + 1))
		if [ $i -ge 1800 ]; then
			echo "never: $1" >&2
			journalctl -b --no-pager | tail -60 >&2
			tail -n 20 /var/log/libvirt/qemu/*.log >&2
			exit 1
		fi
		sleep 0.1
	done
}

# define defines a machine in libvirt: it has two vCPUs, one of them unplugged, that do nothing but
# compute.
define() { # NAME ATTRIBUTES
	cat >/tmp/domain.xml <<END
<domain type='qemu'>
  <name>$1</name>
  <metadata><cosched:vm xmlns:cosched="urn:cosched:libvirt:1" $2/></metadata>
  <memory unit='MiB'>16</memory>
  <vcpu current='1'>2</vcpu>
  <iothreads>1</iothreads>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader type='rom'>/spin.bin</loader></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
END
	virsh -q define /tmp/domain.xml
}

# at prints the cgroup above the cgroups of a machine's threads.
at() {
	sed -n 's|^0::\(.*\)/emulator$|\1|p' "/proc/$(cat "/run/libvirt/qemu/$1.pid")/cgroup"
}

# homes prints the homes of a machine's parts, and the weights of vCPU 0.
homes() {
	for part in . vcpu0 vcpu1 emulator iothread1; do
		[ -d "$cg$(at "$1")/$part" ] || continue
		printf '%s %s, ' "$part" "$(cat "$cg$(at "$1")/$part/cosched.cpus_preferred" 2>/dev/null || echo disabled)"
	done
	cat "$cg$(at "$1")/vcpu0/cosched.weights" 2>/dev/null || echo "no weights"
}
counter() { sed -n "s/^$2 //p" "$1/cosched.stat"; }
# Not by unit: of a process that has ended when the journal looks at it, it knows none.
logged() { journalctl --no-pager -o cat -t cosched-libvirt-hook | grep -qF "$1"; }

chmod 644 /spin.bin
chmod 755 /etc/libvirt/hooks/qemu.d/cosched
systemctl start systemd-machined libvirtd
echo "libvirt $(virsh version --daemon | sed -n 's/^Running against daemon: \([0-9]*\).*/\1/p')"

define shop 'home="llc:1" weights="4:1000" emulator-home="llc:0" iothread-home="0"'
virsh -q start shop
echo "cgroup: $(at shop)"
echo "started: $(homes shop)"
vcpu=$cg$(at shop)/vcpu0
sleep 1
home=$(counter "$vcpu" preferred_usec) out=$(counter "$vcpu" outside_usec)
sleep 3
home=$(($(counter "$vcpu" preferred_usec) - home)) out=$(($(counter "$vcpu" outside_usec) - out))
echo "ran at home: $((100 * home / (home + out + 1))) %"

virsh -q setvcpus shop 2 --live
# shellcheck disable=SC2016 # for eval
within '[ -d "$cg$(at shop)/vcpu1" ]'
echo "plugged in: $(homes shop)"
virsh dumpxml shop | cosched libvirt-hook shop reconnect
echo "called again: $(homes shop)"

cosched set "$vcpu" --home inherit
systemctl restart libvirtd
# shellcheck disable=SC2016
within '[ "$(cat "$vcpu/cosched.cpus_preferred")" = 2-3 ]'
echo "libvirt restarted: $(homes shop)"
virsh -q destroy shop
# shellcheck disable=SC2016
within '[ ! -d "$vcpu" ]'
echo "destroyed: gone"

define all 'home="auto" emulator-home="1"'
virsh -q start all
echo "auto: $(homes all)"
virsh -q destroy all

define wrong 'home="llc:7"'
virsh -q start wrong
echo "wrong: $(virsh domstate wrong | head -n 1), $(homes wrong)"
within 'logged "this machine has no llc 7"'
echo "wrong: logged"
virsh -q destroy wrong
define never 'home="llc:7" fail="yes"'
virsh -q start never 2>&1 | grep -o "this machine has no llc 7"
echo "must not: $(virsh domstate never | head -n 1)"
