package command

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedd/systemdtest"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/unitfile"
)

// unitHost is a machine with a systemd that runs web.service, reads its drop-ins when it
// reloads, and has coschedd running.
func unitHost(t *testing.T) (cosched.Host, *systemdtest.Systemd) {
	t.Helper()
	h := coschedtest.Host(t)
	path := []string{filepath.Join(h.Etc, "systemd/system"), filepath.Join(h.Run, "systemd/system")}
	sd := systemdtest.New(t, systemdtest.Bus(t), path...)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", sd.Address)
	t.Setenv("TMPDIR", t.TempDir())
	slice := filepath.Join(h.Cgroup, "system.slice")
	for _, g := range []string{slice, filepath.Join(slice, "web.service")} {
		if err := h.Mkdir(g); err != nil {
			t.Fatal(err)
		}
		coschedtest.Replace(t, filepath.Join(g, "cgroup.subtree_control"), "cosched\n")
	}
	fragment := filepath.Join(h.Etc, "systemd/system/web.service")
	coschedtest.Append(t, fragment, "[X-Cosched]\nCPUsPreferred=0-1\nWeights=1 2\n")
	reload := func() {
		files := unitfile.Lookup(path, "web.service")
		sd.Set("web.service", systemdtest.Unit{State: "loaded", Cgroup: "/system.slice/web.service", Fragment: files[0], DropIns: files[1:]})
		sd.Set("off.service", systemdtest.Unit{State: "loaded", DropIns: unitfile.Lookup(path, "off.service")})
	}
	reload()
	sd.OnReload(reload)
	sd.Set("coschedd.service", systemdtest.Unit{State: "loaded", Cgroup: "/system.slice/coschedd.service"})
	sd.Set("basic.target", systemdtest.Unit{State: "loaded"})
	sd.Set("masked.service", systemdtest.Unit{State: "masked"})
	return h, sd
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnitSet(t *testing.T) {
	h, sd := unitHost(t)
	web := filepath.Join(h.Cgroup, "system.slice/web.service")
	etc, run := filepath.Join(h.Etc, "systemd/system/web.service.d/50-cosched.conf"), filepath.Join(h.Run, "systemd/system/web.service.d/50-cosched.runtime.conf")
	for _, tc := range []struct {
		args          string
		etc, run      string
		home, weights string
		notes         string
	}{
		{"web CPUsPreferred=llc:1", "[X-Cosched]\nCPUsPreferred=llc:1\n", "none", "4-7", "1 2", ""},
		{"web.service Weights=4:1000", "[X-Cosched]\nCPUsPreferred=llc:1\nWeights=4:1000\n", "none", "4-7", "4 1000", ""},
		{"web.service CPUsPreferred=9 --runtime", "[X-Cosched]\nCPUsPreferred=llc:1\nWeights=4:1000\n", "[X-Cosched]\nCPUsPreferred=9\n", "9", "4 1000", `run/systemd/system/web.service.d/50-cosched.runtime.conf:2: ` + web + `/cosched.cpus_preferred: "9": none of these CPUs is in`},
		{"web CPUsPreferred= Weights=", "[X-Cosched]\nCPUsPreferred=\nWeights=\n", "[X-Cosched]\nCPUsPreferred=9\n", "9", "", "CPUsPreferred= of " + run + ":2 comes after " + etc + " and overrides it"},
		{"web CPUsPreferred= --runtime", "[X-Cosched]\nCPUsPreferred=\nWeights=\n", "[X-Cosched]\nCPUsPreferred=\n", "", "", ""},
	} {
		status, out, errs := call(h, append([]string{"unit", "set"}, strings.Fields(tc.args)...)...)
		if status != 0 || out != "" || tc.notes == "" && errs != "" || !strings.Contains(errs, tc.notes) {
			t.Errorf("%s: %d, %s%s", tc.args, status, out, errs)
		}
		if e, r := read(t, etc), read(t, run); e != tc.etc || r != tc.run {
			t.Errorf("%s: %q, %q", tc.args, e, r)
		}
		if home, weights := strings.TrimSpace(firstLine(read(t, filepath.Join(web, cosched.FilePreferred)))), firstLine(read(t, filepath.Join(web, cosched.FileWeights))); home != tc.home || weights != tc.weights {
			t.Errorf("%s: home %q, weights %q", tc.args, home, weights)
		}
	}
	if _, n, _ := sd.Counts(); n != 5 {
		t.Errorf("%d reloads", n)
	}
	// Only the type of a unit is not part of its name.
	sd.Set("php8.2-fpm.service", systemdtest.Unit{State: "loaded"})
	if status, _, errs := call(h, "unit", "set", "php8.2-fpm", "CPUsPreferred=auto"); status != 0 || read(t, filepath.Join(h.Etc, "systemd/system/php8.2-fpm.service.d/50-cosched.conf")) == "none" {
		t.Errorf("a name with a dot: %d, %s", status, errs)
	}
	// A unit that does not run, and a template, get files. If the service does not run, a note says so.
	sd.Set("coschedd.service", systemdtest.Unit{State: "loaded"})
	for _, name := range []string{"off.service", "t@.service"} {
		status, _, errs := call(h, "unit", "set", name, "CPUsPreferred=auto")
		if status != 0 || !strings.Contains(errs, "coschedd.service does not run: ") || read(t, filepath.Join(h.Etc, "systemd/system", name+".d/50-cosched.conf")) != "[X-Cosched]\nCPUsPreferred=auto\n" {
			t.Errorf("%s: %d, %s", name, status, errs)
		}
	}
}

// Drop-ins with and without --runtime are in force together. The drop-in in /run takes precedence
// for the settings that it has, and a setting that is overridden is noted.
func TestUnitRuntime(t *testing.T) {
	const etc, run = "etc/systemd/system/web.service.d/50-cosched.conf", "run/systemd/system/web.service.d/50-cosched.runtime.conf"
	type step struct{ args, home, weights, note string }
	for name, steps := range map[string][]step{
		"persistent, then runtime": {
			{"CPUsPreferred=llc:1", "4-7", "1 2", ""},
			{"CPUsPreferred=6-7 --runtime", "6-7", "1 2", ""},
			{"CPUsPreferred= --runtime", "", "1 2", ""},
		},
		"runtime, then persistent": {
			{"CPUsPreferred=6-7 --runtime", "6-7", "1 2", ""},
			{"CPUsPreferred=llc:1", "6-7", "1 2", "CPUsPreferred= of " + run + ":2 comes after " + etc + " and overrides it\n"},
			{"CPUsPreferred= --runtime", "", "1 2", ""},
			{"CPUsPreferred=llc:1", "", "1 2", "CPUsPreferred= of " + run + ":2 comes after " + etc + " and overrides it\n"},
		},
		"another setting": {
			{"CPUsPreferred=llc:1", "4-7", "1 2", ""},
			{"Weights=7:8 --runtime", "4-7", "7 8", ""},
			{"CPUsPreferred=5", "5", "7 8", ""},
			{"Weights=9:9", "5", "7 8", "Weights= of " + run + ":2 comes after " + etc + " and overrides it\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := unitHost(t)
			web, top := filepath.Join(h.Cgroup, "system.slice/web.service"), filepath.Dir(h.Etc)+"/"
			for _, s := range steps {
				status, _, errs := call(h, append([]string{"unit", "set", "web"}, strings.Fields(s.args)...)...)
				_, note, _ := strings.Cut(strings.ReplaceAll(errs, top, ""), ": note: ")
				home, weights := strings.TrimSpace(firstLine(read(t, filepath.Join(web, cosched.FilePreferred)))), firstLine(read(t, filepath.Join(web, cosched.FileWeights)))
				if status != 0 || note != s.note || home != s.home || weights != s.weights {
					t.Errorf("%s: %d, home %q, weights %q, %s", s.args, status, home, weights, errs)
				}
			}
		})
	}
	// A file that systemd does not read has no effect.
	h, _ := unitHost(t)
	coschedtest.Append(t, filepath.Join(h.Etc, "systemd/system/web.service.d", filepath.Base(run)), "[X-Cosched]\nCPUsPreferred=3\n")
	status, _, errs := call(h, "unit", "set", "web", "CPUsPreferred=6", "--runtime")
	if want := "systemd does not read " + filepath.Join(filepath.Dir(h.Run), run) + ": systemctl cat web.service shows"; status != 0 || !strings.Contains(errs, want) {
		t.Errorf("masked: %d, %s", status, errs)
	}
}

// firstLine reads the first line of a file. Files of cgroups need not be truncated when a shorter
// value is written, so these are not truncated either.
func firstLine(s string) string { l, _, _ := strings.Cut(s, "\n"); return l }

func TestUnitRefuses(t *testing.T) {
	h, sd := unitHost(t)
	sd.Set("-.slice", systemdtest.Unit{State: "loaded", Cgroup: "/"})
	broken := filepath.Join(h.Run, "systemd/system/web.service.d/50-cosched.runtime.conf")
	coschedtest.Append(t, broken, "[X-Cosched\n")
	for _, tc := range []struct {
		args   string
		status int
		says   string
	}{
		{"set web", cosched.ExitUsage, "requires at least 2 arg"},
		{"set web CPUsPreferred", cosched.ExitUsage, `"CPUsPreferred" is not a setting: give CPUsPreferred=VALUE or Weights=VALUE`},
		{"set web Nice=1", cosched.ExitUsage, `"Nice=1" is not a setting`},
		{"set web Weights=0:1", cosched.ExitData, "Weights=0:1: weights are two integers from 1 to 10000"},
		{"set web CPUsPreferred=llc:9", cosched.ExitData, "no llc 9, only 0-1"},
		{"set web CPUsPreferred=3-1", cosched.ExitData, `range "3-1" runs backwards`},
		{"set off CPUsPreferred=0-", cosched.ExitData, `CPUsPreferred=0-: home "0-" is not a CPU list`},
		{"set off CPUsPreferred=4000", cosched.ExitData, `home "4000" names a CPU that this machine cannot have: it can have 0-11`},
		{"set web CPUsPreferred=0-15:2/4", cosched.ExitData, `home "0-15:2/4" names a CPU that this machine cannot have`},
		{"set web CPUsPreferred=1\\", cosched.ExitUsage, "a value is one line"},
		{"set ../web.service CPUsPreferred=1", cosched.ExitUsage, "is not the name of a unit that has a cgroup"},
		{"set basic.target CPUsPreferred=1", cosched.ExitUsage, "is not the name of a unit that has a cgroup"},
		{"set none.service CPUsPreferred=1", cosched.ExitNoInput, "systemd knows no such unit"},
		{"set -- -.slice CPUsPreferred=1", cosched.ExitUsage, "-.slice is the root"},
		{"edit -- -.slice", cosched.ExitUsage, "-.slice is the root"},
		{"edit masked.service", cosched.ExitUnavailable, "masked.service is masked"},
		{"set web CPUsPreferred=1 --runtime", cosched.ExitData, broken + `: line 1: "[X-Cosched" is not a section header`},
	} {
		status, _, errs := call(h, append([]string{"unit"}, strings.Fields(tc.args)...)...)
		if status != tc.status || !strings.Contains(errs, tc.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %s", tc.args, status, errs)
		}
	}
	if _, n, _ := sd.Counts(); n != 0 || read(t, broken) != "[X-Cosched\n" {
		t.Errorf("%d reloads", n)
	}
	if _, err := os.Stat(filepath.Join(h.Etc, "systemd/system/web.service.d")); err == nil {
		t.Error("a directory was made")
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
	if status, _, errs := call(h, "unit", "show"); status != cosched.ExitUnavailable || !strings.Contains(errs, "the system bus: ") {
		t.Errorf("%d, %s", status, errs)
	}
}

func TestUnitShow(t *testing.T) {
	h, _ := unitHost(t)
	web := filepath.Join(h.Cgroup, "system.slice/web.service")
	coschedtest.Replace(t, filepath.Join(web, cosched.FileEffective), "0-1\n")
	fragment := filepath.Join(h.Etc, "systemd/system/web.service")
	coschedtest.Append(t, fragment, "Wieghts=1\n")
	status, out, errs := call(h, "unit", "show")
	if want := "UNIT HOME WEIGHTS ASKED FOR FROM web.service 0-1 100 150 0-1; 1 2 " + fragment + ":2; " + fragment + ":3 web.service: " + fragment +
		":4: Wieghts=1: ignored: no such setting: [X-Cosched] has CPUsPreferred= and Weights="; status != 0 || words(out) != want {
		t.Errorf("%d, %s%s", status, out, errs)
	}
	var list []shownUnit
	_, out, _ = call(h, "unit", "show", "--json", "web", "off")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0].Home.Value != "0-1" || list[0].Weights.From.Line != 3 || list[0].Effective != "0-1" || list[1].Home != nil || list[1].Path != "" {
		t.Errorf("%v: %s", err, out)
	}
}

// A template has no cgroup, but has files like any unit.
func TestUnitTemplate(t *testing.T) {
	h, _ := unitHost(t)
	units := filepath.Join(h.Etc, "systemd/system")
	fragment, dropIn, late := filepath.Join(units, "t@.service"), filepath.Join(units, "t@.service.d/50-cosched.conf"), filepath.Join(units, "t@.service.d/60.conf")
	coschedtest.Append(t, fragment, "[X-Cosched]\nCPUsPreferred=0-1\nWeights=0\n")
	if status, _, errs := call(h, "unit", "set", "t@.service", "CPUsPreferred=llc:1", "Weights=7:8"); status != 0 || errs != "" {
		t.Errorf("%d, %s", status, errs)
	}
	coschedtest.Append(t, late, "[X-Cosched]\nWeights=1:1\n")
	_, out, _ := call(h, "unit", "show", "t@")
	if want := "UNIT HOME WEIGHTS ASKED FOR FROM t@.service - - 4-7; 1 1 " + dropIn + ":2; " + late + ":2 t@.service: " + fragment + ":3: Weights=0: ignored:"; !strings.HasPrefix(words(out), want) {
		t.Errorf("%s, want %s", out, want)
	}
	if status, _, errs := call(h, "unit", "set", "t@.service", "Weights=2:2"); status != 0 || !strings.Contains(errs, "Weights= of "+late+":2 comes after "+dropIn+" and overrides it") {
		t.Errorf("%d, %s", status, errs)
	}
}

func TestUnitEdit(t *testing.T) {
	h, _ := unitHost(t)
	editor := filepath.Join(t.TempDir(), "editor")
	t.Setenv("SYSTEMD_EDITOR", "")
	t.Setenv("VISUAL", editor)
	file := filepath.Join(h.Etc, "systemd/system/web.service.d/50-cosched.conf")
	home := filepath.Join(h.Cgroup, "system.slice/web.service", cosched.FilePreferred)
	as := func(script string) (int, string) {
		t.Helper()
		if err := os.WriteFile(editor, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		status, _, errs := call(h, "unit", "edit", "web")
		return status, errs
	}
	left := func() int {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "cosched-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if status, errs := as("exit 0"); status != 0 || errs != "" || read(t, file) != "none" || left() != 0 {
		t.Errorf("nothing changed: %d, %s", status, errs)
	}
	if status, errs := as(`sed -i 's/#CPUsPreferred=.*/CPUsPreferred=6-7/' "$1"`); status != 0 || errs != "" || !strings.Contains(read(t, file), "\nCPUsPreferred=6-7\n#Weights") || firstLine(read(t, home)) != "6-7" || left() != 0 {
		t.Errorf("changed: %d, %s, %s", status, errs, read(t, file))
	}
	if status, errs := as(`echo Weight=1 >>"$1"`); status != cosched.ExitData || !strings.Contains(errs, "line 5: Weight=1: ignored: no such setting") || left() != 1 || strings.Contains(read(t, file), "Weight=1") {
		t.Errorf("a mistake: %d, %s", status, errs)
	}
	if status, errs := as(`sed -i 's/^CPUsPreferred=.*/CPUsPreferred=4000/' "$1"`); status != cosched.ExitData || !strings.Contains(errs, `line 3: home "4000" names a CPU that this machine cannot have`) || !strings.Contains(read(t, file), "=6-7\n") {
		t.Errorf("a CPU that cannot be: %d, %s", status, errs)
	}
	if status, errs := as("exit 3"); status != cosched.ExitFailure || !strings.Contains(errs, "nothing is changed") {
		t.Errorf("the editor fails: %d, %s", status, errs)
	}
	if status, errs := as(`: >"$1"`); status != 0 || errs != "" || read(t, file) != "none" || firstLine(read(t, home)) != "0-1" {
		t.Errorf("emptied: %d, %s, %s", status, errs, read(t, file))
	}
	// What was written is not kept twice, even if it cannot be applied. What cannot be written is kept.
	weights, before := filepath.Join(h.Cgroup, "system.slice/web.service", cosched.FileWeights), left()
	if err := errors.Join(os.Remove(weights), os.Mkdir(weights, 0o755)); err != nil {
		t.Fatal(err)
	}
	if status, errs := as(`echo Weights=5:5 >>"$1"`); status != cosched.ExitData || !strings.Contains(errs, "is a directory") || left() != before || !strings.Contains(read(t, file), "Weights=5:5") {
		t.Errorf("not applied: %d, %s", status, errs)
	}
	status, errs := as(`echo Weights=6:6 >>"$1"; rm -r ` + filepath.Dir(file) + `; : >` + filepath.Dir(file))
	_, kept, _ := strings.Cut(strings.TrimSpace(errs), "not a directory: nothing is changed; the text is in ")
	if status != cosched.ExitCantCreate || !strings.Contains(read(t, kept), "Weights=6:6") {
		t.Errorf("not written: %d, %s", status, errs)
	}
}
