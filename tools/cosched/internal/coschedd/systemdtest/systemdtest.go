// Package systemdtest is a systemd for tests: the part of its interface on D-Bus that
// cosched uses, on a bus of its own.
package systemdtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

const (
	name         = "org.freedesktop.systemd1"
	managerPath  = "/org/freedesktop/systemd1"
	managerIface = name + ".Manager"
	properties   = "org.freedesktop.DBus.Properties"
)

// Unit is what systemd knows of a unit.
type Unit struct {
	State, Cgroup, Fragment string
	DropIns                 []string
}

// Systemd is a systemd.
type Systemd struct {
	Address string // of its bus
	path    []string
	t       testing.TB
	conn    *dbus.Conn

	mu         sync.Mutex
	onReload   func()
	units      map[string]Unit
	loads      []string
	subscribed int
	reloads    int
}

// config lets everybody do everything on a bus in a directory.
const config = `<busconfig>
  <type>session</type>
  <listen>unix:dir=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`

// Bus starts a bus and returns its address. It skips the test where that is not installed.
func Bus(t testing.TB) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon: install dbus-daemon")
	}
	// Not t.TempDir(), whose names can be too long for a socket.
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "--config-file="+file, "--nofork", "--nopidfile", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("dbus-daemon: %v", err)
	}
	return strings.TrimSpace(address)
}

// New starts a systemd on a bus, which looks for units in some directories.
func New(t testing.TB, address string, path ...string) *Systemd {
	t.Helper()
	s := &Systemd{Address: address, path: path, t: t, units: map[string]Unit{}}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// Start puts it on the bus, again after Stop.
func (s *Systemd) Start() {
	s.t.Helper()
	var err error
	if s.conn, err = dbus.Connect(s.Address); err != nil {
		s.t.Fatal(err)
	}
	for _, err := range []error{
		s.conn.Export(manager{s}, managerPath, managerIface),
		s.conn.ExportSubtree(getter{s}, managerPath, properties),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if reply, err := s.conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		s.t.Fatalf("%v, %v", reply, err)
	}
}

// Stop takes it off the bus.
func (s *Systemd) Stop() { s.conn.Close() }

// Set makes it know a unit; one with State "" is not loaded any more.
func (s *Systemd) Set(unit string, u Unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[unit] = u
}

// OnReload has a function called when it is to read its files again, before it says that
// it did.
func (s *Systemd) OnReload(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onReload = f
}

// JobRemoved tells that a job of a unit has ended.
func (s *Systemd) JobRemoved(unit string) {
	s.emit("JobRemoved", uint32(7), dbus.ObjectPath(managerPath+"/job/7"), unit, "done")
}

// Reloading tells that it begins to read its files again, or has.
func (s *Systemd) Reloading(begins bool) { s.emit("Reloading", begins) }

func (s *Systemd) emit(member string, body ...any) {
	s.t.Helper()
	if err := s.conn.Emit(managerPath, managerIface+"."+member, body...); err != nil {
		s.t.Error(err)
	}
}

// Counts says how often it was subscribed to and made to reload, and which units it had
// to load.
func (s *Systemd) Counts() (subscribed, reloads int, loads []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribed, s.reloads, slices.Clone(s.loads)
}

type manager struct{ s *Systemd }

func path(unit string) dbus.ObjectPath {
	return dbus.ObjectPath(managerPath + "/unit/" + systemd.PathBusEscape(unit))
}

func (m manager) GetUnit(unit string) (dbus.ObjectPath, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.units[unit].State == "" {
		return "", dbus.NewError(name+".NoSuchUnit", []any{"Unit " + unit + " not loaded."})
	}
	return path(unit), nil
}

func (m manager) LoadUnit(unit string) (dbus.ObjectPath, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.loads = append(m.s.loads, unit)
	if m.s.units[unit].State == "" {
		m.s.units[unit] = Unit{State: "not-found"}
	}
	return path(unit), nil
}

type row struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	Job                                             uint32
	JobType                                         string
	JobPath                                         dbus.ObjectPath
}

func (m manager) ListUnits() ([]row, *dbus.Error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	var rows []row
	for unit, u := range m.s.units {
		if u.State != "" {
			rows = append(rows, row{Name: unit, Load: u.State, Path: path(unit), JobPath: "/"})
		}
	}
	return rows, nil
}

func (m manager) Subscribe() *dbus.Error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.subscribed++
	return nil
}

func (m manager) Reload() *dbus.Error {
	m.s.mu.Lock()
	m.s.reloads++
	read := m.s.onReload
	m.s.mu.Unlock()
	m.s.Reloading(true)
	if read != nil {
		read()
	}
	m.s.Reloading(false)
	return nil
}

type getter struct{ s *Systemd }

func (g getter) Get(m dbus.Message, iface, property string) (dbus.Variant, *dbus.Error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	at, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	if at == managerPath && property == "UnitPath" {
		return dbus.MakeVariant(append([]string{}, g.s.path...)), nil
	}
	for unit, u := range g.s.units {
		if path(unit) != at {
			continue
		}
		suffix := strings.TrimPrefix(filepath.Ext(unit), ".")
		typed := name + "." + strings.ToUpper(suffix[:1]) + suffix[1:]
		switch iface + "." + property {
		case name + ".Unit.Id":
			return dbus.MakeVariant(unit), nil
		case name + ".Unit.LoadState":
			return dbus.MakeVariant(u.State), nil
		case name + ".Unit.FragmentPath":
			return dbus.MakeVariant(u.Fragment), nil
		case name + ".Unit.DropInPaths":
			return dbus.MakeVariant(append([]string{}, u.DropIns...)), nil
		case typed + ".ControlGroup":
			return dbus.MakeVariant(u.Cgroup), nil
		}
	}
	return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{property})
}
