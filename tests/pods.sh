# shellcheck shell=dash disable=SC2016,SC2034 # strings are for eval and containers, variables for the script that follows
# Functions that run pods with homes with cosched-nri and containerd or CRI-O, as the argument
# says: the beginning of nri.sh, balloons.sh and kubelet.sh.
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

# start starts the runtime, with the driver that makes the cgroups of its pods.
start() { # DRIVER
	case $kind in
	containerd)
		# In containerd, the handler of each pod decides on the driver.
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

# connected waits until the plugin has connected once more: then it has been told of all pods, and
# is asked about new ones.
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

# policy changes the plugin's policy, in one step.
policy() { # TEXT
	printf '%s\n' "$1" >/policy/new
	mv /policy/new /policy/policy.yaml
}

# shares are the CPU shares that a container requests: an eighth of a CPU.
shares=128
# then_ is what a container does after its first commands, unless a script changes it.
then_='exec $b sleep 100000'
# busy is a value for then_: the program computes while its file exists.
busy='while :; do while [ -e /out/busy-$pod ]; do :; done; $b sleep 1; done'

# pod runs a pod, and first makes its cgroup, as the kubelet would. Each container first of all
# writes the homes in force in the pod's cgroup and in those of its containers, and where it may
# run.
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

# begin starts the runtime, with an image, but not the plugin.
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

# look finds the process of a pod's busy program, where it may run, the cgroup whose home it has
# (the pod's or the container's), the home that this cgroup asks for, and the home in force.
look() { # POD
	pid=$(pgrep -o -f "^/bin/busybox sh -c pod=$1;")
	on=$(sed -n 's/Cpus_allowed_list:\t//p' "/proc/$pid/status")
	at=$cg$(sed 's/^0:://' "/proc/$pid/cgroup")
	grep -q . "${at%/*}/cosched.cpus_preferred" && at=${at%/*}
	asks=$(cat "$at/cosched.cpus_preferred")
	has=$(cat "$at/cosched.cpus_preferred.effective")
}

# runs tells where a pod's busy program is when it runs: it compares the times at home and outside
# over two seconds.
runs() {
	sleep 2
	was=$(grep _usec "$at/cosched.stat")
	sleep 2
	{ echo "$was" && grep _usec "$at/cosched.stat"; } | awk '{ t[$1] = $2 - t[$1] }
		END { home = t["preferred_usec"]; away = t["outside_usec"]; print(home > 9 * away ? "at home" : away > 9 * home ? "outside" : home " us at home, " away " outside") }'
}

# place prints where the busy program of a pod may run, which home it asks for and has, and
# whether it is there when it runs. Which home the kernel chooses is not known. But within a
# minute, the time between two looks of the plugin, the program has to run at home.
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
