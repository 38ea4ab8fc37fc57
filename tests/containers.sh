# shellcheck shell=dash
# Runs containers with a home, with each runtime and each way to manage cgroups, and
# prints a line for each: WHO|RUNTIME|DRIVER|STATE|works or why not.
# $1 is the mode in which the kernel was booted: ordinary or implicit.
mode=$1
run=0
runtimes="crun runc"
patched=/usr/local/lib/cosched/crun # of contrib/crun
[ ! -e $patched ] || runtimes="$runtimes $patched"

mkdir -p /rootfs/bin /rootfs/proc /rootfs/dev /rootfs/sys /rootfs/tmp /rootfs/etc /rootfs/run
cp /bin/busybox /rootfs/bin
ln -sf busybox /rootfs/bin/sleep

# withdraw disables the controller everywhere, in the innermost cgroups first.
withdraw() {
	find /sys/fs/cgroup -depth -name cgroup.subtree_control | while read -r file; do
		echo -cosched >"$file" 2>/dev/null
	done
}

# grant enables the controller for the children of the root and of each cgroup on a path.
grant() {
	at=/sys/fs/cgroup
	echo +cosched >$at/cgroup.subtree_control
	for part in $(echo "$1" | tr / ' '); do
		at=$at/$part
		mkdir -p "$at"
		echo +cosched >"$at/cgroup.subtree_control"
	done
}

# result prints the outcome for a container, according to the values in its cgroup.
result() { # CASE PIDFILE LOG
	i=0
	until [ -s "$2" ] || [ $i -ge 100 ]; do
		i=$((i + 1))
		sleep 0.1
	done
	at=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(cat "$2" 2>/dev/null)/cgroup" 2>/dev/null)
	values=$(cat "$at/cosched.cpus_preferred" "$at/cosched.weights" 2>/dev/null | xargs)
	if [ "$values" = "0-1 4 1000" ]; then
		echo "$1|works"
	elif [ -s "$2" ]; then
		echo "$1|runs in $at with: $values"
	else
		echo "$1|$(grep . "$3" | tail -n 1)"
	fi
	[ -s "$2" ] && kill -9 "$(cat "$2")"
}

# as runs a command as root, or as the user in a delegated cgroup of its own.
as() { # WHO COMMAND...
	who=$1
	shift
	if [ "$who" = root ]; then
		"$@"
		return
	fi
	runuser -u user -- env XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus \
		systemd-run --user --quiet --collect --wait --pipe -p Delegate=yes -p KillMode=process --unit "test-$run" --working-directory=/tmp "$@"
}

# oci runs a bundle, with the configuration for the driver.
oci() { # root RUNTIME DRIVER STATE
	run=$((run + 1))
	bundle=/tmp/bundle-$run
	mkdir $bundle
	cp "/oci/$3.json" $bundle/config.json
	sed -i "s/NAME/test-$run/g" $bundle/config.json
	flag=
	[ "$3" = systemd ] && flag=--systemd-cgroup
	# shellcheck disable=SC2086 # without a flag there must be no word
	$2 $flag run -d --bundle $bundle --pid-file $bundle/pid c$run >$bundle/log 2>&1 </dev/null
	result "$1|$2|$3|$4" $bundle/pid $bundle/log
}

podman_() { # WHO RUNTIME DRIVER STATE
	run=$((run + 1))
	dir=/tmp/podman-$run
	mkdir $dir
	chmod 777 $dir
	as "$1" podman --events-backend=none --cgroup-manager="$3" --runtime "$2" run -d --network=none --log-driver=k8s-file --pidfile=$dir/pid \
		--cgroup-conf=cosched.cpus_preferred=0-1 --cgroup-conf="cosched.weights=4 1000" --rootfs /rootfs sleep 1000 >$dir/log 2>&1 </dev/null
	result "$1|podman with $2|$3|$4" $dir/pid $dir/log
}

# prepare puts the cgroups into the state that an administrator left them in.
prepare() { # WHO STATE
	[ "$mode" = ordinary ] || return 0
	withdraw
	case $1-$2 in
	root-enabled)
		for at in system.slice machine.slice libpod_parent cosched-test; do
			grant $at
		done
		;;
	user-delegated)
		# The user's cgroup has the files; the user may enable the controller below it.
		grant user.slice/user-1000.slice
		;;
	user-enabled)
		grant user.slice/user-1000.slice/user@1000.service/user.slice
		;;
	esac
}

# all runs each runtime with each function of WITH, for each driver and in each state.
all() { # WHO WITH DRIVERS STATES
	for state in $4; do
		for driver in $3; do
			for runtime in $runtimes; do
				for with in $2; do
					prepare "$1" "$state"
					$with "$1" "$runtime" "$driver" "$state"
				done
			done
		done
	done
}

for tool in crun runc podman; do
	echo "version|$tool|$($tool --version | sed -n "1s/^[a-z ]* \([0-9][0-9.]*\).*/\1/p")"
done
systemctl start machine.slice
loginctl enable-linger user
i=0
until [ -S /run/user/1000/bus ] || [ $i -ge 600 ]; do
	i=$((i + 1))
	sleep 0.1
done
if [ "$mode" = ordinary ]; then
	all root "oci podman_" "cgroupfs systemd" "nothing enabled"
	all user podman_ systemd "delegated enabled"
else
	all root "oci podman_" "cgroupfs systemd" implicit
	all user podman_ systemd implicit
fi
