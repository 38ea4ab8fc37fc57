# shellcheck shell=dash disable=SC2016,SC2034,SC2154 # for eval, and for pods.sh, which comes before this
# Runs pods by a kubelet without an API server and with the static CPU manager, and prints where
# they are before, while and after a pod has exclusive CPUs.

kubelet_() {
	kubelet --config /nri/kubelet.yaml --hostname-override node >>/tmp/kubelet.log 2>&1 &
	kubelet=$!
}

# static makes the kubelet run a pod. What the pod requests determines its class: if the requests
# are also the limits, and are whole CPUs, the pod has these CPUs exclusively.
static() { # NAME RESOURCES ANNOTATIONS
	cat >/tmp/pod.json <<-end
		{"apiVersion": "v1", "kind": "Pod",
		 "metadata": {"name": "$1", "namespace": "shop", "annotations": {$3}},
		 "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 1,
		  "containers": [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never", "resources": {$2},
		   "command": ["/bin/busybox", "sh", "-c", "pod=$1; b=/bin/busybox; $busy"],
		   "volumeMounts": [{"name": "out", "mountPath": "/out"}]}],
		  "volumes": [{"name": "out", "hostPath": {"path": "/out"}}]}}
	end
	mv /tmp/pod.json "/pods/$1.json"
}
some='"requests": {"cpu": "100m"}'
whole='"limits": {"cpu": "2", "memory": "64Mi"}'

# on waits until a pod may run on these CPUs.
on() { # NAME CPUS
	within "grep -q '^Cpus_allowed_list:.$2\$' /proc/\$(pgrep -o -f '^/bin/busybox sh -c pod=$1;')/status"
}

mkdir -p /pods
# On a node, containerd is a service with Delegate=yes, for which systemd enables the controller
# cpuset. Without such a service the kubelet does not start.
systemd-run --quiet --property=Delegate=yes sleep infinity
begin
plugin
kubelet_

static shared "$some" '"cosched.io/cpus-preferred": "1-2"'
static auto "$some" ''
on shared 0-3
on auto 0-3
echo "all in the pool"
place shared
place auto

static exclusive "$whole" '"cosched.io/cpus-preferred": "llc:1"'
on exclusive 2-3
on shared 0-1
on auto 0-1
echo "a pod with its own CPUs"
place exclusive
place shared
place auto

kill -9 "$kubelet"
kubelet_
within '[ "$(grep -c "Starting CPU manager" /tmp/kubelet.log)" = 2 ]'
kill -9 "$plugin"
plugin
# The CPU manager writes all cpusets again, within a second.
sleep 5
echo "after a restart of the kubelet and the plugin"
place exclusive
place shared
place auto

rm /pods/exclusive.json
on shared 0-3
on auto 0-3
echo "all in the pool again"
place shared
place auto

static elsewhere "$whole" '"cosched.io/cpus-preferred": "llc:0", "cosched.io/weights": "4 1000"'
on elsewhere 2-3
on shared 0-1
echo "a pod with its own CPUs and a home elsewhere"
place elsewhere
place shared
kill "$kubelet" "$plugin" "$runtime"
