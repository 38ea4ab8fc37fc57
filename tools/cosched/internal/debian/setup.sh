#!/bin/sh
# Makes a fresh Debian, whose root is $1, into one for guests that run one program.
set -eu
root=$1

# The same in all guests, and no questions at the first boot.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
echo cosched >"$root/etc/hostname"
echo "127.0.0.1 localhost cosched" >"$root/etc/hosts"
echo "/dev/vda / ext4 rw 0 0" >"$root/etc/fstab"

# Opening the console hangs up whoever writes to it: the kernel's messages and the
# guest's output are on serial lines. The others only take time.
for unit in serial-getty@ttyS0.service getty@tty1.service console-getty.service \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
	systemd-firstboot.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
	netavark-dhcp-proxy.service netavark-dhcp-proxy.socket systemd-modules-load.service \
	systemd-pcrmachine.service systemd-tpm2-setup.service systemd-tpm2-setup-early.service; do
	ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# Tests start what they need.
for unit in containerd.service podman.service podman.socket podman-auto-update.timer podman-restart.service \
	libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirt-guests.service; do
	find "$root/etc/systemd/system" -path '*.wants/*' -name "$unit" -delete
done

# A user for delegated cgroups, with numbers for the users of containers.
chroot "$root" useradd -u 1000 -m -s /bin/sh user
grep -q ^user: "$root/etc/subuid" || echo user:100000:65536 >>"$root/etc/subuid"
grep -q ^user: "$root/etc/subgid" || echo user:100000:65536 >>"$root/etc/subgid"

# Nothing is there to update at boot.
touch "$root/etc/.updated" "$root/var/.updated"
