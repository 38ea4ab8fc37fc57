package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedd"
	"cosched.io/cosched/internal/unitfile"
)

// The drop-ins that `cosched unit` writes, in UNIT.d. The names of the drop-ins of systemctl
// set-property begin with 50 too. A drop-in in /etc masks a drop-in of the same name in /run, so
// the one for --runtime has its own name, which sorts after the other.
const (
	dropIn        = "50-cosched.conf"
	dropInRuntime = "50-cosched.runtime.conf"
)

// busTimeout bounds one request to systemd, which does not answer while it starts units or reads
// all of its files.
const busTimeout = 90 * time.Second

// unitTypes are the types of units that have a cgroup.
const unitTypes = "service, scope, slice, socket, mount or swap"

func unitCmd(h cosched.Host) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unit",
		Short: "set and show homes and weights of systemd units",
		Long: `Sets and shows homes and weights of systemd's services, scopes, slices, sockets, mounts and
swaps, which are in the section [X-Cosched] of their unit files and drop-ins. The service
coschedd applies these settings to the units' cgroups: see coschedd(8).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(unitSetCmd(h), unitShowCmd(h), unitEditCmd(h))
	return cmd
}

// units is what the verbs of unit have in common.
type units struct {
	host   cosched.Host
	bus    *coschedd.Systemd
	reader *coschedd.Reader
	ctx    context.Context
}

// withUnits runs a verb with a connection to systemd.
func withUnits(h cosched.Host, cmd *cobra.Command, f func(u units) error) error {
	bus, err := coschedd.Connect(func() (*dbus.Conn, error) { return dbus.ConnectSystemBus() })
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("the system bus: %v: is this machine run by systemd, with dbus.service started?", err), Err: err}
	}
	defer bus.Close()
	return f(units{h, bus, coschedd.NewReader(h), cmd.Context()})
}

// otherTypes are the types of units that have no cgroup.
var otherTypes = []string{".automount", ".device", ".path", ".target", ".timer"}

// unitName adds .service to a name that does not end in a type of units, as systemctl does, and
// checks the name. Other dots are part of a name, as in php8.2-fpm.
func unitName(name string) (string, error) {
	if kind := filepath.Ext(name); name != "" && !coschedd.HasCgroup("a"+kind) && !slices.Contains(otherTypes, kind) {
		name += ".service"
	}
	if !coschedd.HasCgroup(name) {
		return "", usage("%q is not the name of a unit that has a cgroup: name a %s", name, unitTypes)
	}
	return name, nil
}

// load asks systemd about a unit. A template only has files, and systemd does not say which, so
// they are looked up here.
func (u units) load(name string) (coschedd.Unit, error) {
	ctx, cancel := context.WithTimeout(u.ctx, busTimeout)
	defer cancel()
	if strings.Contains(name, "@.") {
		path, err := u.bus.Path(ctx)
		if err != nil {
			return coschedd.Unit{}, &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("%s: systemd: %v", name, err), Err: err}
		}
		return coschedd.Unit{ID: name, State: "loaded", Files: unitfile.Lookup(path, name)}, nil
	}
	unit, err := u.bus.Load(ctx, name)
	switch {
	case err != nil:
		return unit, &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("%s: systemd: %v", name, err), Err: err}
	case unit.State == "not-found":
		return unit, &cosched.Problem{Status: cosched.ExitNoInput, Text: name + ": systemd knows no such unit: systemctl list-unit-files lists the units"}
	case unit.State == "masked":
		return unit, &cosched.Problem{Status: cosched.ExitUnavailable, Text: name + " is masked: systemctl unmask it first"}
	case !coschedd.HasCgroup(unit.ID): // the name that was given is an alias
		return unit, usage("%s is %s, which has no cgroup: name a %s", name, unit.ID, unitTypes)
	}
	return unit, nil
}

// toChange is load for a unit that is to be given settings.
func (u units) toChange(name string) (coschedd.Unit, error) {
	unit, err := u.load(name)
	if err == nil && unit.ID == "-.slice" {
		err = usage("%s is the root of the tree of cgroups, which can have no home or weights: name a slice below it, such as system.slice", unit.ID)
	}
	return unit, err
}

// file is the path of the drop-in that the verbs write.
func (u units) file(name string, runtime bool) string {
	dir, base := u.host.Etc, dropIn
	if runtime {
		dir, base = u.host.Run, dropInRuntime
	}
	return filepath.Join(dir, "systemd/system", name+".d", base)
}

// replace writes a drop-in atomically, or removes it if the text is blank.
func replace(file string, text []byte) error {
	if len(strings.TrimSpace(string(text))) == 0 {
		err := os.Remove(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		_ = os.Remove(filepath.Dir(file)) // if nothing else is in it
		return writeProblem(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return writeProblem(err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".cosched-*")
	if err != nil {
		return writeProblem(err)
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return writeProblem(err)
}

func writeProblem(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return &cosched.Problem{Status: cosched.ExitNoPerm, Text: fmt.Sprintf("%v: be root", err), Err: err}
	}
	return &cosched.Problem{Status: cosched.ExitCantCreate, Text: err.Error(), Err: err}
}

// changed makes systemd read a drop-in that was written and, if the unit runs, applies its settings
// to the cgroup. The service coschedd would apply them too, but could not report errors here. The
// settings in which that the files no longer have are reset in the cgroup.
func (u units) changed(cmd *cobra.Command, unit coschedd.Unit, file string, which coschedd.Written) error {
	note := func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), fmt.Sprintf(format, args...))
	}
	ctx, cancel := context.WithTimeout(u.ctx, busTimeout)
	defer cancel()
	if err := u.bus.Reload(ctx); err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("%s is written, but systemd did not read it: %v: run systemctl daemon-reload", file, err), Err: err}
	}
	if service, err := u.bus.Unit(ctx, "coschedd.service"); err == nil && service.Cgroup == "" || errors.Is(err, coschedd.ErrNotLoaded) {
		note("coschedd.service does not run: units that start get no home or weights: systemctl enable --now coschedd")
	}
	unit, err := u.load(unit.ID)
	if err != nil {
		return err
	}
	settings, _ := u.reader.Read(unit.Files)
	place := slices.Index(unit.Files, file)
	if _, err := os.Stat(file); place < 0 && err == nil {
		note("systemd does not read %s: systemctl cat %s shows what it reads instead", file, unit.ID)
	}
	for _, s := range []struct {
		written bool
		key     string
		at      coschedd.At
	}{{which.Home, coschedd.KeyHome, settings.HomeAt}, {which.Weights, coschedd.KeyWeights, settings.WeightsAt}} {
		if s.written && place >= 0 && slices.Index(unit.Files, s.at.File) > place {
			note("%s= of %s comes after %s and overrides it", s.key, s.at, file)
		}
	}
	g := cosched.Group(u.host.Cgroup + unit.Cgroup)
	if _, ok := coschedd.UnitOf(u.host, g); !ok {
		return nil // it does not run
	}
	if _, err := os.Stat(string(g)); err != nil {
		return nil
	}
	if err := u.host.HasController(); err != nil {
		note("%v", err)
		return nil
	}
	complaints, _ := coschedd.Apply(u.host, g, settings, which)
	for _, c := range complaints {
		if !c.Note {
			return &cosched.Problem{Status: cosched.ExitData, Text: c.String()}
		}
		note("%s", c)
	}
	return nil
}

func unitSetCmd(h cosched.Host) *cobra.Command {
	var runtime bool
	cmd := &cobra.Command{
		Use:   "set UNIT SETTING=VALUE...",
		Short: "give a unit a home or weights",
		Long: `Writes settings to the unit's drop-in ` + dropIn + ` or, with --runtime, to
` + dropInRuntime + `, which is read after it. Makes systemd read the file and, if the
unit runs, applies the settings at once. Other lines of the file are kept.

  CPUsPreferred=  a home as cosched run --home takes it
  Weights=        cost of load at home and elsewhere, "100 150" or 100:150

An empty value resets what the unit file and earlier drop-ins set.`,
		Example: `  cosched unit set nginx.service CPUsPreferred=llc:0
  cosched unit set user-1000.slice CPUsPreferred=auto Weights=100:100 --runtime
  cosched unit set nginx.service CPUsPreferred=`,
		Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return []cobra.Completion{coschedd.KeyHome + "=", coschedd.KeyWeights + "="}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
			}
			return completeUnits(h, cmd)
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			name, err := unitName(args[0])
			if err != nil {
				return err
			}
			return withUnits(h, cmd, func(u units) error {
				var which coschedd.Written
				for _, a := range args[1:] {
					key, value, ok := strings.Cut(a, "=")
					if !ok || key != coschedd.KeyHome && key != coschedd.KeyWeights {
						return usage("%q is not a setting: give %s=VALUE or %s=VALUE", a, coschedd.KeyHome, coschedd.KeyWeights)
					}
					if strings.ContainsAny(value, "\n\r\x00\\") {
						return usage("%q: a value is one line, without backslashes", a)
					}
					if err := u.reader.Valid(key, strings.TrimSpace(value)); err != nil {
						return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%s: %v", a, err), Err: err}
					}
					which.Home = which.Home || key == coschedd.KeyHome
					which.Weights = which.Weights || key == coschedd.KeyWeights
				}
				unit, err := u.toChange(name)
				if err != nil {
					return err
				}
				file := u.file(unit.ID, runtime)
				text, err := coschedd.ReadFile(file)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return writeProblem(err)
				}
				for _, a := range args[1:] {
					key, value, _ := strings.Cut(a, "=")
					if text, err = unitfile.Set(text, coschedd.Section, key, strings.TrimSpace(value)); err != nil {
						return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%s: %v: repair it, or remove it", file, err), Err: err}
					}
				}
				if err := replace(file, text); err != nil {
					return err
				}
				return u.changed(cmd, unit, file, which)
			})
		}),
	}
	cmd.Flags().BoolVar(&runtime, "runtime", false, "write to /run, where the file lasts until the next boot")
	return cmd
}

func unitEditCmd(h cosched.Host) *cobra.Command {
	var runtime bool
	cmd := &cobra.Command{
		Use:   "edit UNIT",
		Short: "edit a unit's home and weights",
		Long: `Opens the unit's drop-in ` + dropIn + ` or, with --runtime, ` + dropInRuntime + `
in $SYSTEMD_EDITOR, $VISUAL or $EDITOR or, if none of these is set, in editor, nano or vi.
The result is checked, written as a whole and, if the unit runs, applied at once. If there
is a mistake in it, or it cannot be written, nothing is changed, and the text is kept. A
file that is left blank is removed.`,
		Example: `  cosched unit edit nginx.service
  EDITOR=vim cosched unit edit machine.slice --runtime`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeUnits(h, cmd)
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			name, err := unitName(args[0])
			if err != nil {
				return err
			}
			return withUnits(h, cmd, func(u units) error {
				unit, err := u.toChange(name)
				if err != nil {
					return err
				}
				file := u.file(unit.ID, runtime)
				old, err := coschedd.ReadFile(file)
				if errors.Is(err, fs.ErrNotExist) {
					old, err = fmt.Appendf(nil, "# For %s, when it runs: see coschedd(8).\n[%s]\n#%s=llc:0\n#%s=100 150\n",
						unit.ID, coschedd.Section, coschedd.KeyHome, coschedd.KeyWeights), nil
				}
				if err != nil {
					return writeProblem(err)
				}
				text, kept, err := edit(old)
				if err != nil {
					return err
				}
				if string(text) == string(old) {
					return os.Remove(kept)
				}
				if wrong := u.reader.Check(file, text); len(wrong) > 0 {
					return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("line %d: %s: nothing is changed; the text is in %s", wrong[0].Line, wrong[0].Text, kept)}
				}
				if err := replace(file, text); err != nil {
					var p *cosched.Problem
					errors.As(err, &p)
					return &cosched.Problem{Status: p.Status, Text: fmt.Sprintf("%v: nothing is changed; the text is in %s", err, kept), Err: err}
				}
				return errors.Join(os.Remove(kept), u.changed(cmd, unit, file, coschedd.Written{Home: true, Weights: true}))
			})
		}),
	}
	cmd.Flags().BoolVar(&runtime, "runtime", false, "write to /run, where the file lasts until the next boot")
	return cmd
}

// edit lets the user edit a text in a temporary file, which the caller removes.
func edit(text []byte) (edited []byte, file string, err error) {
	temp, err := os.CreateTemp("", "cosched-*.conf")
	if err != nil {
		return nil, "", writeProblem(err)
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Close()); err != nil {
		return nil, "", writeProblem(err)
	}
	var editor []string
	for _, variable := range []string{"SYSTEMD_EDITOR", "VISUAL", "EDITOR"} {
		if editor = strings.Fields(os.Getenv(variable)); len(editor) > 0 {
			break
		}
	}
	for _, name := range []string{"editor", "nano", "vi"} {
		if _, err := exec.LookPath(name); len(editor) == 0 && err == nil {
			editor = []string{name}
		}
	}
	if len(editor) == 0 {
		_ = os.Remove(temp.Name())
		return nil, "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: "no editor found: name one in $EDITOR"}
	}
	cmd := exec.Command(editor[0], append(editor[1:], temp.Name())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, "", &cosched.Problem{Status: cosched.ExitFailure, Text: fmt.Sprintf("%s: %v: nothing is changed; the text is in %s", editor[0], err, temp.Name()), Err: err}
	}
	edited, err = coschedd.ReadFile(temp.Name())
	return edited, temp.Name(), writeProblem(err)
}

// setting is a setting as show prints it.
type setting struct {
	Value string      `json:"value"` // for the cgroup's file
	From  coschedd.At `json:"from"`
}

// shownUnit is a unit as show prints it.
type shownUnit struct {
	Unit    string   `json:"unit"`
	Path    string   `json:"path,omitempty"` // of its cgroup, if it runs
	Home    *setting `json:"cpus_preferred"`
	Weights *setting `json:"weights"`
	// What is in force.
	Effective string   `json:"effective_home"`
	InForce   string   `json:"effective_weights"`
	Trouble   []string `json:"trouble,omitempty"`
}

func (u units) show(unit coschedd.Unit) shownUnit {
	s := shownUnit{Unit: unit.ID}
	settings, trouble := u.reader.Read(unit.Files)
	if settings.Home != nil {
		s.Home = &setting{settings.Home.Value, settings.HomeAt}
	}
	if settings.Weights != nil {
		s.Weights = &setting{settings.Weights.String(), settings.WeightsAt}
	}
	for _, c := range trouble {
		s.Trouble = append(s.Trouble, c.String())
	}
	g := cosched.Group(u.host.Cgroup + unit.Cgroup)
	if _, ok := coschedd.UnitOf(u.host, g); !ok {
		return s
	}
	s.Path = string(g)
	if home, err := g.Effective(); err == nil {
		s.Effective = home.String()
	}
	if w, err := g.Weights(); err == nil {
		s.InForce = w.String()
	}
	return s
}

func unitShowCmd(h cosched.Host) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [UNIT...]",
		Short: "show the homes and weights of units",
		Long: `Shows what the files of units ask for, and in which line, and what is in force in the
units' cgroups. Without UNIT, shows all units that systemd has loaded and that ask for
something. Errors in the files are printed below the table.`,
		Example: `  cosched unit show
  cosched unit show nginx.service --json`,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return completeUnits(h, cmd)
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var names []string
			for _, a := range args {
				name, err := unitName(a)
				if err != nil {
					return err
				}
				names = append(names, name)
			}
			return withUnits(h, cmd, func(u units) error {
				list, err := u.list(names)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd, list, "  ")
				}
				return print(cmd, func(w io.Writer) { printUnits(w, list) })
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// list gives the named units or, without names, all loaded units that ask for something.
func (u units) list(names []string) ([]shownUnit, error) {
	list := []shownUnit{}
	for _, name := range names {
		unit, err := u.load(name)
		if err != nil {
			return nil, err
		}
		list = append(list, u.show(unit))
	}
	if len(names) > 0 {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(u.ctx, busTimeout)
	defer cancel()
	all, err := u.bus.Units(ctx)
	if err != nil {
		return nil, &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("systemd: %v", err), Err: err}
	}
	slices.Sort(all)
	for _, name := range all {
		if !coschedd.HasCgroup(name) {
			continue
		}
		unit, err := u.bus.Unit(ctx, name)
		if errors.Is(err, coschedd.ErrNotLoaded) {
			continue
		}
		if err != nil {
			return nil, &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("%s: systemd: %v", name, err), Err: err}
		}
		unit.ID = name
		if s := u.show(unit); s.Home != nil || s.Weights != nil || len(s.Trouble) > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

func printUnits(w io.Writer, list []shownUnit) {
	table(w, func(w io.Writer) {
		fmt.Fprint(w, "UNIT\tHOME\tWEIGHTS\tASKED FOR\tFROM\n")
		for _, s := range list {
			var asked, from []string
			for _, of := range []*setting{s.Home, s.Weights} {
				if of != nil {
					asked, from = append(asked, of.Value), append(from, of.From.String())
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cosched.Printable(s.Unit), dash(s.Effective), dash(s.InForce),
				dash(strings.Join(asked, "; ")), dash(strings.Join(slices.Compact(from), "; ")))
		}
	})
	for _, s := range list {
		for _, line := range s.Trouble {
			fmt.Fprintf(w, "%s: %s\n", cosched.Printable(s.Unit), cosched.Printable(line))
		}
	}
}

// completeUnits completes the names of units that are loaded.
func completeUnits(h cosched.Host, cmd *cobra.Command) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []string
	_ = withUnits(h, cmd, func(u units) error {
		ctx, cancel := context.WithTimeout(u.ctx, time.Second) // a user does not wait longer for a completion
		defer cancel()
		all, err := u.bus.Units(ctx)
		list = slices.DeleteFunc(all, func(name string) bool { return !coschedd.HasCgroup(name) })
		return err
	})
	return list, cobra.ShellCompDirectiveNoFileComp
}
