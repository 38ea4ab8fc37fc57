package coschedd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/fsnotify/fsnotify"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/unitfile"
)

// Service keeps the cgroups of units as their files say.
//
// That a unit starts is seen in the tree of cgroups, by inotify: systemd makes the
// cgroup before the unit's first process, and starts all jobs that are ready before it
// answers anybody. So the unit's files are first looked up on disk, and written by. Then
// systemd is asked which files it has loaded, which settles what holds; that is also
// when complaints are logged. The end of a job is a second sign, if inotify missed one,
// and a look at the whole tree a third.
//
// One goroutine does all but ask.
type Service struct {
	host   cosched.Host // to look at
	tree   Tree         // to write to
	bus    Bus
	log    Log
	record *Record
	reader *Reader

	cpus    int      // the reader's, when homes were last looked at
	path    []string // where systemd looks for units
	units   map[string]*unit
	watcher *fsnotify.Watcher

	asked   map[string]bool // waiting or in flight; true: ask again, as more happened
	waiting []string
	answers chan answer
	slots   chan struct{}
}

// unit is one whose cgroup is there.
type unit struct {
	group   cosched.Group
	inode   uint64
	settled bool // systemd said what holds, and it was written

	settings Settings
	applied  bool
	trouble  []Complaint // of settings
	said     map[Complaint]bool
}

type answer struct {
	name string
	Unit
	err error
}

// rootSlice has no directory of its own in the tree, and can have no home.
const rootSlice = "-.slice"

const (
	// rescanEvery bounds for how long a unit is without its values if inotify and D-Bus
	// both missed it, and how late a home by name follows CPUs that come online. A look
	// at a tree of 1,000 cgroups that have their values takes milliseconds.
	rescanEvery = time.Minute
	// askTimeout is longer than systemd was ever seen to be busy starting units.
	askTimeout = 90 * time.Second
	// askAtOnce keeps below what dbus-daemon lets one connection wait for (128 answers,
	// four for each unit) and systemd's queue short.
	askAtOnce = 16
	// madeAtOnce is how many cgroups may come and go while one of them is given its values
	// before inotify's own queue is used; systemd seldom starts as many units together.
	madeAtOnce = 1024
)

// NewService makes a service. The record may be of one before it.
func NewService(h cosched.Host, tree Tree, bus Bus, record *Record, log Log) *Service {
	return &Service{
		host: h, tree: tree, bus: bus, log: log, record: record, reader: NewReader(h),
		units: map[string]*unit{}, asked: map[string]bool{},
		answers: make(chan answer), slots: make(chan struct{}, askAtOnce),
	}
}

// Run works until the context ends. Ready is called once all units that were there have
// been looked at.
func (s *Service) Run(ctx context.Context, events <-chan Event, reload <-chan os.Signal, ready func()) error {
	var err error
	if s.watcher, err = fsnotify.NewBufferedWatcher(madeAtOnce); err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	defer s.watcher.Close()
	s.watch(cosched.Group(s.host.Cgroup))
	s.serve(ctx, events, reload, ready)
	return nil
}

func (s *Service) serve(ctx context.Context, events <-chan Event, reload <-chan os.Signal, ready func()) {
	tick := time.NewTicker(rescanEvery)
	defer tick.Stop()
	for {
		// Units that start have tasks waiting for a home. Questions and answers only confirm
		// it, and keep systemd from starting the others.
		select {
		case e, ok := <-s.watcher.Events:
			if ok {
				s.seen(e)
				continue
			}
		default:
		}
		s.askWaiting(ctx)
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			s.told(e)
			if ready != nil && e.Reloaded {
				ready()
				ready = nil
			}
		case a := <-s.answers:
			s.answered(a)
		case e, ok := <-s.watcher.Events:
			if ok {
				s.seen(e)
			}
		case err, ok := <-s.watcher.Errors:
			if ok {
				s.say(journal.PriWarning, Complaint{Text: fmt.Sprintf("inotify: %v: looking at all units", err)})
				s.rescan()
			}
		case <-reload:
			s.again()
		case <-tick.C:
			s.tick()
		}
	}
}

// seen takes what inotify saw.
func (s *Service) seen(e fsnotify.Event) {
	if e.Op&(fsnotify.Create|fsnotify.Remove) != 0 {
		s.look(cosched.Group(e.Name))
	}
}

func (s *Service) tick() {
	if s.reader.Topology() != s.cpus {
		s.again()
	} else {
		s.rescan()
	}
}

// told takes what systemd tells by itself.
func (s *Service) told(e Event) {
	if e.Path != nil {
		s.path = e.Path
	}
	if e.Reloaded {
		s.again()
	}
	if !HasCgroup(e.Unit) {
		return
	}
	if u := s.units[e.Unit]; u == nil {
		s.ask(e.Unit)
	} else if s.look(u.group); !u.settled {
		s.ask(e.Unit)
	}
}

// again looks at all units as if for the first time.
func (s *Service) again() {
	for _, u := range s.units {
		u.settled, u.applied, u.said = false, false, nil
	}
	s.cpus = s.reader.Topology()
	s.rescan()
	s.ask(rootSlice)
}

// rescan looks at all units, and asks about those that are not settled.
func (s *Service) rescan() {
	s.children(cosched.Group(s.host.Cgroup))
	for name, u := range s.units {
		if s.look(u.group); s.units[name] == u && !u.settled {
			s.ask(name)
		}
	}
	err := s.record.Keep(func(name string) bool { return s.units[name] != nil })
	s.recordFailed("", err)
}

func (s *Service) children(g cosched.Group) {
	entries, _ := os.ReadDir(string(g))
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child := cosched.Group(filepath.Join(string(g), e.Name()))
		s.look(child)
		if strings.HasSuffix(e.Name(), ".slice") {
			s.children(child)
		}
	}
}

func (s *Service) watch(g cosched.Group) {
	if err := s.watcher.Add(string(g)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.say(journal.PriWarning, Complaint{Text: fmt.Sprintf("inotify: %s: %v: units there are seen when their job ends", g, err)})
	}
}

// look finds out whether a cgroup of a unit came or went.
func (s *Service) look(g cosched.Group) {
	name, ok := UnitOf(s.host, g)
	if !ok {
		return
	}
	u := s.units[name]
	var st syscall.Stat_t
	if syscall.Lstat(string(g), &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		if u != nil && u.group == g {
			delete(s.units, name)
			s.recordFailed(name, s.record.Forget(name))
			s.below(g)
		}
		return
	}
	if u != nil && u.group == g && u.inode == st.Ino {
		return
	}
	u = &unit{group: g, inode: st.Ino}
	s.units[name] = u
	s.write(name, u, unitfile.Lookup(s.path, name), false)
	s.ask(name)
	if strings.HasSuffix(name, ".slice") {
		s.below(g)
		s.watch(g)
		s.children(g) // made before it was watched
	}
}

// below looks at what was in a slice that is another one now, or none. inotify goes on to
// watch a cgroup that was removed, so that it is told not to.
func (s *Service) below(g cosched.Group) {
	if !strings.HasSuffix(string(g), ".slice") {
		return
	}
	_ = s.watcher.Remove(string(g)) // if it was watched
	for _, u := range s.units {
		if strings.HasPrefix(string(u.group), string(g)+"/") {
			s.look(u.group)
		}
	}
}

// ask asks systemd about a unit, when no other waits for its first values.
func (s *Service) ask(name string) {
	if _, ok := s.asked[name]; ok {
		s.asked[name] = true
		return
	}
	s.asked[name] = false
	s.waiting = append(s.waiting, name)
}

func (s *Service) askWaiting(ctx context.Context) {
	for _, name := range s.waiting {
		go func() {
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
			case <-ctx.Done():
				return
			}
			limited, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			a := answer{name: name}
			a.Unit, a.err = s.bus.Unit(limited, name)
			select {
			case s.answers <- a:
			case <-ctx.Done():
			}
		}()
	}
	s.waiting = nil
}

// answered takes what systemd said of a unit.
func (s *Service) answered(a answer) {
	again := s.asked[a.name]
	delete(s.asked, a.name)
	if again {
		s.ask(a.name)
		return
	}
	u := s.units[a.name]
	switch {
	case errors.Is(a.err, ErrNotLoaded):
		return
	case a.err != nil:
		if u != nil {
			s.complain(a.name, u, u.trouble)
			s.complain(a.name, u, []Complaint{{Text: fmt.Sprintf("systemd does not say which files it has: %v: trying again within %v", a.err, rescanEvery)}})
		}
		return
	case a.Cgroup == "":
		return
	}
	g := cosched.Group(s.host.Cgroup + a.Cgroup)
	if a.name == rootSlice && a.Cgroup == "/" {
		u = &unit{group: cosched.Group(s.host.Cgroup)} // to complain, if it has settings
		g = u.group
	} else if name, ok := UnitOf(s.host, g); !ok || name != a.name {
		return
	}
	if u == nil || u.group != g {
		s.look(g) // which asks again
		return
	}
	s.write(a.name, u, a.Files, true)
}

// write reads a unit's files and writes what they ask for. For certain: they are those
// that systemd has loaded.
func (s *Service) write(name string, u *unit, files []string, certain bool) {
	settings, trouble := s.reader.Read(files)
	was, now := s.record.Get(name, u.inode), Written{settings.Home != nil, settings.Weights != nil}
	u.trouble = trouble
	var refused []Complaint
	if !certain || !u.applied || !same(settings, u.settings) || was != now {
		s.recordFailed(name, s.record.Set(name, u.inode, Written{now.Home || was.Home, now.Weights || was.Weights}))
		if !certain {
			was = Written{} // nothing is taken back on a guess
		}
		var gone error
		if refused, gone = Apply(s.tree, u.group, settings, was); gone != nil {
			return // its removal, or its successor, is seen as any
		}
		u.settings, u.applied = settings, len(refused) == 0
	}
	if !certain {
		return
	}
	s.complain(name, u, append(trouble, refused...))
	// What was refused may be possible later.
	u.settled = !slices.ContainsFunc(refused, func(c Complaint) bool { return !c.Note })
	if !u.settled {
		return
	}
	s.recordFailed(name, s.record.Set(name, u.inode, now))
	if now != (Written{}) {
		s.log(journal.PriDebug, name, Complaint{Text: "given " + describe(settings)})
	}
}

func same(a, b Settings) bool {
	return (a.Home == nil) == (b.Home == nil) && (a.Home == nil || a.Home.Value == b.Home.Value) &&
		(a.Weights == nil) == (b.Weights == nil) && (a.Weights == nil || *a.Weights == *b.Weights)
}

func describe(s Settings) string {
	var parts []string
	if s.Home != nil {
		parts = append(parts, fmt.Sprintf("home %s (%s)", s.Home.Value, s.HomeAt))
	}
	if s.Weights != nil {
		parts = append(parts, fmt.Sprintf("weights %s (%s)", s.Weights, s.WeightsAt))
	}
	return strings.Join(parts, ", ")
}

// complain logs what was not said yet of this run of a unit.
func (s *Service) complain(name string, u *unit, list []Complaint) {
	for _, c := range list {
		if u.said[c] {
			continue
		}
		if u.said == nil {
			u.said = map[Complaint]bool{}
		}
		u.said[c] = true
		priority := journal.PriWarning
		if c.Note {
			priority = journal.PriNotice
		}
		s.log(priority, name, c)
	}
}

func (s *Service) recordFailed(name string, err error) {
	if err != nil {
		s.log(journal.PriErr, name, Complaint{Text: fmt.Sprintf("%v: values may outlive their settings", err)})
	}
}

func (s *Service) say(priority journal.Priority, c Complaint) { s.log(priority, "", c) }
