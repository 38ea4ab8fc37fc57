#!/bin/busybox sh
# The guest's first process: sets the guest up, runs /coslab/run, hands its output
# and exit status to the host, and powers off.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=linux
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm /dev/mqueue /tmp /run /root /var/tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t mqueue mqueue /dev/mqueue
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
ln -s /proc/self/fd /dev/fd 2>/dev/null
ifconfig lo 127.0.0.1 up
chmod 1777 /var/tmp

# The host names its ports; the kernel numbers them.
port() {
	for name in /sys/class/virtio-ports/*/name; do
		if [ "$(cat "$name")" = "$1" ]; then
			echo "/dev/$(basename "$(dirname "$name")")"
			return
		fi
	done
	echo "coslab: the guest has no port $1" >/dev/console
	poweroff -f
}
out=$(port coslab.stdout)
err=$(port coslab.stderr)
status=$(port coslab.status)

setsid sh /coslab/run </dev/null >"$out" 2>"$err"
echo $? >"$status"
poweroff -f
