// Package cosched makes clusters of threads and gives them a home. It reads and writes
// the files of the cosched cgroup controller, and reads the cache topology that a home is
// chosen from.
//
// Start with [ThisHost]. A program that puts a thread of its own into a cluster
// calls [runtime.LockOSThread] first and gives MoveThread the number from
// unix.Gettid. An error that is [errors.ErrUnsupported] says that the kernel has no
// controller and that nothing was done. Other errors are a [*Problem].
//
// Documentation/admin-guide/cgroup-v2-cosched.rst describes each file. The library for
// C is tools/lib/cosched.
package cosched

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The controller and its files, as they are named in a cgroup's directory.
const (
	Controller    = "cosched"
	FilePreferred = "cosched.cpus_preferred"
	FileEffective = "cosched.cpus_preferred.effective"
	FileWeights   = "cosched.weights"
	FileStat      = "cosched.stat"
	FileLoad      = "cosched.load"
)

// Group is a cgroup, given by its directory.
type Group string

// Path gives the path of one of the cgroup's files.
func (g Group) Path(file string) string { return filepath.Join(string(g), file) }

// Enabled reports whether the cgroup has the controller's files.
func (g Group) Enabled() bool {
	_, err := os.Stat(g.Path(FilePreferred))
	return err == nil
}

// EnableChildren enables a controller for the cgroup's children, so that they have its files.
func (g Group) EnableChildren(controller string) error {
	return g.Write("cgroup.subtree_control", "+"+controller)
}

// Preferred gives the CPUs that were asked for; none if nothing was asked for.
func (g Group) Preferred() (CPUs, error) { return g.readCPUs(FilePreferred) }

// SetPreferred asks for a home. An empty set removes the preference, so that the
// cgroup inherits its parent's home again.
func (g Group) SetPreferred(cpus CPUs) error { return g.Write(FilePreferred, cpus.String()) }

// Effective gives the home that is in force now; none if the cgroup has no
// preference, neither its own nor an inherited one.
func (g Group) Effective() (CPUs, error) { return g.readCPUs(FileEffective) }

// Weights are the costs of load in the comparison that decides whether a thread
// may leave its home for a domain D: Preferred x load(home) > Allowed x load(D).
type Weights struct {
	Preferred int // 1..10000, cost of load at home
	Allowed   int // 1..10000, cost of load elsewhere
}

// DefaultWeights are in force if no cgroup on the path to the root has set any.
var DefaultWeights = Weights{100, 150}

func (w Weights) String() string { return fmt.Sprintf("%d %d", w.Preferred, w.Allowed) }

// ParseWeights parses "PREFERRED ALLOWED".
func ParseWeights(s string) (Weights, error) {
	f := strings.Fields(s)
	if len(f) != 2 {
		return Weights{}, fmt.Errorf("weights %q: want two integers", s)
	}
	var v [2]int
	for i := range v {
		n, err := strconv.Atoi(f[i])
		if err != nil || n < 1 || n > 10000 {
			return Weights{}, fmt.Errorf("weights %q: %q is not in 1..10000", s, f[i])
		}
		v[i] = n
	}
	return Weights{v[0], v[1]}, nil
}

// Weights gives the weights in force, the cgroup's own or inherited ones.
func (g Group) Weights() (Weights, error) {
	s, err := g.read(FileWeights)
	if err != nil {
		return Weights{}, err
	}
	w, err := ParseWeights(s)
	if err != nil {
		return Weights{}, fmt.Errorf("%s: %w", g.Path(FileWeights), err)
	}
	return w, nil
}

// SetWeights gives the cgroup weights of its own.
func (g Group) SetWeights(w Weights) error { return g.Write(FileWeights, w.String()) }

// UnsetWeights makes the cgroup inherit its weights again.
func (g Group) UnsetWeights() error { return g.Write(FileWeights, "") }

// Stat reads the cgroup's counters.
func (g Group) Stat() (Stat, error) {
	s, err := g.read(FileStat)
	if err != nil {
		return Stat{}, err
	}
	st, err := ParseStat([]byte(s))
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", g.Path(FileStat), err)
	}
	return st, nil
}

// Load reads the cluster's decayed load.
func (g Group) Load() (Load, error) {
	s, err := g.read(FileLoad)
	if err != nil {
		return Load{}, err
	}
	l, err := ParseLoad([]byte(s))
	if err != nil {
		return Load{}, fmt.Errorf("%s: %w", g.Path(FileLoad), err)
	}
	return l, nil
}

// Write writes one value and a newline to one of the cgroup's files in a single
// write, as the kernel accepts or refuses each write as a whole.
func (g Group) Write(file, value string) error {
	// Not os.WriteFile: it would create the file if the directory is not a
	// cgroup. Only the kernel makes these files.
	f, err := os.OpenFile(g.Path(file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(value + "\n"))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing %q to %s: %w", value, g.Path(file), errno(err))
	}
	return nil
}

func (g Group) read(file string) (string, error) {
	b, err := os.ReadFile(g.Path(file))
	return string(b), err
}

func (g Group) readCPUs(file string) (CPUs, error) {
	s, err := g.read(file)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUs(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Path(file), err)
	}
	return cpus, nil
}

// errno extracts the bare error number from a path error, whose text would
// repeat the path that the caller's message already names.
func errno(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		if e, ok := pe.Err.(syscall.Errno); ok {
			return e
		}
	}
	return err
}
