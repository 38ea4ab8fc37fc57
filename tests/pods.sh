# shellcheck shell=dash disable=SC2016,SC2034 # strings are for eval and containers, variables for what comes after this
# What runs pods with homes by containerd or CRI-O, which the argument says, and cosched-nri:
# the beginning of nri.sh, balloons.sh and kubelet.sh.
cg=/sys/fs/cgroup
kind=$1

# within waits for a condition, for up to three minutes of the guest's time.
within() {
	i=0
	until eval "$1"; do
		i=$((i + 1))
		if [ $i -ge 1800 ]; then
			echo "never: $1" >&2
			tail -n 40 /tmp/*.log >&2
			exit 1
		fi
		sleep 0.1
	done
}

# start starts the runtime, whose pods have cgroups by a driver.
start() { # DRIVER
	case $kind in
	containerd)
		# A handler of it decides that for each pod.
		socket=/run/containerd/containerd.sock
		containerd --config /nri/containerd.toml >>/tmp/runtime.log 2>&1 &
		;;
	crio)
		socket=/run/crio/crio.sock
		crio --config /nri/crio.toml --config-dir "" --cgroup-manager "$1" >>/tmp/runtime.log 2>&1 &
		;;
	esac
	runtime=$! driver=$1
}

# connected waits until the plugin has been told of all pods so often, and is asked of more.
connections=0
connected() {
	connections=$((connections + 1))
	within '[ "$(grep -c "90-cosched[^-]* connected" /tmp/runtime.log)" = $connections ]'
}

plugin() {
	cosched-nri --policy /policy/policy.yaml 2>>/tmp/nri.log &
	plugin=$!
	connected
}

# policy changes that of the plugin, at once.
policy() { # TEXT
	printf '%s\n' "$1" >/policy/new
	mv /policy/new /policy/policy.yaml
}

# shares are what a container requests: an eighth of a CPU.
shares=128
# then_ is what a container does then, unless told otherwise.
then_='exec $b sleep 100000'
# busy is for then_: the program runs while there is a file.
busy='while :; do while [ -e /out/busy-$pod ]; do :; done; $b sleep 1; done'

# pod runs one; the kubelet's part is to make its cgroup. Each container writes first of all
# what is in force in the pod's cgroup, in those of its containers, and where it may run.
pod() { # NAME HANDLER ANNOTATIONS [CONTAINER CPUSET]...
	name=$1 handler=$2 runtime_handler=$2 annotations=$3
	shift 3
	case $handler in
	*-cgroupfs)
		at=/kubepods/pod$name
		mkdir -p "$cg$at"
		;;
	*-systemd)
		at=/kubepods.slice/kubepods-pod$name.slice
		systemctl start "kubepods-pod$name.slice"
		;;
	esac
	[ "$kind" = containerd ] || runtime_handler=${handler%-*}
	containers=
	while [ $# -gt 0 ]; do
		first="pod=$name; b=/bin/busybox; cd /host$at; \$b cat cosched.cpus_preferred.effective >/out/$name-$1; \$b cat */cosched.cpus_preferred.effective >/out/$name-$1-below; \$b grep Cpus_allowed_list /proc/self/status >/out/$name-$1-allowed; $then_"
		containers="$containers${containers:+, }{\"Name\": \"$1\", \"Command\": \"$first\", \"Cpus\": \"$2\", \"Shares\": $shares}"
		shift 2
	done
	echo "{\"Name\": \"$name\", \"Namespace\": \"shop\", \"UID\": \"$name\", \"CgroupParent\": \"$at\", \"Handler\": \"$runtime_handler\", \"Image\": \"localhost/busybox:1\",
		\"Annotations\": {$annotations}, \"Containers\": [$containers]}" >"/tmp/$name.json"
	cri "$socket" "/tmp/$name.json"
}

# begin starts the runtime, with an image, and not yet the plugin.
begin() {
	mkdir -p /out /policy
	policy 'default: auto'
	case $kind in
	containerd)
		start cgroupfs
		within 'ctr version >/dev/null 2>&1'
		# containerd 2 imports by a service that has no snapshotter native.
		ctr -n k8s.io images import --local --snapshotter native /nri/image.tar >&2
		within 'ctr -n k8s.io images ls | grep -q io.cri-containerd.image=managed'
		;;
	crio)
		podman --root /var/lib/containers/storage --storage-driver vfs load -i /nri/image.tar >&2
		start cgroupfs
		;;
	esac
}

# look finds the process of a pod's busy program, where it may run, the cgroup whose home it
# has, which is the pod's or the container's, and what is in force there.
look() { # POD
	pid=$(pgrep -o -f "^/bin/busybox sh -c pod=$1;")
	on=$(sed -n 's/Cpus_allowed_list:\t//p' "/proc/$pid/status")
	at=$cg$(sed 's/^0:://' "/proc/$pid/cgroup")
	grep -q . "${at%/*}/cosched.cpus_preferred" && at=${at%/*}
	asks=$(cat "$at/cosched.cpus_preferred")
	has=$(cat "$at/cosched.cpus_preferred.effective")
}

# runs tells where a pod's busy program is when it runs, by what two seconds add to the times.
runs() {
	sleep 2
	was=$(grep _usec "$at/cosched.stat")
	sleep 2
	{ echo "$was" && grep _usec "$at/cosched.stat"; } | awk '{ t[$1] = $2 - t[$1] }
		END { home = t["preferred_usec"]; away = t["outside_usec"]; print(home > 9 * away ? "at home" : away > 9 * home ? "outside" : home " us at home, " away " outside") }'
}

# place prints where the busy program of a pod may run, which home it asks for and has, and
# whether it is there when it runs. Which home the kernel chooses is not known, but it is of
# use, within a minute, since that often the plugin looks.
place() { # POD
	: >"/out/busy-$1"
	look "$1"
	where=$(runs)
	i=0
	while [ "$asks" = auto ] && [ "$where" != "at home" ] && [ $i -lt 30 ]; do
		i=$((i + 1))
		look "$1"
		where=$(runs)
	done
	rm "/out/busy-$1"
	if [ "$asks" = auto ]; then
		has="what the kernel chooses"
	fi
	echo "$1: on $on, asks for $asks, has $has, runs $where"
}
