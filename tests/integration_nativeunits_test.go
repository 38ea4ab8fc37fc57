//go:build integration

package tests

import "testing"

// nativeScript prints a line for each step.
const nativeScript = `
cg=/sys/fs/cgroup
units=/etc/systemd/system
say() { echo "$*"; }
# values UNIT'S CGROUP: both, as the kernel has them
values() { echo "$(cat $cg/$1/cosched.cpus_preferred 2>&1)|$(cat $cg/$1/cosched.weights 2>&1)"; }
shown() { systemctl show -p CoschedCPUsPreferred -p CoschedWeights "$1" | sort | xargs -d '\n'; }
# until CONDITION: for up to two minutes of the guest's time
within() {
	i=0
	until eval "$1"; do
		i=$((i+1))
		[ $i -lt 1200 ] || { echo "never: $1" >&2; journalctl -b --no-pager | tail -40 >&2; exit 1; }
		sleep 0.1
	done
}
logged() { within "journalctl --no-pager -o cat -u $1 | grep -qF \"$2\""; }

say "systemd is the patched one: $(systemctl show -P Version | grep -c '^257[.].*-cosched$') $(systemctl --version | grep -c cosched)"

# A unit's file, before its first instruction.
cat >$units/u.service <<END
[Service]
ExecStart=/bin/sh -c 'cat $cg/system.slice/u.service/cosched.weights >/run/first; exec sleep infinity'
CoschedCPUsPreferred=2 3
CoschedWeights=4 1000
CPUWeight=40
END
systemctl daemon-reload
systemctl start u.service
within '[ -s /run/first ]'
say "file: $(values system.slice/u.service), at its first instruction $(cat /run/first)"
say "show: $(shown u.service)"
systemd-run -q --slice=other.slice --unit=ot sleep infinity
say "enabled in: $(cd $cg && grep -l cosched cgroup.subtree_control */cgroup.subtree_control | xargs)"

# Changes while it runs.
systemctl set-property --runtime u.service CoschedCPUsPreferred=0 CoschedWeights=7:8
say "set-property --runtime: $(values system.slice/u.service), $(shown u.service), in $(grep -l Cosched /run/systemd/system.control/u.service.d/* | xargs -n 1 basename | xargs)"
systemctl set-property u.service CoschedCPUsPreferred=auto
say "set-property: $(values system.slice/u.service), in $(grep -h Cosched $units.control/u.service.d/*)"
systemctl revert u.service 2>/dev/null
systemctl stop u.service
systemctl start u.service
say "reverted: $(values system.slice/u.service)"

# Transient units.
systemd-run -q --unit=tr -p CoschedCPUsPreferred=3 -p "CoschedWeights=100 100" sleep infinity
say "systemd-run: $(values system.slice/tr.service)"
systemd-run -q --scope --unit=sc -p CoschedCPUsPreferred=auto sleep infinity &
within '[ -d $cg/system.slice/sc.scope ]'
within '[ "$(values system.slice/sc.scope)" = "auto|100 150" ]'
say "systemd-run --scope: yes"

# A slice, and what its units inherit.
printf '[Slice]\nCoschedCPUsPreferred=0-1\nCoschedWeights=50 60\n' >$units/pool.slice
printf '[Service]\nSlice=pool.slice\nExecStart=/bin/sleep infinity\nCoschedCPUsPreferred=1\nCoschedWeights=1 2\n' >$units/in.service
printf '[Service]\nSlice=pool.slice\nExecStart=/bin/sleep infinity\nCoschedCPUsPreferred=0\nCoschedWeights=5 6\n' >$units/sibling.service
systemctl daemon-reload
systemctl start in.service sibling.service
say "slice: $(values pool.slice), $(shown pool.slice), in it $(values pool.slice/in.service) and $(values pool.slice/sibling.service)"
systemctl set-property --runtime in.service CoschedCPUsPreferred= CoschedWeights=
say "set-property to nothing: $(values pool.slice/in.service), home $(cat $cg/pool.slice/in.service/cosched.cpus_preferred.effective), $(shown in.service)"
systemctl set-property --runtime pool.slice CoschedCPUsPreferred=2-3
say "set-property of the slice: $(values pool.slice), home of its unit $(cat $cg/pool.slice/in.service/cosched.cpus_preferred.effective)"
mkdir -p $units/sibling.service.d
printf '[Service]\nCoschedCPUsPreferred=\n' >$units/sibling.service.d/nothing.conf
systemctl daemon-reload
systemctl restart sibling.service
say "a drop-in with nothing: $(values pool.slice/sibling.service), home $(cat $cg/pool.slice/sibling.service/cosched.cpus_preferred.effective)"
systemctl set-property --runtime sibling.service CoschedWeights=
within '[ ! -e $cg/pool.slice/sibling.service/cosched.weights ]'
say "nobody asks any more: disabled"

# Reloads keep values. Those of a changed file come with the next start: whether systemd
# writes them before is the same for all its settings.
systemctl daemon-reexec
say "reexec: $(systemctl show -P Version | grep -c cosched), $(values system.slice/u.service), $(values system.slice/tr.service), $(values pool.slice), $(shown tr.service)"
sed -i 's/^CoschedWeights=.*/CoschedWeights=9 10/; s/^CPUWeight=.*/CPUWeight=50/' $units/u.service
systemctl daemon-reload
say "reload: $(shown u.service), $(values system.slice/tr.service), $(values pool.slice), $(shown tr.service)"
now="$(cat $cg/system.slice/u.service/cpu.weight) $(cat $cg/system.slice/u.service/cosched.weights)"
case $now in
"40 4 1000" | "50 9 10") say "of a changed file: as CPUWeight=" ;;
*) say "of a changed file: $now" ;;
esac
echo "after a reload alone: $now" >&2
systemctl restart u.service
say "restart: $(values system.slice/u.service)"

# What makes no sense.
refused() { if systemctl set-property u.service "$1" 2>/tmp/err; then say "taken: $1"; else say "refused: $(cat /tmp/err)"; fi; }
refused CoschedCPUsPreferred=llc:0
refused CoschedWeights=0:5
refused "CoschedWeights=5"
say "it keeps $(values system.slice/u.service), $(ls $units.control/u.service.d 2>/dev/null | wc -l) files"
printf '[Service]\nExecStart=/bin/sleep infinity\nCoschedCPUsPreferred=1\nCoschedCPUsPreferred=3-1\nCoschedWeights=100\n' >$units/bad.service
systemctl daemon-reload
systemctl start bad.service
logged bad.service "$units/bad.service:4: CoschedCPUsPreferred='3-1' is neither a CPU list nor 'auto', ignoring"
logged bad.service "$units/bad.service:5: CoschedWeights='100' is not two integers from 1 to 10000, ignoring"
say "in a file: logged, $(values system.slice/bad.service)"
systemd-run -q --unit=far -p CoschedCPUsPreferred=500 sleep infinity
logged far.service "Failed to set 'cosched.cpus_preferred' attribute"
say "a CPU that cannot be: logged, $(systemctl is-active far.service) with $(values system.slice/far.service)"
systemd-analyze verify $units/u.service $units/pool.slice >/tmp/verify 2>&1 && say "verify: '$(cat /tmp/verify)'"
systemd-analyze verify $units/bad.service 2>&1 | grep -o "bad.service:[45]: Cosched[A-Za-z]*" | sort -u

# By its name, as other controllers.
systemd-run -q --unit=dl -p Delegate=cosched sleep infinity
printf '[Slice]\nDisableControllers=cosched\n' >$units/without.slice
systemctl daemon-reload
systemd-run -q --unit=wo --slice=without.slice -p CoschedCPUsPreferred=1 sleep infinity
say "Delegate=: $(grep -o cosched $cg/system.slice/dl.service/cgroup.controllers), DisableControllers=: $(grep -c cosched $cg/without.slice/wo.service/cgroup.controllers || true)"

# Units of a user's systemd, where the controller is delegated to it.
mkdir -p $units/user@.service.d
printf '[Service]\nDelegate=pids memory cpu cosched\n' >$units/user@.service.d/delegate.conf
systemctl daemon-reload
loginctl enable-linger user
within '[ -S /run/user/1000/bus ]'
runuser -u user -- env XDG_RUNTIME_DIR=/run/user/1000 systemd-run -q --user --unit=mine -p CoschedCPUsPreferred=1 -p CoschedWeights=3:4 sleep infinity
say "a user's: $(values user.slice/user-1000.slice/user@1000.service/app.slice/mine.service)"

# systemd's own tests.
export SYSTEMD_TEST_DATA=/usr/lib/systemd/tests/testdata
for test in cgroup-mask cgroup-setup; do
	status=0
	/usr/lib/systemd/tests/unit-tests/test-$test >/tmp/log 2>&1 || status=$?
	say "test-$test: $status, $(grep '^/[*] test_\(cgroup_mask\|cosched_\)' /tmp/log | tr -d '/* ' | sort | xargs)"
	[ $status = 0 ] || tail -30 /tmp/log >&2
done
systemctl --failed --plain --no-legend
`

// A systemd with the patches of contrib/systemd has homes and weights as settings of its own:
// in files, on the command line and on the bus, across reloads, for services, scopes, slices
// and the units of a user.
func TestIntegrationNativeUnits(t *testing.T) {
	out := inDebian(t, "trixie", nativeScript, contrib(t, "systemd"))
	const want = `systemd is the patched one: 1 1
file: 2-3|4 1000, at its first instruction 4 1000
show: CoschedCPUsPreferred=2-3 CoschedWeights=4 1000
enabled in: cgroup.subtree_control system.slice/cgroup.subtree_control
set-property --runtime: 0|7 8, CoschedCPUsPreferred=0 CoschedWeights=7 8, in 50-CoschedCPUsPreferred.conf 50-CoschedWeights.conf
set-property: auto|7 8, in CoschedCPUsPreferred=auto
reverted: 2-3|4 1000
systemd-run: 3|100 100
systemd-run --scope: yes
slice: 0-1|50 60, CoschedCPUsPreferred=0-1 CoschedWeights=50 60, in it 1|1 2 and 0|5 6
set-property to nothing: |50 60, home 0-1, CoschedCPUsPreferred= CoschedWeights=
set-property of the slice: 2-3|50 60, home of its unit 2-3
a drop-in with nothing: |5 6, home 2-3
nobody asks any more: disabled
reexec: 1, 2-3|4 1000, 3|100 100, 2-3|50 60, CoschedCPUsPreferred=3 CoschedWeights=100 100
reload: CoschedCPUsPreferred=2-3 CoschedWeights=9 10, 3|100 100, 2-3|50 60, CoschedCPUsPreferred=3 CoschedWeights=100 100
of a changed file: as CPUWeight=
restart: 2-3|9 10
refused: Failed to set unit properties on u.service: CoschedCPUsPreferred= is neither a CPU list nor 'auto': llc:0
refused: Failed to parse CoschedWeights value: 0:5
refused: Failed to parse CoschedWeights value: 5
it keeps 2-3|9 10, 0 files
in a file: logged, 1|100 150
a CPU that cannot be: logged, active with |100 150
verify: ''
bad.service:4: CoschedCPUsPreferred
bad.service:5: CoschedWeights
Delegate=: cosched, DisableControllers=: 0
a user's: 1|3 4
test-cgroup-mask: 0, test_cgroup_mask
test-cgroup-setup: 0, test_cosched_cpus_preferred test_cosched_weights
`
	if out != want {
		t.Errorf("the guest says\n%s\nwant\n%s", out, want)
	}
}
