# shellcheck shell=dash
# Runs pods with homes by containerd and cosched-nri, and prints a line for each step. The
# kubelet's part is to make the cgroup of a pod.
cg=/sys/fs/cgroup
socket=/run/containerd/containerd.sock

# within waits for a condition, for up to three minutes of the guest's time.
within() {
	i=0
	until eval "$1"; do
		i=$((i + 1))
		if [ $i -ge 1800 ]; then
			echo "never: $1" >&2
			tail -n 40 /tmp/nri.log /tmp/containerd.log >&2
			exit 1
		fi
		sleep 0.1
	done
}

containerd_() {
	containerd --config /nri/containerd.toml >>/tmp/containerd.log 2>&1 &
	containerd=$!
}

# connected waits until the plugin has been told of all pods so often, and is asked of more.
connections=0
connected() {
	connections=$((connections + 1))
	# shellcheck disable=SC2016 # for eval
	within '[ "$(grep -c "90-cosched[^-]* connected" /tmp/containerd.log)" = $connections ]'
}

plugin() {
	cosched-nri --policy /policy/policy.yaml 2>>/tmp/nri.log &
	plugin=$!
	connected
}

# pod runs one. Each container writes first of all what is in force in the pod's cgroup, in
# those of its containers, and where it may run. It requests an eighth of a CPU.
pod() { # NAME HANDLER ANNOTATIONS [CONTAINER CPUSET]...
	name=$1 handler=$2 annotations=$3
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
	containers=
	while [ $# -gt 0 ]; do
		first="b=/bin/busybox; cd /host$at; \$b cat cosched.cpus_preferred.effective >/out/$name-$1; \$b cat */cosched.cpus_preferred.effective >/out/$name-$1-below; \$b grep Cpus_allowed_list /proc/self/status >/out/$name-$1-allowed; exec \$b sleep 100000"
		containers="$containers${containers:+, }{\"Name\": \"$1\", \"Command\": \"$first\", \"Cpus\": \"$2\", \"Shares\": 128}"
		shift 2
	done
	echo "{\"Name\": \"$name\", \"Namespace\": \"shop\", \"UID\": \"$name\", \"CgroupParent\": \"$at\", \"Handler\": \"$handler\", \"Image\": \"localhost/busybox:1\",
		\"Annotations\": {$annotations}, \"Containers\": [$containers]}" >"/tmp/$name.json"
	cri $socket "/tmp/$name.json"
}

mkdir -p /out /policy
echo "default: auto" >/policy/policy.yaml
containerd_
within 'ctr version >/dev/null 2>&1'
# containerd 2 imports by a service that has no snapshotter native.
ctr -n k8s.io images import --local --snapshotter native /nri/image.tar >&2
within 'ctr -n k8s.io images ls | grep -q io.cri-containerd.image=managed'
plugin

for handler in runc-cgroupfs runc-systemd crun-cgroupfs crun-systemd; do
	find $cg -depth -name cgroup.subtree_control | while read -r file; do echo -cosched >"$file" 2>/dev/null || true; done
	n=$(echo $handler | tr -d -)
	pod "w$n" $handler '"cosched.io/cpus-preferred": "llc:1", "cosched.io/weights": "4 1000"' main ""
	within "[ -s /out/w$n-main ]"
	echo "$handler: whole: $(cat "/out/w$n-main"), weights $(cat "$cg$at/cosched.weights")"
	pod "a$n" "$handler" '"cosched.io/cpus-preferred": "llc:1", "cpus-preferred.cosched.io/container.side": "0"' main "" side ""
	within "[ -s /out/a$n-side-allowed ]"
	echo "$handler: apart: $(sort -u "/out/a$n-side-below" | xargs)"
done

before=$cg/kubepods.slice/kubepods-podwruncsystemd.slice/cosched.cpus_preferred
kill -9 $containerd
within 'grep -q "connection was closed" /tmp/nri.log'
containerd_
connected
pod restarted runc-systemd '"cosched.io/cpus-preferred": "llc:1"' main ""
within '[ -s /out/restarted-main ]'
echo "after a restart of containerd: $(cat /out/restarted-main), before: $(cat "$before")"
# Of the first domain, half a CPU is for the containers that are apart.
cosched-nri topology --json >/tmp/topology
echo "topology: $(sed -n 's/.*"\(name\|value\|available\)": "\(llc-.\|[0-9-]*m*\)".*/\2/p' /tmp/topology | xargs)"

kill -9 $plugin
pod late runc-systemd '' main ""
late=$cg$at/cosched.cpus_preferred
echo "without the plugin: $(grep . "$late" 2>/dev/null || echo nothing)"
plugin
# shellcheck disable=SC2016
within 'grep -q . "$late"'
echo "with the plugin again: $(cat "$late"), before: $(cat "$before")"
printf 'default: x\nclasses: {x: {cpusPreferred: llc:0}}\n' >/policy/policy.yaml
# shellcheck disable=SC2016
within 'grep -q "this policy holds now" /tmp/nri.log && [ "$(cat "$late")" != auto ]'
echo "with another policy: $(cat "$late")"

pod refused runc-systemd '"cosched.io/cpus-preferred": "llc:9"' main ""
within '[ -s /out/refused-main ]'
[ "$(grep -c 'shop/refused: annotation cosched.io/cpus-preferred: home "llc:9"' /tmp/nri.log)" = 1 ] && line="one line"
echo "a refused value: runs, with $(cat /out/refused-main), $line"

pod cpuset runc-systemd '"cosched.io/cpus-preferred": "llc:1"' main 2
within '[ -s /out/cpuset-main-allowed ]'
echo "a cpuset: runs on $(sed 's/.*\t//' /out/cpuset-main-allowed), home $(cat /out/cpuset-main)"

# Two of one cluster, where either domain has room for one.
for name in one two; do
	pod "$name" runc-systemd '"cosched.io/cluster": "shop"' main ""
	within "[ -s /out/$name-main ]"
done
echo "a cluster: $(cat /out/one-main) $(cat /out/two-main)"

printf 'onError: fail\n' >/policy/policy.yaml
# shellcheck disable=SC2016
within '[ "$(grep -c "this policy holds now" /tmp/nri.log)" = 2 ]'
if pod not runc-systemd '"cosched.io/cpus-preferred": "llc:9"' main "" 2>/tmp/not; then
	echo "not without: runs"
elif grep -q "no llc 9" /tmp/not; then
	echo "not without: refused"
else
	cat /tmp/not
fi

kill $plugin $containerd
