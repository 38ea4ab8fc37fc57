package coschedd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	busItself    = "org.freedesktop.DBus"
	busName      = "org.freedesktop.systemd1"
	managerPath  = "/org/freedesktop/systemd1"
	managerIface = "org.freedesktop.systemd1.Manager"
	unitIface    = "org.freedesktop.systemd1.Unit"
	getUnit      = "GetUnit"
	loadUnit     = "LoadUnit"
)

// Unit is what systemd says about a unit.
type Unit struct {
	ID     string   // its primary name, if it was asked for by an alias
	State  string   // LoadState: loaded, not-found, masked, ...
	Cgroup string   // path below the root of the hierarchy, "" if it has no cgroup
	Files  []string // the unit file, if any, then the drop-ins in their order
}

// Bus is what the service asks systemd.
type Bus interface {
	// Unit says what systemd has loaded for a unit; ErrNotLoaded if it has not loaded it.
	Unit(ctx context.Context, name string) (Unit, error)
}

// ErrNotLoaded says that systemd does not know a unit, or does not know it any more.
var ErrNotLoaded = errors.New("not loaded")

// Event is what systemd reports without being asked.
type Event struct {
	Unit     string // the unit of which a job has ended
	Reloaded bool   // systemd has reloaded its configuration, or was started again
	Path     []string
}

// Systemd is the connection to the system's manager.
type Systemd struct {
	dial func() (*dbus.Conn, error)

	mu   sync.Mutex
	conn *dbus.Conn
}

// Connect connects to the system's manager. Dial is dbus.ConnectSystemBus, except in tests.
func Connect(dial func() (*dbus.Conn, error)) (*Systemd, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	return &Systemd{dial: dial, conn: conn}, nil
}

// Close closes the connection.
func (s *Systemd) Close() error { return s.current().Close() }

func (s *Systemd) current() *dbus.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// Unit asks for a unit without loading it. If a request loaded the unit, systemd would unload it
// again afterwards, and send signals about that.
func (s *Systemd) Unit(ctx context.Context, name string) (Unit, error) {
	return s.unit(ctx, getUnit, name)
}

// Load is Unit for a unit that may not be loaded: it loads the unit. It also gives its ID and state.
func (s *Systemd) Load(ctx context.Context, name string) (Unit, error) {
	return s.unit(ctx, loadUnit, name)
}

func (s *Systemd) unit(ctx context.Context, method, name string) (Unit, error) {
	conn := s.current()
	var path dbus.ObjectPath
	err := conn.Object(busName, managerPath).CallWithContext(ctx, managerIface+"."+method, dbus.FlagNoAutoStart, name).Store(&path)
	if e := (dbus.Error{}); errors.As(err, &e) && e.Name == busName+".NoSuchUnit" {
		return Unit{}, ErrNotLoaded
	}
	if err != nil {
		return Unit{}, err
	}
	type property struct {
		iface, name string
		to          any
		done        chan *dbus.Call
	}
	var u Unit
	var fragment string
	var dropIns []string
	all := []property{
		{unitIface, "FragmentPath", &fragment, nil}, {unitIface, "DropInPaths", &dropIns, nil},
		{busName + "." + cgroupTypes[filepath.Ext(name)], "ControlGroup", &u.Cgroup, nil},
	}
	if method == loadUnit {
		all = append(all, property{unitIface, "Id", &u.ID, nil}, property{unitIface, "LoadState", &u.State, nil})
	}
	// All requests are sent at once, instead of waiting for each answer before the next one.
	for i := range all {
		p := &all[i]
		p.done = make(chan *dbus.Call, 1)
		conn.Object(busName, path).GoWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, p.done, p.iface, p.name)
	}
	for _, p := range all {
		var v dbus.Variant
		call := <-p.done
		if err := call.Store(&v); err != nil {
			return Unit{}, fmt.Errorf("%s of %s: %w", p.name, name, err)
		}
		if err := dbus.Store([]any{v.Value()}, p.to); err != nil {
			return Unit{}, fmt.Errorf("%s of %s: %w", p.name, name, err)
		}
	}
	if fragment != "" {
		u.Files = append(u.Files, fragment)
	}
	u.Files = append(u.Files, dropIns...)
	return u, nil
}

// Units lists the units that are loaded.
func (s *Systemd) Units(ctx context.Context) ([]string, error) {
	var rows [][]any
	if err := s.current().Object(busName, managerPath).CallWithContext(ctx, managerIface+".ListUnits", dbus.FlagNoAutoStart).Store(&rows); err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if len(row) > 0 {
			if name, ok := row[0].(string); ok {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// Reload makes systemd read its files again.
func (s *Systemd) Reload(ctx context.Context) error {
	return s.current().Object(busName, managerPath).CallWithContext(ctx, managerIface+".Reload", dbus.FlagNoAutoStart).Err
}

// Path asks for the directories in which systemd looks for units.
func (s *Systemd) Path(ctx context.Context) ([]string, error) {
	var v dbus.Variant
	var path []string
	err := s.current().Object(busName, managerPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, managerIface, "UnitPath").Store(&v)
	if err == nil {
		err = dbus.Store([]any{v.Value()}, &path)
	}
	return path, err
}

// reconnectEvery is how often to try to connect again after the connection to the bus was lost.
// It is short, so that only the units that start within a second wait for it, and long enough to
// cost nothing.
const reconnectEvery = time.Second

// Follow sends systemd's events, until the context ends. The first event, and the first after a
// lost connection, has Reloaded set: everything may have changed. It calls lost when the connection
// is lost, and not again until there was one meanwhile.
func (s *Systemd) Follow(ctx context.Context, events chan<- Event, lost func(error)) {
	said := false
	for ctx.Err() == nil {
		connected, err := s.follow(ctx, events)
		if err != nil && ctx.Err() == nil && (connected || !said) {
			lost(err)
			said = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reconnectEvery):
		}
		if conn, err := s.dial(); err == nil {
			s.mu.Lock()
			s.conn.Close()
			s.conn = conn
			s.mu.Unlock()
		}
	}
}

// follow reports whether there was a connection, and how it ended.
func (s *Systemd) follow(ctx context.Context, events chan<- Event) (connected bool, err error) {
	conn := s.current()
	// godbus keeps the signals for which there is no room in the channel.
	signals := make(chan *dbus.Signal, 1000)
	conn.Signal(signals)
	defer conn.RemoveSignal(signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(busName), dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("JobRemoved")},
		{dbus.WithMatchSender(busName), dbus.WithMatchInterface(managerIface), dbus.WithMatchMember("Reloading")},
		{dbus.WithMatchSender(busItself), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, busName)},
	} {
		if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
			return false, err
		}
	}
	owner := ""
	for {
		if owner == "" {
			// Without subscribers systemd sends no signals.
			if err := conn.Object(busName, managerPath).CallWithContext(ctx, managerIface+".Subscribe", dbus.FlagNoAutoStart).Err; err != nil && !subscribed(err) {
				return connected, err
			}
			if err := conn.BusObject().CallWithContext(ctx, busItself+".GetNameOwner", 0, busName).Store(&owner); err != nil {
				return connected, err
			}
			path, err := s.Path(ctx)
			if err != nil {
				return connected, err
			}
			if !send(ctx, events, Event{Reloaded: true, Path: path}) {
				return connected, nil
			}
			connected = true
		}
		select {
		case <-ctx.Done():
			return connected, nil
		case signal, ok := <-signals:
			if !ok {
				return connected, errors.New("the connection to the bus was closed")
			}
			event, restarted := decode(signal, owner)
			if restarted {
				owner = ""
			} else if (event.Unit != "" || event.Reloaded) && !send(ctx, events, event) {
				return connected, nil
			}
		}
	}
}

func subscribed(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == busName+".AlreadySubscribed"
}

func send(ctx context.Context, events chan<- Event, e Event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// decode says what a signal means, and whether systemd itself was started again. Any program can
// send a signal to any other on the bus, so the sender is checked.
func decode(signal *dbus.Signal, owner string) (e Event, restarted bool) {
	switch {
	case signal.Sender == owner && signal.Name == managerIface+".JobRemoved":
		var id uint32
		var job dbus.ObjectPath
		var unit, result string
		if dbus.Store(signal.Body, &id, &job, &unit, &result) == nil {
			e.Unit = unit
		}
	case signal.Sender == owner && signal.Name == managerIface+".Reloading":
		var begins bool
		e.Reloaded = dbus.Store(signal.Body, &begins) == nil && !begins
	case signal.Sender == busItself && signal.Name == busItself+".NameOwnerChanged":
		var name, before, after string
		restarted = dbus.Store(signal.Body, &name, &before, &after) == nil && name == busName && after != ""
	}
	return e, restarted
}
