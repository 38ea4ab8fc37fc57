// Package coschedd gives systemd's units the homes and weights that their unit files ask
// for in [X-Cosched]. systemd ignores the section and does not show it on D-Bus.
package coschedd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/unitfile"
)

// Section is the section that the settings of a unit are in.
const Section = "X-Cosched"

// Keys of the section.
const (
	KeyHome    = "CPUsPreferred"
	KeyWeights = "Weights"
)

// At is a line of a file.
type At struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

func (a At) String() string {
	if a.Line == 0 {
		return a.File
	}
	return fmt.Sprintf("%s:%d", a.File, a.Line)
}

// Settings are what a unit's files ask for. A setting that is nil is not asked for. HomeAt and
// WeightsAt are the lines that decide, even if that is an empty assignment that resets an earlier
// one.
type Settings struct {
	Home      *cosched.Home
	HomeAt    At
	Weights   *cosched.Weights
	WeightsAt At
}

// Complaint is what is wrong with a setting, or with writing it.
type Complaint struct {
	At
	Text string
	// Note is set if the setting was written, but has less effect than was asked for.
	Note bool
}

func (c Complaint) String() string {
	if c.At == (At{}) {
		return c.Text
	}
	return c.At.String() + ": " + c.Text
}

// Reader reads the settings of units.
type Reader struct {
	host cosched.Host
	// The homes that names of domains stand for, as long as the same CPUs are online.
	// They are kept because reading the topology of a large machine takes longer than
	// starting a unit.
	homes   map[string]cosched.Home
	online  string
	changes int
}

// NewReader makes a reader for a machine.
func NewReader(h cosched.Host) *Reader { return &Reader{host: h, homes: map[string]cosched.Home{}} }

// Topology counts the changes of the set of online CPUs. After a change, names of domains can
// stand for other CPUs.
func (r *Reader) Topology() int {
	text, err := os.ReadFile(filepath.Join(r.host.Sys, "devices/system/cpu/online"))
	if err == nil && string(text) != r.online {
		r.online = string(text)
		r.changes++
		clear(r.homes)
	}
	return r.changes
}

// Read reads the files of a unit. Later files override earlier ones. As in systemd, an invalid
// assignment is ignored.
func (r *Reader) Read(files []string) (s Settings, complaints []Complaint) {
	r.Topology()
	for _, file := range files {
		text, err := ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // systemd has not read it either, or will be told to reload
		}
		if err != nil {
			complaints = append(complaints, Complaint{At: At{File: file}, Text: fmt.Sprintf("not read: %v", errors.Unwrap(err))})
			continue
		}
		complaints = append(complaints, r.add(&s, file, text)...)
	}
	return s, complaints
}

// Check checks one file that is about to be written, for this machine.
func (r *Reader) Check(file string, text []byte) []Complaint {
	r.Topology()
	var s Settings
	complaints := r.add(&s, file, text)
	if err := r.possible(s); err != nil {
		complaints = append(complaints, Complaint{At: s.HomeAt, Text: err.Error()})
	}
	return complaints
}

func (r *Reader) possible(s Settings) error {
	if s.Home == nil {
		return nil
	}
	return r.host.CheckPossible(*s.Home)
}

func (r *Reader) add(s *Settings, file string, text []byte) (complaints []Complaint) {
	f := unitfile.Parse(text, Section)
	for _, i := range f.Issues {
		complaints = append(complaints, Complaint{At: At{file, i.Line}, Text: i.Text})
	}
	for _, a := range f.Assignments {
		at := At{file, a.Line}
		if err := r.assign(s, at, a.Key, a.Value); err != nil {
			complaints = append(complaints, Complaint{At: at, Text: fmt.Sprintf("%s=%s: ignored: %v", a.Key, a.Value, err)})
		}
	}
	return complaints
}

// Valid checks the value of a key, for this machine.
func (r *Reader) Valid(key, value string) error {
	r.Topology()
	var s Settings
	if err := r.assign(&s, At{}, key, value); err != nil {
		return err
	}
	return r.possible(s)
}

func (r *Reader) assign(s *Settings, at At, key, value string) error {
	unset := value == "" || value == "inherit"
	switch {
	case key != KeyHome && key != KeyWeights:
		return fmt.Errorf("no such setting: [%s] has %s= and %s=", Section, KeyHome, KeyWeights)
	case strings.Contains(value, "%"):
		return errors.New("specifiers such as %i are not replaced here")
	case key == KeyHome && unset:
		s.Home, s.HomeAt = nil, at
	case key == KeyHome:
		home, ok := r.homes[value]
		if !ok {
			var err error
			if home, err = r.host.ParseHome(value); err != nil {
				return err
			}
			r.homes[value] = home
		}
		s.Home, s.HomeAt = &home, at
	case unset:
		s.Weights, s.WeightsAt = nil, at
	default:
		w, err := cosched.ParseWeights(strings.Replace(value, ":", " ", 1))
		if err != nil {
			return errors.New("weights are two integers from 1 to 10000, as 100 150")
		}
		s.Weights, s.WeightsAt = &w, at
	}
	return nil
}

// maxFile is far more than the length of any unit file: four lines of maximum length.
const maxFile = 4 * unitfile.MaxLine

// ReadFile reads a unit file. A masked file, which is a link to /dev/null, counts as empty.
func ReadFile(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	fail := func(why string) error { return &fs.PathError{Op: "read", Path: file, Err: errors.New(why)} }
	if target, _ := os.Readlink(file); target == os.DevNull || file == os.DevNull {
		return nil, nil
	}
	if !st.Mode().IsRegular() {
		return nil, fail("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fail(fmt.Sprintf("longer than %d bytes", maxFile))
	}
	return text, err
}

// Written says which settings were written to a cgroup.
type Written struct{ Home, Weights bool }

// Tree is what values are written to. It is a cosched.Host, except in tests, which imitate a kernel.
type Tree interface {
	Existing(name string, enable bool) (cosched.Group, error)
	SetHome(g cosched.Group, home cosched.Home, force bool) (note string, err error)
	SetWeights(g cosched.Group, w *cosched.Weights) error
}

// Apply writes the settings to a cgroup, and enables the controller for it if necessary. It
// resets settings that were written before and are not asked for any more. If one setting is
// refused, the other is still written. The error gone says that the cgroup was removed.
func Apply(h Tree, g cosched.Group, s Settings, was Written) (complaints []Complaint, gone error) {
	complain := func(at At, err error) bool {
		switch {
		case err == nil:
		case cosched.Gone(err):
			gone = err
		default:
			complaints = append(complaints, Complaint{At: at, Text: err.Error()})
		}
		return err == nil
	}
	if s.Home != nil || s.Weights != nil {
		at := s.HomeAt
		if s.Home == nil {
			at = s.WeightsAt
		}
		if _, err := h.Existing(string(g), true); !complain(at, err) {
			return complaints, gone
		}
	} else if !g.Enabled() {
		return nil, nil
	}
	// Weights first: a write that follows a change of home within an RCU grace period has to wait
	// until that grace period ends, for several milliseconds.
	if s.Weights != nil || was.Weights {
		complain(s.WeightsAt, h.SetWeights(g, s.Weights))
	}
	switch {
	case s.Home != nil:
		// A home that cannot be used now may be usable later, so it is written with force.
		note, err := h.SetHome(g, *s.Home, true)
		complain(s.HomeAt, err)
		if err == nil && note != "" {
			complaints = append(complaints, Complaint{At: s.HomeAt, Text: note, Note: true})
		}
	case was.Home:
		_, err := h.SetHome(g, cosched.Home{}, true)
		complain(At{}, err)
	}
	return complaints, gone
}

// cgroupTypes maps the types of units that have a cgroup to their D-Bus interfaces.
var cgroupTypes = map[string]string{
	".service": "Service", ".scope": "Scope", ".slice": "Slice", ".socket": "Socket", ".mount": "Mount", ".swap": "Swap",
}

// UnitOf gives the unit of the system manager that a cgroup belongs to, if there is one. Only
// cgroups directly in slices are considered: a cgroup below any other unit is delegated, and its
// owner can choose any name for it.
func UnitOf(h cosched.Host, g cosched.Group) (string, bool) {
	rel, ok := strings.CutPrefix(string(g), h.Cgroup+"/")
	if !ok || filepath.Clean(string(g)) != string(g) || strings.ContainsAny(rel, "\n\x00") {
		return "", false
	}
	dir, name := filepath.Split(rel)
	for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		if dir != "" && !strings.HasSuffix(part, ".slice") {
			return "", false
		}
	}
	// systemd puts _ before a name that could be the name of one of the kernel's files.
	name = strings.TrimPrefix(name, "_")
	return name, HasCgroup(name)
}

// HasCgroup reports whether a name is the name of a unit of a type that has a cgroup.
func HasCgroup(unit string) bool {
	suffix := filepath.Ext(unit)
	return cgroupTypes[suffix] != "" && unit != suffix && !strings.ContainsAny(unit, "/\n\x00")
}
