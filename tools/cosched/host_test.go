package cosched_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

func TestMachine(t *testing.T) {
	h := coschedtest.Host(t)
	m, err := h.Machine()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.LLCs) != 2 || len(m.Cores) != 4 || m.Cores[1].String() != "2-3" || m.Sockets[1].String() != "4-7" || m.Possible.String() != "0-11" {
		t.Errorf("%+v", m)
	}
	if len(m.Nodes) != 2 || m.Nodes[1].CPUs.String() != "4-7" || m.Nodes[1].Distance[0] != 20 || m.Nodes[1].Distance[1] != 10 {
		t.Errorf("nodes %+v", m.Nodes)
	}
	// A kernel without NUMA, which also uses the old name of the file.
	nodes, topo := filepath.Join(h.Sys, "devices/system/node"), filepath.Join(h.Sys, "devices/system/cpu/cpu2/topology")
	if err := errors.Join(os.RemoveAll(nodes), os.Rename(filepath.Join(topo, "core_cpus_list"), filepath.Join(topo, "thread_siblings_list"))); err != nil {
		t.Fatal(err)
	}
	if m, err := h.Machine(); err != nil || len(m.Nodes) != 0 || len(m.Cores) != 4 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestParseHome(t *testing.T) {
	h := coschedtest.Host(t)
	for _, tc := range []struct{ spec, value string }{
		{"0-3,8", "0-3,8"},
		{" 3,1 ", "1,3"},
		{"", ""},
		{"inherit", ""},
		{"auto", "auto"},
		{"all", "all"},
		{"0-15:2/4", "0-15:2/4"},
		{"1,,2", "1,,2"}, // as the kernel accepts it
		{"0-3, 8", "0-3, 8"},
		{"0-3 8", "0-3 8"},
		{"llc:1", "4-7"},
		{"llc:0-1", "0-7"},
		{"node:0", "0-3"},
		{"socket:1", "4-7"},
		{"near:6", "4-7"},
		{"near:1,6", "0-7"},
		{"dev:eth0", "4-7"},
		{"dev:vda", "0-3"}, // by its node
		{"dev:vda1", "0-3"},
		{"dev:/dev/vda", "0-3"},
	} {
		if home, err := h.ParseHome(tc.spec); err != nil || home.Value != tc.value {
			t.Errorf("ParseHome(%q) = %q, %v; want %q", tc.spec, home.Value, err, tc.value)
		}
	}
	for _, tc := range []struct {
		spec   string
		status int
		says   string
	}{
		{"everything", cosched.ExitUsage, "is not a CPU list, llc:N"},
		{"3-1;", cosched.ExitUsage, "is not a CPU list"},
		{"3-1", cosched.ExitUsage, `range "3-1" runs backwards`},
		{"99999", cosched.ExitUsage, "CPU 99999 is above 65535"},
		{"0-", cosched.ExitUsage, `"" is not a CPU number`},
		{"-", cosched.ExitUsage, "is not a CPU list"},
		{"a", cosched.ExitUsage, `"a" is not a CPU number`},
		{"llc:", cosched.ExitUsage, `"" is not a number`},
		{"llc:x", cosched.ExitUsage, `"x" is not a number`},
		{"llc:2", cosched.ExitData, "no llc 2, only 0-1"},
		{"node:5", cosched.ExitData, "no node 5, only 0-1"},
		{"socket:2", cosched.ExitData, "no socket 2, only 0-1"},
		{"near:9", cosched.ExitData, "no online CPU 9, only 0-7"},
		{"dev:", cosched.ExitUsage, "is not a device's name"},
		{"dev:../net", cosched.ExitUsage, "is not a device's name"},
		{"dev:eth7", cosched.ExitData, "no device eth7"},
		{"dev:lo", cosched.ExitData, "neither"},
		{"dev:eth1", cosched.ExitData, "neither"}, // its node is unknown, on a machine with two nodes
	} {
		_, err := h.ParseHome(tc.spec)
		wantProblem(t, tc.spec, err, tc.status, tc.says)
	}
}

func TestCheckPossible(t *testing.T) {
	h := coschedtest.Host(t)
	check := func(spec string) error {
		t.Helper()
		home, err := h.ParseHome(spec)
		if err != nil {
			t.Fatal(err)
		}
		return h.CheckPossible(home)
	}
	for _, spec := range []string{"", "auto", "llc:1", "8-11", "all", "N", "0-11:2/4", "1,,2"} {
		if err := check(spec); err != nil {
			t.Errorf("%q: %v", spec, err)
		}
	}
	for _, spec := range []string{"4000", "3,12", "0-15:2/4", "20-N", "1,,12"} {
		wantProblem(t, spec, check(spec), cosched.ExitData, `"`+spec+`"`, "cannot have: it can have 0-11")
	}
	file := filepath.Join(h.Sys, "devices/system/cpu/possible")
	coschedtest.Replace(t, file, "0-3,8-11\n")
	wantProblem(t, "a gap", check("3-4"), cosched.ExitData, "it can have 0-3,8-11")
	if err := errors.Join(os.Remove(file), check("4000")); err != nil {
		t.Errorf("not known: %v", err)
	}
}

// wantProblem checks an error's status and text, and that it is one line.
func wantProblem(t *testing.T, what string, err error, status int, says ...string) {
	t.Helper()
	var p *cosched.Problem
	if !errors.As(err, &p) {
		t.Errorf("%s: %v, want a problem", what, err)
		return
	}
	if p.Status != status || strings.Contains(p.Text, "\n") {
		t.Errorf("%s: status %d, want %d: %s", what, p.Status, status, p.Text)
	}
	for _, s := range says {
		if !strings.Contains(p.Text, s) {
			t.Errorf("%s: %q does not say %q", what, p.Text, s)
		}
	}
}

func TestHasController(t *testing.T) {
	for _, tc := range []struct {
		name, controllers, cmdline string
		keep                       bool // keep the clusters that exist
		says                       string
	}{
		{"ordinary", "cpu cosched", "", false, ""},
		{"implicit, with cgroups", "cpu", "", true, ""},
		{"implicit, without", "cpu", "cgroup.cosched=implicit", false, ""},
		{"absent", "cpu", "quiet", false, `no cosched in "cpu": boot a kernel with CONFIG_CGROUP_COSCHED=y`},
		{"off", "cpu", "cgroup_disable=cosched", false, "boot without cgroup_disable=cosched"},
	} {
		h := coschedtest.Host(t)
		coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.controllers"), tc.controllers+"\n")
		coschedtest.Replace(t, filepath.Join(h.Proc, "cmdline"), tc.cmdline+"\n")
		if !tc.keep {
			if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
				t.Fatal(err)
			}
		}
		err := h.HasController()
		if tc.says == "" && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if tc.says != "" {
			wantProblem(t, tc.name, err, cosched.ExitUnavailable, h.Cgroup, tc.says)
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: a program cannot tell that there is no controller: %v", tc.name, err)
			}
		}
	}
	h := coschedtest.Host(t)
	h.Cgroup = t.TempDir()
	wantProblem(t, "not mounted", h.HasController(), cosched.ExitUnavailable, "mount -t cgroup2")
}

func TestBaseAndFind(t *testing.T) {
	h := coschedtest.Host(t)
	for name, want := range map[string]string{
		"shop":                 "cosched/shop",
		"shop/till":            "cosched/shop/till",
		h.Cgroup + "/a.slice/": "a.slice",
		h.Cgroup:               "",
	} {
		if g, err := h.Find(name); err != nil || string(g) != filepath.Join(h.Cgroup, want) {
			t.Errorf("Find(%q) = %s, %v; want %s", name, g, err, want)
		}
	}
	for _, name := range []string{"", ".", "a/..", "..", "../a", "a/../../b", "/etc", h.Cgroup + "x", h.Cgroup + "/../b", "a\nb"} {
		_, err := h.Find(name)
		wantProblem(t, name, err, cosched.ExitUsage, "below "+h.Cgroup)
	}
	// For a user, the base is in the highest cgroup above that the user may write to.
	h.Root = false
	h.Writable = func(path string) bool { return strings.Contains(path, "user@7.service") }
	if g, err := h.Find("shop"); err != nil || string(g) != filepath.Join(h.Cgroup, "user.slice/user@7.service/cosched/shop") {
		t.Errorf("a user's base: %s, %v", g, err)
	}
	h.Writable = func(string) bool { return false }
	_, err := h.Find("shop")
	wantProblem(t, "no delegation", err, cosched.ExitNoPerm, "app.scope/cgroup.procs", "systemd-run --user --scope")
	coschedtest.Replace(t, filepath.Join(h.Proc, "self/cgroup"), "0::/../../other\n")
	_, err = h.Find("shop")
	wantProblem(t, "outside of the namespace", err, cosched.ExitUnavailable, "outside of this cgroup namespace")
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(b))
}

// The controller is enabled down to the cluster, which is made together with the cgroups above it.
func TestCreate(t *testing.T) {
	h := coschedtest.Host(t)
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.subtree_control"), "")
	g, _ := h.Find("a/b")
	made, err := h.Create(g, false)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := h.Base()
	if !slices.Equal(made, []cosched.Group{base, base + "/a", g}) {
		t.Errorf("made %s", made)
	}
	for _, dir := range []string{"", "cosched", "cosched/a"} {
		if got := content(t, h.Cgroup, dir, "cgroup.subtree_control"); got != "+cosched" {
			t.Errorf("%s: subtree_control %q", dir, got)
		}
	}
	if !g.Enabled() {
		t.Error("not enabled")
	}
	_, err = h.Create(g, false)
	wantProblem(t, "again", err, cosched.ExitCantCreate, string(g), "is there already")
	if _, err := h.Create(g+"/c", true); err != nil || content(t, string(g), "c/cgroup.type") != "threaded" {
		t.Errorf("threaded: %v", err)
	}
	top, _ := h.Find("c")
	_, err = h.Create(top, true)
	wantProblem(t, "threaded beside others", err, cosched.ExitUsage, "CLUSTER/c")
}

// A cluster that another process makes meanwhile counts as an existing one.
func TestEnsure(t *testing.T) {
	h := coschedtest.Host(t)
	base, _ := h.Base()
	if g, made, err := h.Ensure("new/part", false); g != base+"/new/part" || !slices.Equal(made, []cosched.Group{base + "/new", g}) || err != nil {
		t.Errorf("%s, %v, %v", g, made, err)
	}
	if g, made, err := h.Ensure("new", false); g != base+"/new" || len(made) > 0 || err != nil {
		t.Errorf("%s, %v, %v", g, made, err)
	}
	// The other process makes it while the cluster itself, or a cgroup above it, is being made.
	for _, tc := range []struct {
		others, name string
		made         int
	}{{"a", "a", 0}, {"b/c", "b/c", 0}, {"d", "d/e", 1}} {
		h := coschedtest.Overtaken(h, tc.others)
		if g, made, err := h.Ensure(tc.name, false); string(g) != string(base)+"/"+tc.name || len(made) != tc.made || err != nil {
			t.Errorf("%s: %s, %v, %v", tc.name, g, made, err)
		}
	}
	refused := base + "/f"
	_, err := coschedtest.Overtaken(h, "f").Create(refused, false)
	wantProblem(t, "meanwhile", err, cosched.ExitCantCreate, string(refused), "is there already")
	if !refused.Enabled() {
		t.Error("it was removed: it is someone else's")
	}
	// The other process makes it between the check whether it exists and making it. The base of a
	// user is searched for each time.
	h.Root = false
	looks, other := 0, ""
	h.Writable = func(path string) bool {
		if !strings.HasSuffix(path, "user@7.service/cgroup.procs") {
			return strings.HasSuffix(path, "user@7.service")
		}
		if looks++; looks == 2 {
			other = filepath.Join(filepath.Dir(path), "cosched")
			if err := errors.Join(h.Mkdir(other), os.WriteFile(filepath.Join(other, "cgroup.subtree_control"), []byte("cosched\n"), 0o644), h.Mkdir(other+"/new")); err != nil {
				t.Error(err)
			}
		}
		return true
	}
	if g, made, err := h.Ensure("new", false); string(g) != other+"/new" || len(made) > 0 || err != nil {
		t.Errorf("%s, %v, %v", g, made, err)
	}
}

func TestCreateRefused(t *testing.T) {
	h := coschedtest.Host(t)
	mkdir := h.Mkdir
	for _, tc := range []struct {
		err    error
		status int
		says   string
	}{
		{syscall.EACCES, cosched.ExitNoPerm, "delegated to you"},
		{syscall.EAGAIN, cosched.ExitUnavailable, "cgroup.max.descendants"},
		{syscall.ENOSPC, cosched.ExitCantCreate, "no space"},
	} {
		h.Mkdir = func(path string) error { return &fs.PathError{Op: "mkdir", Path: path, Err: tc.err} }
		g, _ := h.Find("new")
		_, err := h.Create(g, false)
		wantProblem(t, tc.err.Error(), err, tc.status, string(g), tc.says)
	}
	h.Mkdir = mkdir
	// The cgroups that were made above it are removed if the rest fails.
	h.Mkdir = func(path string) error {
		if strings.HasSuffix(path, "/b") {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.EACCES}
		}
		return mkdir(path)
	}
	g := cosched.Group(filepath.Join(h.Cgroup, "a/b"))
	_, err := h.Create(g, false)
	wantProblem(t, "a/b", err, cosched.ExitNoPerm, string(g), "delegated to you")
	if _, err := os.Stat(filepath.Join(h.Cgroup, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a was left behind")
	}
}

// If the controller cannot be enabled, the message names the command that enables it.
func TestNotEnabled(t *testing.T) {
	h := coschedtest.Host(t)
	for _, dir := range []string{"user.slice", "user.slice/user@7.service"} {
		// A directory in place of the file: it cannot be written.
		file := filepath.Join(h.Cgroup, dir, "cgroup.subtree_control")
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(dir string) string { return filepath.Join(h.Cgroup, dir, "cgroup.subtree_control") }
	want := "as root, echo +cosched | tee " + file("user.slice") + " " + file("user.slice/user@7.service")
	g := cosched.Group(filepath.Join(h.Cgroup, "user.slice/user@7.service/app.scope"))
	_, err := h.Existing(string(g), false)
	wantProblem(t, "read", err, cosched.ExitUnavailable, "cosched is not enabled on this path", want)
	_, err = h.Existing(string(g), true)
	wantProblem(t, "enabled", err, cosched.ExitUnavailable, want)
	_, err = h.Existing("nothing", true)
	wantProblem(t, "absent", err, cosched.ExitNoInput, "cosched/nothing: no such cgroup", "cosched create")
	_, err = h.Existing(h.Cgroup, true)
	wantProblem(t, "root", err, cosched.ExitUsage, "is the root")
}

func TestSetHome(t *testing.T) {
	h := coschedtest.Host(t)
	shop, _ := h.Existing("shop", true)
	night, _ := h.Existing("night", true)
	set := func(g cosched.Group, spec string, force bool) (string, error) {
		home, err := h.ParseHome(spec)
		if err != nil {
			t.Fatal(err)
		}
		return h.SetHome(g, home, force)
	}
	if note, err := set(shop, "llc:1", false); err != nil || note != "" || content(t, string(shop), "cosched.cpus_preferred") != "4-7" {
		t.Errorf("llc:1: %q, %v", note, err)
	}
	if note, err := set(shop, "7-8", false); err != nil || !strings.Contains(note, "only 7 are in") {
		t.Errorf("7-8: %q, %v", note, err)
	}
	if note, err := set(shop, "8-9", true); err != nil || !strings.Contains(note, "none of these CPUs is in") {
		t.Errorf("8-9, forced: %q, %v", note, err)
	}
	_, err := set(shop, "10", false)
	wantProblem(t, "offline", err, cosched.ExitData, `cosched.cpus_preferred: "10"`, "cpu/online, which is 0-7", "--force")
	if got := content(t, string(shop), "cosched.cpus_preferred"); got != "8-9" {
		t.Errorf("a refused home was written: %q", got)
	}
	_, err = set(night, "0-3", false)
	wantProblem(t, "outside of the cpuset", err, cosched.ExitData, "night/cpuset.cpus.effective, which is 4-5", "widen cpuset.cpus")
	// The home of the cluster above narrows it, or is used instead of it.
	if note, err := set(shop+"/till", "1-5", false); err != nil || !strings.Contains(note, "only 1-3 are in "+string(shop)+"/cosched.cpus_preferred.effective") {
		t.Errorf("1-5: %q, %v", note, err)
	}
	if note, err := set(shop+"/till", "4-5", false); err != nil || !strings.Contains(note, "none of these CPUs is in "+string(shop)) {
		t.Errorf("4-5: %q, %v", note, err)
	}
	if note, err := set(night, "0-4", false); err != nil || !strings.Contains(note, "only 4 are in") {
		t.Errorf("0-4: %q, %v", note, err)
	}
}

func TestMove(t *testing.T) {
	h := coschedtest.Host(t)
	shop, _ := h.Existing("shop", true)
	night, _ := h.Existing("night", true)
	if err := h.MoveProcess(night, 50); err != nil || content(t, string(night), "cgroup.procs") != "50" {
		t.Error(err)
	}
	wantProblem(t, "exited", h.MoveProcess(night, 99), cosched.ExitNoInput, "99: no such process")
	wantProblem(t, "exited", h.MoveThread(night+"/x", 99), cosched.ExitNoInput, "99: no such process")
	// A thread of a process that is in the cluster above, and one of a process elsewhere.
	if err := h.MoveThread(shop+"/till", 42); err != nil || content(t, string(shop), "till/cgroup.threads") != "42" || content(t, string(shop), "cgroup.procs") != "41" {
		t.Error(err)
	}
	if err := h.MoveThread(shop+"/till", 51); err != nil || content(t, string(shop), "till/cgroup.threads") != "51" || content(t, string(shop), "cgroup.procs") != "50" {
		t.Error(err)
	}
	if _, err := h.Create(shop+"/store", false); err != nil {
		t.Fatal(err)
	}
	if err := h.MoveThread(shop+"/store", 42); err != nil || content(t, string(shop), "store/cgroup.type") != "threaded" {
		t.Error(err)
	}
	// A cgroup that can only be threaded.
	coschedtest.Replace(t, string(shop)+"/till/cgroup.type", "domain invalid\n")
	if err := h.MoveProcess(shop+"/till", 50); err != nil || !strings.HasPrefix(content(t, string(shop), "till/cgroup.type"), "threaded") {
		t.Error(err)
	}
	coschedtest.Replace(t, string(shop)+"/till/cgroup.type", "threaded\n")
	// A part of a part: the process is put into the cluster, not in between.
	if _, err := h.Create(shop+"/till/left", true); err != nil {
		t.Fatal(err)
	}
	coschedtest.Replace(t, string(shop)+"/cgroup.procs", "")
	if err := h.MoveThread(shop+"/till/left", 51); err != nil || content(t, string(shop), "cgroup.procs") != "50" || content(t, string(shop), "till/left/cgroup.threads") != "51" {
		t.Error(err)
	}
	wantProblem(t, "no cluster above", h.MoveThread(night, 42), cosched.ExitUsage, "CLUSTER/night")
	top := cosched.Group(filepath.Join(h.Cgroup, "user.slice"))
	wantProblem(t, "below the root", h.MoveThread(top, 42), cosched.ExitUsage, "CLUSTER/user.slice")
	if got := content(t, h.Cgroup, "cgroup.procs"); got != "1" {
		t.Errorf("%s was put into the root", got)
	}
}

func TestRemove(t *testing.T) {
	h := coschedtest.Host(t)
	g := cosched.Group(filepath.Join(h.Cgroup, "cosched/empty"))
	// Plain directories, which can be removed like cgroups.
	if err := os.MkdirAll(string(g)+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, "children", h.Remove(g, false), cosched.ExitUnavailable, "1 cgroups below it", "--recursive")
	// If one of them cannot be removed, all stay as they are.
	for dir, text := range map[string]string{"": "populated 1\n", "a": "populated 0\n", "c": "populated 1\n"} {
		coschedtest.Append(t, filepath.Join(string(g), dir, "cgroup.events"), text)
	}
	coschedtest.Append(t, string(g)+"/c/cgroup.threads", "41\n42\n")
	wantProblem(t, "busy", h.Remove(g, true), cosched.ExitUnavailable, string(g)+"/c has 2 threads: stop their processes")
	if _, err := os.Stat(string(g) + "/a/b"); err != nil {
		t.Error(err)
	}
	coschedtest.Replace(t, string(g)+"/cgroup.events", "populated 0\n")
	coschedtest.Replace(t, string(g)+"/c/cgroup.threads", "")
	if err := h.Remove(g, true); err != nil {
		t.Error(err)
	}
	wantProblem(t, "absent", h.Remove(g, true), cosched.ExitNoInput, string(g), "no such cgroup")
	wantProblem(t, "root", h.Remove(cosched.Group(h.Cgroup), true), cosched.ExitUsage, "root")
}

// Clusters of commands that have ended are removed, those of running commands are kept.
func TestRunCluster(t *testing.T) {
	h := coschedtest.Host(t)
	base, _ := h.Base()
	for _, name := range []string{"run-41", "run-98", "run-98/soft-0", "run-99", "run-99/soft-0", "run-99.2", "run-41.3", "run-x", "run-x.2", "run-99.x"} {
		if err := os.Mkdir(filepath.Join(string(base), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody that 98 started is still there, and in none of its parts now.
	events := filepath.Join(string(base), "run-98/cgroup.events")
	coschedtest.Append(t, events, "populated 1\nfrozen 0\n")
	g, _, err := h.RunCluster(41)
	if err != nil || g != base+"/run-41.2" {
		t.Errorf("made %s, %v", g, err)
	}
	for name, stays := range map[string]bool{"run-41": true, "run-98/soft-0": true, "run-99": false, "run-99.2": false, "run-41.3": true, "run-x": true,
		"run-x.2": true, "run-99.x": true, "run-41.2": true} {
		if _, err := os.Stat(filepath.Join(string(base), name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTree(t *testing.T) {
	h := coschedtest.Host(t)
	base, _ := h.Base()
	tree, err := h.Tree(base)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cosched.Flat(tree) {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "night shop shop/till" {
		t.Errorf("clusters %s", got)
	}
	if c := tree[1]; c.Home != "0-3" || c.Weights != [2]int{4, 1000} || c.Threads != 2 || c.Stat.HomeChanges != 2 || len(c.Children) != 1 {
		t.Errorf("%+v", c)
	}
	// A cluster that is removed while it is shown: the file is gone together with its directory.
	if err := os.Remove(filepath.Join(string(base), "night/cosched.stat")); err != nil {
		t.Fatal(err)
	}
	if tree, err = h.Tree(base); err != nil || len(tree) != 1 {
		t.Errorf("%v, %v", tree, err)
	}
	coschedtest.Replace(t, filepath.Join(string(base), "shop/cosched.stat"), "preferred_usec many\n")
	if _, err = h.Tree(base); err == nil || !strings.Contains(err.Error(), "cosched.stat") {
		t.Errorf("a damaged file: %v", err)
	}
}
