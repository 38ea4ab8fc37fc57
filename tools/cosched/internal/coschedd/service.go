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

// Service gives the cgroups of units the settings in their files.
//
// The service notices the start of a unit in the tree of cgroups, by inotify: systemd makes
// the cgroup before the unit's first process, and starts all jobs that are ready before it
// answers any request. So the unit's files are first looked up on disk, and their settings
// are written. Then systemd is asked which files it has loaded. These decide which settings
// are in force, and only then are complaints logged. If inotify misses a unit, the end of
// its job is a second sign, and a regular scan of the whole tree a third.
//
// One goroutine does everything except the requests to systemd.
type Service struct {
	host   cosched.Host // is read
	tree   Tree         // is written to
	bus    Bus
	log    Log
	record *Record
	reader *Reader

	cpus    int      // the reader's Topology when all units were last read again
	path    []string // where systemd looks for units
	units   map[string]*unit
	watcher *fsnotify.Watcher

	asked   map[string]bool // requests that wait or are in flight; true: something happened since, ask again
	waiting []string
	answers chan answer
	slots   chan struct{}
}

// unit is a unit whose cgroup exists.
type unit struct {
	group   cosched.Group
	inode   uint64
	settled bool // systemd said which files it has loaded, and their settings were written

	settings Settings
	applied  bool
	trouble  []Complaint // about settings
	said     map[Complaint]bool
}

type answer struct {
	name string
	Unit
	err error
}

// rootSlice has no directory of its own in the tree, and cannot have a home.
const rootSlice = "-.slice"

const (
	// rescanEvery bounds how long a unit has no values if inotify and D-Bus both missed it,
	// and how long it takes until a home that is given by name, such as llc:0, follows CPUs
	// that come online. A scan of 1,000 cgroups that have their values takes milliseconds.
	rescanEvery = time.Minute
	// askTimeout is longer than systemd was ever observed to be busy starting units.
	askTimeout = 90 * time.Second
	// askAtOnce limits the units that are asked about at the same time, each with four
	// requests. So the requests stay below the number of answers that dbus-daemon lets one
	// connection wait for (128), and systemd's queue stays short.
	askAtOnce = 16
	// madeAtOnce is how many events of new and removed cgroups are buffered here while a
	// cgroup is given its values. More events wait in inotify's own queue. systemd seldom
	// starts that many units together.
	madeAtOnce = 1024
)

// NewService makes a service. The record may come from a service that ran before.
func NewService(h cosched.Host, tree Tree, bus Bus, record *Record, log Log) *Service {
	return &Service{
		host: h, tree: tree, bus: bus, log: log, record: record, reader: NewReader(h),
		units: map[string]*unit{}, asked: map[string]bool{},
		answers: make(chan answer), slots: make(chan struct{}, askAtOnce),
	}
}

// Run works until the context ends. Ready is called once, when all units that existed at the
// start have been looked at.
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
		// Events of inotify come first: the tasks of units that start need their home. Requests
		// and their answers only confirm it, and keep systemd from starting other units.
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

// seen handles an event of inotify.
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

// told handles an event of systemd.
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

// again treats all units as if they were seen for the first time.
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

// look finds out whether the cgroup of a unit was made or removed.
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
		s.children(g) // those that were made before it was watched
	}
}

// below looks again at the units in a slice that was removed, or removed and made again. inotify
// keeps watching a removed cgroup unless that is ended here.
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

// ask queues a request to systemd about a unit. Requests are sent when no unit waits for its first
// values.
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

// answered handles systemd's answer about a unit.
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
		u = &unit{group: cosched.Group(s.host.Cgroup)} // only to log a complaint if it has settings
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

// write reads a unit's files and writes the settings that they ask for. With certain, the files
// are those that systemd has loaded, and not a guess.
func (s *Service) write(name string, u *unit, files []string, certain bool) {
	settings, trouble := s.reader.Read(files)
	was, now := s.record.Get(name, u.inode), Written{settings.Home != nil, settings.Weights != nil}
	u.trouble = trouble
	var refused []Complaint
	if !certain || !u.applied || !same(settings, u.settings) || was != now {
		s.recordFailed(name, s.record.Set(name, u.inode, Written{now.Home || was.Home, now.Weights || was.Weights}))
		if !certain {
			was = Written{} // nothing is reset because of a guess
		}
		var gone error
		if refused, gone = Apply(s.tree, u.group, settings, was); gone != nil {
			return // inotify reports the removal, and the next cgroup of that unit, as usual
		}
		u.settings, u.applied = settings, len(refused) == 0
	}
	if !certain {
		return
	}
	s.complain(name, u, append(trouble, refused...))
	// What was refused now may be possible later, so the unit is tried again.
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

// complain logs the complaints that were not logged yet since this unit was started.
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
		s.log(journal.PriErr, name, Complaint{Text: fmt.Sprintf("%v: a home or weights may stay after their settings are removed", err)})
	}
}

func (s *Service) say(priority journal.Priority, c Complaint) { s.log(priority, "", c) }
