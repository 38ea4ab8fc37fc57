//go:build integration

package tests

import (
	"path/filepath"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// libcgroup's tools handle cosched like any other controller, and the example of their
// configuration works.
func TestIntegrationLibcgroup(t *testing.T) {
	const script = `
cd /sys/fs/cgroup
echo "$(dpkg-query -f '${Version}' -W cgroup-tools)" >&2
cgcreate -g cosched:/web -g cosched:/web/front
cgset -r cosched.cpus_preferred=2-3 web
cgset -r cosched.weights="4 1000" web
cgset -r cosched.cpus_preferred=3 web/front
echo "files: $(cat web/cosched.cpus_preferred web/cosched.weights web/front/cosched.cpus_preferred.effective | xargs)"
echo "cgget: $(cgget -n -v -r cosched.cpus_preferred -r cosched.weights web | xargs)"
echo "cgget -g: $(cgget -n -g cosched web/front | grep -c '^cosched\.')"
echo "cgexec: $(cgexec -g cosched:web/front cat /proc/self/cgroup)"
cgset -r cosched.cpus_preferred=9000 web 2>/tmp/err && echo "cgset takes a CPU that cannot be"
echo "refused: $(cat web/cosched.cpus_preferred)"
cgdelete -g cosched:/web/front -g cosched:/web
ls -d web 2>/dev/null && echo "cgdelete leaves it"

cgconfigparser -l /etc/cgconfig.conf
for group in shop reports; do
	echo "$group: $(cat $group/cosched.cpus_preferred $group/cosched.weights | xargs)"
done

mkdir -p /etc/cgconfig.d # Debian's package has none, and cgrulesengd wants it
cgrulesengd -q
within() {
	i=0
	until "$@"; do
		i=$((i+1))
		[ $i -lt 600 ] || { echo "never: $*" >&2; cat /proc/$pid/cgroup >&2; exit 1; }
		sleep 0.1
	done
}
runuser -u user -- sleep 1000 & 
within pidof sleep >/dev/null
pid=$(pidof sleep)
within grep -q '^0::/reports$' /proc/$pid/cgroup
runuser -u user -- tail -f /dev/null &
within pidof tail >/dev/null
pid=$(pidof tail)
within grep -q '^0::/shop$' /proc/$pid/cgroup
echo "rules: reports and shop"
`
	const want = `files: 2-3 4 1000 3
cgget: 2-3 4 1000
cgget -g: 5
cgexec: 0::/web/front
refused: 2-3
shop: auto 100 150
reports: 2-3 100 100
rules: reports and shop
`
	eachSuite(t, func(t *testing.T, suite string) {
		out := inDebian(t, suite, script, func(c *vm.Config) {
			for _, name := range []string{"cgconfig.conf", "cgrules.conf"} {
				c.Files = append(c.Files, vm.File{Path: "/etc/" + name, Host: filepath.Join(root, "contrib/libcgroup", name)})
			}
		})
		if out != want {
			t.Errorf("libcgroup's tools give\n%s\nwant\n%s", out, want)
		}
	})
}
