//go:build integration

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// service builds coschedd, and returns its path and its unit file for a guest.
func service(t *testing.T) (string, []byte) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "coschedd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/coschedd")
	build.Dir = filepath.Join(root, "tools", "cosched")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building coschedd: %v\n%s", err, text)
	}
	unit, err := os.ReadFile(filepath.Join(root, "tools/cosched/systemd/coschedd.service"))
	if err != nil {
		t.Fatal(err)
	}
	return bin, []byte(strings.ReplaceAll(string(unit), "/usr/sbin/coschedd", "/usr/local/bin/coschedd"))
}

// unitsHead is what the scripts below have in common. It makes a template of units with both
// values, and gives unit 3 of the template a home of its own.
const unitsHead = `
say() { echo "$*"; }
cg=/sys/fs/cgroup
# until CONDITION: for up to two minutes of the guest's time
within() {
	i=0
	until eval "$1"; do
		i=$((i+1))
		[ $i -lt 1200 ] || { echo "never: $1" >&2; journalctl -u coschedd --no-pager | tail -30 >&2; exit 1; }
		sleep 0.1
	done
}
has() { [ "$(cat $cg/$1/cosched.cpus_preferred 2>/dev/null)|$(cat $cg/$1/cosched.weights 2>/dev/null)" = "$2" ]; }
cat >/etc/systemd/system/u@.service <<END
[Service]
ExecStart=/bin/sleep infinity
[X-Cosched]
CPUsPreferred=llc:0
Weights=4 1000
END
mkdir -p /etc/systemd/system/u@3.service.d
printf '[X-Cosched]\nCPUsPreferred=3\n' >/etc/systemd/system/u@3.service.d/x.conf
`

// systemdScript prints a line for each step. All of the text but the figures is known.
const systemdScript = `# Nobody else restarts a unit that often.
for unit in u@ coschedd; do
	mkdir -p /etc/systemd/system/$unit.service.d
	printf '[Unit]\nStartLimitIntervalSec=0\n' >/etc/systemd/system/$unit.service.d/often.conf
done
mkdir -p /etc/systemd/system/early.service.d /etc/systemd/system/pool.slice.d /run/systemd/system/tr-.service.d
printf '[X-Cosched]\nCPUsPreferred=2-3\nWeights=0 1\nCPUsPreferred=llc:9\n' >/etc/systemd/system/early.service.d/x.conf
printf '[Service]\nExecStart=/bin/sleep infinity\n' >/etc/systemd/system/early.service
printf '[X-Cosched]\nCPUsPreferred=auto\n' >/etc/systemd/system/pool.slice.d/x.conf
printf '[X-Cosched]\nCPUsPreferred=1\n' >/run/systemd/system/tr-.service.d/x.conf
systemctl daemon-reload
systemctl start early.service
[ -e $cg/system.slice/early.service/cosched.cpus_preferred ] && say "enabled by somebody else"

systemctl start coschedd
within 'has system.slice/early.service "2-3|100 150"'
say "before the service: yes"
systemd-run -q --unit=tr-1 sleep infinity
within 'has system.slice/tr-1.service "1|100 150"'
say "transient: yes"
systemd-run -q --slice=pool.slice --unit=in-pool sleep infinity
within 'has pool.slice "auto|100 150"'
systemd-run -q --scope --slice=pool.slice --unit=sc --property=Description=x sleep 1000 &
within '[ -d $cg/pool.slice/sc.scope ]'
say "slice: yes, its scope has its own: '$(cat $cg/pool.slice/sc.scope/cosched.cpus_preferred 2>/dev/null)'"
within 'journalctl --no-pager -u early.service | grep -q "x.conf:4: CPUsPreferred=llc:9: ignored"'
within 'journalctl --no-pager -u early.service | grep -q "x.conf:3: Weights=0 1: ignored"'
say "logged against the unit: yes"

systemctl start u@1.service
lost=0
for i in $(seq 1 100); do
	systemctl restart u@1.service
	[ $((i%5)) = 0 ] && systemctl restart coschedd
	i=0
	until has system.slice/system-u.slice/u@1.service "0-1|4 1000"; do
		i=$((i+1)); [ $i -lt 300 ] || { lost=$((lost+1)); break; }; sleep 0.1
	done
done
say "lost of 100 restarts and 20 of the service: $lost"
kill -9 $(systemctl show -P MainPID coschedd)
systemctl restart u@1.service
within 'has system.slice/system-u.slice/u@1.service "0-1|4 1000"'
say "after a crash: yes"

systemctl stop coschedd
printf '[Service]\nExecStart=/bin/sleep infinity\n' >/etc/systemd/system/u@.service
systemctl daemon-reload
systemctl start coschedd
within 'has system.slice/system-u.slice/u@1.service "|100 150"'
say "the setting is gone: yes"
printf '[X-Cosched]\nWeights=7 8\n' >>/etc/systemd/system/u@.service
systemctl daemon-reload
within 'has system.slice/system-u.slice/u@1.service "|7 8"'
systemctl daemon-reexec
printf '[X-Cosched]\nWeights=8 9\n' >>/etc/systemd/system/u@.service
systemctl daemon-reload
within 'has system.slice/system-u.slice/u@1.service "|8 9"'
say "reload, reexec: yes"

# What a user makes in a cgroup that is delegated is not looked at.
systemctl start user@1000.service
mkdir -p $cg/user.slice/user-1000.slice/user@1000.service/early.service
systemctl reload coschedd
systemctl restart early.service
within 'has system.slice/early.service "2-3|100 150"'
[ -e $cg/user.slice/user-1000.slice/user@1000.service/early.service/cosched.cpus_preferred ] && say "looked at what is delegated"
systemctl --failed --plain --no-legend
say "security: $(systemd-analyze security --no-pager coschedd | tail -1 | grep -o "[0-9]\.[0-9]")"
say "memory: $(systemctl show -P MemoryCurrent coschedd) bytes, CPU: $(systemctl show -P CPUUsageNSec coschedd) ns"
`

// manyScript starts 500 units at once, and prints what the kernel traced.
const manyScript = `
{ echo "[Unit]"; seq -f 'Wants=u@%g.service' 1 500; } >/etc/systemd/system/many.target
systemctl daemon-reload
systemctl start coschedd
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
cd /sys/kernel/tracing
echo 8192 >buffer_size_kb
echo 1 >events/cgroup/cgroup_attach_task/enable
echo 1 >events/cosched/cosched_home/enable
echo >trace
systemctl start many.target
within '[ $(ls -d $cg/system.slice/system-u.slice/u@*.service | wc -l) = 500 ]'
wrong() { n=0; for i in $(seq 1 500); do w=0-1; [ $i = 3 ] && w=3; has system.slice/system-u.slice/u@$i.service "$w|4 1000" || n=$((n+1)); done; echo $n; }
within '[ $(wrong) = 0 ]'
echo 0 >tracing_on
cat trace
`

// delays returns, for each unit's cgroup, how many microseconds its first task was there before
// the cgroup had a home; 0 if the home came first. Units without a home are left out.
func delays(trace string) (us []float64) {
	line := regexp.MustCompile(` (\d+\.\d+): (\w+): (.*)`)
	attach := regexp.MustCompile(`dst_id=(\d+) .*dst_path=\S*/u@\d+\.service`)
	home := regexp.MustCompile(`cgroup=(\d+)`)
	began, done := map[string]float64{}, map[string]float64{}
	first := func(of map[string]float64, id []string, at float64) {
		if _, ok := of[id[1]]; !ok {
			of[id[1]] = at
		}
	}
	for l := range strings.Lines(trace) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		at, _ := strconv.ParseFloat(m[1], 64)
		if a := attach.FindStringSubmatch(m[3]); a != nil && m[2] == "cgroup_attach_task" {
			first(began, a, at)
		} else if h := home.FindStringSubmatch(m[3]); h != nil && m[2] == "cosched_home" {
			first(done, h, at)
		}
	}
	for id, from := range began {
		if at, ok := done[id]; ok {
			us = append(us, max(0, (at-from)*1e6))
		}
	}
	slices.Sort(us)
	return us
}

// Units have the values that their files say, across restarts and after changes.
func TestIntegrationUnits(t *testing.T) {
	bin, unit := service(t)
	eachSuite(t, func(t *testing.T, suite string) {
		out := inDebian(t, suite, unitsHead+systemdScript, withService(bin, unit))
		t.Log(out)
		const want = "before the service: yes\ntransient: yes\nslice: yes, its scope has its own: ''\nlogged against the unit: yes\nlost of 100 restarts and 20 of the service: 0\nafter a crash: yes\nthe setting is gone: yes\nreload, reexec: yes\nsecurity: "
		if !strings.HasPrefix(out, want) {
			t.Errorf("the guest says\n%s\nwant\n%s", out, want)
		}
	})
}

// withService puts coschedd into a guest.
func withService(bin string, unit []byte) func(*vm.Config) {
	return func(c *vm.Config) {
		c.Programs = append(c.Programs, bin)
		c.Files = append(c.Files, vm.File{Path: "/etc/systemd/system/coschedd.service", Data: unit})
	}
}

// When 500 units start at once, each of them has its values at most 200 ms after its first task
// is there. The time is virtual, so that other work of the host changes nothing: each of 4 CPUs
// executes an instruction in a nanosecond.
func TestIntegrationUnitsAtOnce(t *testing.T) {
	const atMost = 200.0 // ms
	bin, unit := service(t)
	eachSuite(t, func(t *testing.T, suite string) {
		us := delays(inDebian(t, suite, unitsHead+manyScript, withService(bin, unit), func(c *vm.Config) { c.Virtual = &vm.VirtualTime{} }))
		if len(us) != 500 {
			t.Fatalf("%d units got a home", len(us))
		}
		last := us[len(us)-1] / 1e3
		t.Logf("from first task to home %.1f ms at most, median %.1f ms, nine of ten %.1f ms", last, us[len(us)/2]/1e3, us[len(us)*9/10]/1e3)
		if last > atMost {
			t.Errorf("a unit had its home %.1f ms after its first task, more than %.0f", last, atMost)
		}
	})
}
