package coschedd

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"

	"cosched.io/cosched/internal/coschedd/systemdtest"
	"cosched.io/cosched/internal/coschedtest"
)

var nativeOrder = binary.LittleEndian

// idleWatcher watches nothing.
func idleWatcher(t testing.TB) *fsnotify.Watcher {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	go func() {
		for range w.Events {
		}
	}()
	return w
}

func connect(t *testing.T, address string) *Systemd {
	t.Helper()
	s, err := Connect(func() (*dbus.Conn, error) { return dbus.Connect(address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// follow gives the events of systemd.
func follow(t *testing.T, s *Systemd) <-chan Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, done := make(chan Event), make(chan struct{})
	go func() {
		defer close(done)
		s.Follow(ctx, events, func(error) {})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return events
}

func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(coschedtest.Patience):
		t.Fatal("no event")
		return Event{}
	}
}

func TestUnitOnBus(t *testing.T) {
	sd := systemdtest.New(t, systemdtest.Bus(t))
	bus := connect(t, sd.Address)
	sd.Set("a-b@1.service", systemdtest.Unit{State: "loaded", Cgroup: "/system.slice/a-b@1.service", Fragment: "/lib/a-b@.service", DropIns: []string{"/etc/x.conf", "/run/y.conf"}})
	sd.Set("s.scope", systemdtest.Unit{State: "loaded"})
	ctx := context.Background()
	u, err := bus.Unit(ctx, "a-b@1.service")
	if err != nil || u.Cgroup != "/system.slice/a-b@1.service" || !slices.Equal(u.Files, []string{"/lib/a-b@.service", "/etc/x.conf", "/run/y.conf"}) {
		t.Errorf("%v: %+v", err, u)
	}
	if u, err := bus.Unit(ctx, "s.scope"); err != nil || u.Cgroup != "" || len(u.Files) != 0 {
		t.Errorf("%v: %+v", err, u)
	}
	if _, err := bus.Unit(ctx, "none.service"); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("%v", err)
	}
	if u, err := bus.Load(ctx, "none.service"); err != nil || u.ID != "none.service" || u.State != "not-found" {
		t.Errorf("%v: %+v", err, u)
	}
	if _, _, loads := sd.Counts(); !slices.Equal(loads, []string{"none.service"}) {
		t.Errorf("loaded: %v", loads)
	}
	if names, err := bus.Units(ctx); err != nil || len(names) != 3 {
		t.Errorf("%v: %v", err, names)
	}
}

func TestEvents(t *testing.T) {
	path := []string{"/etc/x", "/usr/y"}
	sd := systemdtest.New(t, systemdtest.Bus(t), path...)
	events := follow(t, connect(t, sd.Address))
	if e := next(t, events); !e.Reloaded || !slices.Equal(e.Path, path) {
		t.Fatalf("first: %+v", e)
	}
	// Any program can send a signal that looks like one from systemd.
	liar, err := dbus.Connect(sd.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Close()
	var names []string
	if err := liar.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, to := range names {
		if strings.HasPrefix(to, ":") {
			m := &dbus.Message{Type: dbus.TypeSignal, Body: []any{false}, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(managerPath)), dbus.FieldInterface: dbus.MakeVariant(managerIface),
				dbus.FieldMember: dbus.MakeVariant("Reloading"), dbus.FieldDestination: dbus.MakeVariant(to), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(false)),
			}}
			if call := liar.Send(m, nil); call != nil && call.Err != nil {
				t.Fatal(call.Err)
			}
		}
	}
	if err := liar.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil { // the signals have been sent by now
		t.Fatal(err)
	}
	sd.JobRemoved("a.service")
	sd.Reloading(true) // the reload begins, but has not ended
	sd.JobRemoved("b.scope")
	sd.Reloading(false)
	for _, want := range []Event{{Unit: "a.service"}, {Unit: "b.scope"}, {Reloaded: true}} {
		if e := next(t, events); e.Unit != want.Unit || e.Reloaded != want.Reloaded {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	// systemd is a new process on the bus, as after daemon-reexec.
	sd.Stop()
	sd.Start()
	if e := next(t, events); !e.Reloaded || e.Path == nil {
		t.Errorf("%+v", e)
	}
	sd.JobRemoved("c.service")
	if e := next(t, events); e.Unit != "c.service" {
		t.Errorf("%+v", e)
	}
	if n, _, _ := sd.Counts(); n != 2 {
		t.Errorf("subscribed %d times", n)
	}
}

// The service on a bus, with its cgroups: from the start of a unit to its reload.
func TestServiceOnBus(t *testing.T) {
	r := newRig(t)
	sd := systemdtest.New(t, systemdtest.Bus(t), filepath.Join(r.dir, "etc"))
	file := r.file("lib/u.service", preferring+"CPUsPreferred=llc:1\n") // the service does not look for files here
	const cgroup = "/system.slice/u.service"
	sd.Set("u.service", systemdtest.Unit{State: "loaded", Cgroup: cgroup, Fragment: file})
	bus := connect(t, sd.Address)
	record, _ := OpenRecord("")
	s := NewService(r.Host, r, bus, record, Journal(t.Output()))
	ctx, cancel := context.WithCancel(context.Background())
	events, ready, done := make(chan Event), make(chan struct{}), make(chan error)
	go bus.Follow(ctx, events, func(error) {})
	go func() { done <- s.Run(ctx, events, nil, func() { close(ready) }) }()
	<-ready
	r.begin(cgroup)
	sd.JobRemoved("u.service")
	r.has(cgroup, "4-7", "100 150")
	r.file("lib/u.service", preferring+"Weights=2 3\n")
	if err := bus.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	r.has(cgroup, "", "2 3")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBusComesAndGoes(t *testing.T) {
	dials := 0
	address := systemdtest.Bus(t)
	sd := systemdtest.New(t, address)
	bus, err := Connect(func() (*dbus.Conn, error) { dials++; return dbus.Connect(address) })
	if err != nil {
		t.Fatal(err)
	}
	events := follow(t, bus)
	next(t, events)
	bus.Close() // as if the bus had been restarted
	if e := next(t, events); !e.Reloaded {
		t.Errorf("%+v", e)
	}
	sd.JobRemoved("a.service")
	if e := next(t, events); e.Unit != "a.service" || dials != 2 {
		t.Errorf("%+v, %d dials", e, dials)
	}
	bus.Close()
}

// While there is no bus, that is said once.
func TestNoBus(t *testing.T) {
	dials := make(chan int, 10)
	address := systemdtest.Bus(t)
	systemdtest.New(t, address)
	bus, err := Connect(func() (*dbus.Conn, error) {
		if dials <- 1; len(dials) > 1 {
			return nil, errors.New("no bus")
		}
		return dbus.Connect(address)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	events, lost, done := make(chan Event), make(chan error, 10), make(chan struct{})
	go func() {
		defer close(done)
		bus.Follow(ctx, events, func(err error) { lost <- err })
	}()
	next(t, events)
	bus.Close()
	for len(dials) < 4 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if <-done; len(lost) != 1 {
		t.Errorf("said %d times: %v", len(lost), <-lost)
	}
}
