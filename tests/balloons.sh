# shellcheck shell=dash disable=SC2016,SC2034,SC2154 # for eval, and for pods.sh, which comes before this
# Runs pods in a balloon, which is inflated and deflated, and prints each time where they are.

# inflator starts the plugin balloons, which the runtime asks before cosched's plugin.
balloons=0
inflator() {
	balloons --config-file /nri/balloons.yaml --nri-plugin-name balloons --nri-plugin-index 10 --state-dir /tmp/balloons >>/tmp/balloons.log 2>&1 &
	inflator=$!
	balloons=$((balloons + 1))
	within '[ "$(grep -c "10-balloons[^-]* connected" /tmp/runtime.log)" = $balloons ]'
}

# size waits until the balloon has one CPU or two.
size() { # CPUS
	list="[0-9]"
	[ "$1" = 1 ] || list="[0-9]-[0-9]"
	within "grep -q '^Cpus_allowed_list:.$list\$' /proc/$(pgrep -o -f "^/bin/busybox sh -c pod=one;")/status"
}

begin
inflator
plugin
then_=$busy shares=1024

pod one runc-systemd '"cosched.io/cpus-preferred": "llc:0"' main ""
within '[ -s /out/one-main-allowed ]'
echo "one CPU"
place one

pod two runc-systemd '"cosched.io/cpus-preferred": "1-2"' main ""
within '[ -s /out/two-main-allowed ]'
size 2
echo "inflated, for another pod"
place one
place two

shares=2
pod three runc-systemd '' main ""
within '[ -s /out/three-main-allowed ]'
echo "with a third pod, that requests nothing"
place three

cri "$socket" remove two
size 1
echo "deflated, as it has ended"
place one
place three

policy '{default: x, classes: {x: {cpusPreferred: llc:1}}}'
within 'grep -q "this policy is now in force" /tmp/nri.log'
echo "with another policy of cosched"
place one
place three

sed -i 's/minCPUs: 1/minCPUs: 2/' /nri/balloons.yaml
size 2
echo "with another configuration of balloons"
place one
place three

kill -9 "$inflator"
inflator
kill -9 "$plugin"
plugin
echo "with both started again"
place one
place three
kill "$inflator" "$plugin" "$runtime"
