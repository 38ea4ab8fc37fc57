# shellcheck shell=dash disable=SC2154 # for pods.sh, which comes before this
# Runs pods with homes, with each runtime and cgroup driver, and prints a line for each step.
begin
plugin

for handler in runc-cgroupfs crun-cgroupfs runc-systemd crun-systemd; do
	if [ "$kind" = crio ] && [ "${handler#*-}" != "$driver" ]; then
		kill "$runtime"
		wait "$runtime" || true
		start "${handler#*-}"
		connected
	fi
	find "$cg" -depth -name cgroup.subtree_control | while read -r file; do echo -cosched >"$file" 2>/dev/null || true; done
	n=$(echo $handler | tr -d -)
	pod "w$n" $handler '"cosched.io/cpus-preferred": "llc:1", "cosched.io/weights": "4 1000"' main ""
	within "[ -s /out/w$n-main ]"
	echo "$handler: whole: $(cat "/out/w$n-main"), weights $(cat "$cg$at/cosched.weights")"
	pod "a$n" "$handler" '"cosched.io/cpus-preferred": "llc:1", "cpus-preferred.cosched.io/container.side": "0"' main "" side ""
	within "[ -s /out/a$n-side-allowed ]"
	echo "$handler: apart: $(sort -u "/out/a$n-side-below" | xargs)"
done

before=$cg/kubepods.slice/kubepods-podwruncsystemd.slice/cosched.cpus_preferred
kill -9 "$runtime"
start "$driver"
connected
pod restarted runc-systemd '"cosched.io/cpus-preferred": "llc:1"' main ""
within '[ -s /out/restarted-main ]'
echo "after a restart of the runtime: $(cat /out/restarted-main), before: $(cat "$before")"
# In the first domain, half a CPU is for the containers with a home apart from their pod's.
cosched-nri topology --json >/tmp/topology
echo "topology: $(sed -n 's/.*"\(name\|value\|available\)": "\(llc-.\|[0-9-]*m*\)".*/\2/p' /tmp/topology | xargs)"

kill -9 "$plugin"
pod late runc-systemd '' main ""
late=$cg$at/cosched.cpus_preferred
echo "without the plugin: $(grep . "$late" 2>/dev/null || echo nothing)"
plugin
# shellcheck disable=SC2016
within 'grep -q . "$late"'
echo "with the plugin again: $(cat "$late"), before: $(cat "$before")"
policy '{default: x, classes: {x: {cpusPreferred: llc:0}}}'
# shellcheck disable=SC2016
within 'grep -q "this policy is now in force" /tmp/nri.log && [ "$(cat "$late")" != auto ]'
echo "with another policy: $(cat "$late")"

pod refused runc-systemd '"cosched.io/cpus-preferred": "llc:9"' main ""
within '[ -s /out/refused-main ]'
[ "$(grep -c 'shop/refused: annotation cosched.io/cpus-preferred: home "llc:9"' /tmp/nri.log)" = 1 ] && line="one line"
echo "a refused value: runs, with $(cat /out/refused-main), $line"

pod cpuset runc-systemd '"cosched.io/cpus-preferred": "llc:1"' main 2
within '[ -s /out/cpuset-main-allowed ]'
echo "a cpuset: runs on $(sed 's/.*\t//' /out/cpuset-main-allowed), home $(cat /out/cpuset-main)"

# Two pods of one cluster, when either domain has room for one.
for name in one two; do
	pod "$name" runc-systemd '"cosched.io/cluster": "shop"' main ""
	within "[ -s /out/$name-main ]"
done
echo "a cluster: $(cat /out/one-main) $(cat /out/two-main)"

policy 'onError: fail'
# shellcheck disable=SC2016
within '[ "$(grep -c "this policy is now in force" /tmp/nri.log)" = 2 ]'
if pod not runc-systemd '"cosched.io/cpus-preferred": "llc:9"' main "" 2>/tmp/not; then
	echo "not without: runs"
elif grep -q "no llc 9" /tmp/not; then
	echo "not without: refused"
else
	cat /tmp/not
fi

kill "$plugin" "$runtime"
