//go:build integration

package tests

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"cosched.io/cosched/internal/vm"
)

//go:embed containers.sh
var containersScript string

// bundle is the configuration of a container with a home, as an OCI runtime reads it.
func bundle(driver string) []byte {
	type m = map[string]any
	namespaces := []m{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}
	linux := m{"resources": m{"unified": m{"cosched.cpus_preferred": "0-1", "cosched.weights": "4 1000"}}}
	switch driver {
	case "cgroupfs":
		linux["cgroupsPath"] = "/cosched-test/NAME"
	case "systemd":
		linux["cgroupsPath"] = "system.slice:cosched:NAME"
	}
	linux["namespaces"] = namespaces
	text, err := json.MarshalIndent(m{
		"ociVersion": "1.0.2",
		"process":    m{"user": m{"uid": 0, "gid": 0}, "args": []string{"/bin/sleep", "1000"}, "env": []string{"PATH=/bin"}, "cwd": "/", "noNewPrivileges": true},
		"root":       m{"path": "/rootfs"},
		"mounts":     []m{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":      linux,
	}, "", "  ")
	if err != nil {
		panic(err) // impossible: these are maps of strings and numbers
	}
	return text
}

// patchedCrun is the path of the crun of contrib/crun in the guest, which has Debian's too.
const patchedCrun = "/usr/local/lib/cosched/crun"

// container is the outcome for one container with a home.
type container struct {
	Suite, Who, Runtime, Driver, State, Result string
}

// containers returns the outcomes in a suite of Debian, and the versions of its programs.
func containers(t *testing.T, suite, mode string) (outcomes []container, versions map[string]string) {
	t.Helper()
	out := inDebian(t, suite, containersScript, func(c *vm.Config) {
		c.Command = []string{"sh", "-c", containersScript, "sh", mode}
		if mode == "implicit" {
			c.Cmdline = append(c.Cmdline, "cgroup.cosched=implicit")
		}
		for _, driver := range []string{"cgroupfs", "systemd"} {
			c.Files = append(c.Files, vm.File{Path: "/oci/" + driver + ".json", Data: bundle(driver)})
		}
		if suite == "trixie" { // contrib/crun is for trixie
			contrib(t, "crun")(c)
		}
	})
	versions = map[string]string{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(f) == 3 && f[0] == "version":
			versions[f[1]] = f[2]
		case len(f) >= 5 && (f[4] == "works" || strings.Contains(f[4], "`cosched` is not available")):
			runtime := strings.Replace(f[1], patchedCrun, "crun (patched)", 1)
			outcomes = append(outcomes, container{suite, f[0], runtime, f[2], f[3], strings.Join(f[4:], "|")})
		default:
			t.Errorf("a container neither has its home nor is refused for it: %s", line)
		}
	}
	return outcomes, versions
}

// columns are the states of the system in which a container is started, in the order of the
// table.
var columns = []struct{ state, about string }{
	{"nothing", "enabled nowhere"}, {"delegated", "enabled nowhere"}, {"enabled", "enabled above"}, {"implicit", "implicit"},
}

const page = "Documentation/admin-guide/cosched-containers.rst"

// The lines of the page between which the table is.
const (
	tableBegins = ".. What follows is written by make containers-table.\n"
	tableEnds   = "\n.. End of what make containers-table writes.\n"
)

// table returns the text of the page's table: a line for each program, user and driver.
func table(outcomes []container, versions map[string]map[string]string) string {
	type row struct{ suite, runtime, who, driver string }
	var rows []row
	cells := map[row]map[string]string{}
	for _, o := range outcomes {
		r := row{o.Suite, o.Runtime, o.Who, o.Driver}
		if cells[r] == nil {
			rows = append(rows, r)
			cells[r] = map[string]string{}
		}
		for _, c := range columns {
			if c.state == o.State {
				cells[r][c.about] = "no"
				if o.Result == "works" {
					cells[r][c.about] = "yes"
				}
			}
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.suite, b.suite), cmp.Compare(a.runtime, b.runtime), cmp.Compare(a.who, b.who), cmp.Compare(a.driver, b.driver))
	})
	lines := [][]string{{"Debian", "runtime", "as", "cgroups by", "enabled nowhere", "enabled above", "implicit"}}
	for _, r := range rows {
		name := r.runtime
		for _, tool := range []string{"podman", "crun", "runc"} {
			name = strings.Replace(name, tool, tool+" "+versions[r.suite][tool], 1)
		}
		lines = append(lines, []string{r.suite, name, r.who, r.driver, cells[r]["enabled nowhere"], cells[r]["enabled above"], cells[r]["implicit"]})
	}
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, cell := range l {
			width[i] = max(width[i], len(cell))
		}
	}
	var text strings.Builder
	line := func(cells []string) {
		var b strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&b, "%-*s  ", width[i], cell)
		}
		text.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	var rule []string
	for _, w := range width {
		rule = append(rule, strings.Repeat("=", w))
	}
	line(rule)
	line(lines[0])
	line(rule)
	for _, l := range lines[1:] {
		line(l)
	}
	line(rule)
	return text.String()
}

// What the page says works with each runtime does work, and nothing else does. The whole
// outcome, with the messages of those runtimes that refuse, is in out/containers.json.
func TestIntegrationContainers(t *testing.T) {
	var mu sync.Mutex
	var all []container
	versions := map[string]map[string]string{}
	eachSuite(t, func(t *testing.T, suite string) {
		for _, mode := range []string{"ordinary", "implicit"} {
			outcomes, v := containers(t, suite, mode)
			mu.Lock()
			all, versions[suite] = append(all, outcomes...), v
			mu.Unlock()
		}
	})
	if t.Failed() {
		return
	}
	slices.SortStableFunc(all, func(a, b container) int { return cmp.Compare(a.Suite, b.Suite) })
	text, err := json.MarshalIndent(map[string]any{"versions": versions, "outcomes": all}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "containers.json"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, page)
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(old), tableBegins)
	was, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	is := "\n" + table(all, versions)
	if was == is {
		return
	}
	if os.Getenv("COSCHED_TABLE") == "" {
		t.Fatalf("%s says\n%s\nbut it is\n%s\nmake containers-table writes that", page, was, is)
	}
	if err := os.WriteFile(file, []byte(before+tableBegins+is+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
