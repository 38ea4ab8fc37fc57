package coschedd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Record remembers which settings the service wrote to the cgroups of units. A setting that is
// gone from the unit's files is reset only if the service wrote it, not if something else did.
// With a directory, which has a file for each unit, the record outlives the service.
type Record struct {
	dir   string
	units map[string]entry
}

type entry struct {
	Inode uint64 // of the cgroup: one that is removed and made again has another inode
	Written
}

// OpenRecord reads the record in a directory. Without a directory, the record is only in memory.
func OpenRecord(dir string) (*Record, error) {
	r := &Record{dir, map[string]entry{}}
	if dir == "" {
		return r, nil
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		var e entry
		if _, err := fmt.Sscanf(string(text), "%d %t %t\n", &e.Inode, &e.Home, &e.Weights); err != nil {
			continue // incomplete after a crash: the cgroup was not written to by then
		}
		r.units[f.Name()] = e
	}
	return r, err
}

// Get gives what was written to a unit's cgroup.
func (r *Record) Get(unit string, inode uint64) Written {
	if e := r.units[unit]; e.Inode == inode {
		return e.Written
	}
	return Written{}
}

// Set records what is about to be written to a unit's cgroup.
func (r *Record) Set(unit string, inode uint64, w Written) error {
	e := entry{inode, w}
	old, ok := r.units[unit]
	if old == e || !ok && w == (Written{}) {
		return nil
	}
	if w == (Written{}) {
		return r.Forget(unit)
	}
	r.units[unit] = e
	if r.dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(r.dir, unit), fmt.Appendf(nil, "%d %t %t\n", e.Inode, e.Home, e.Weights), 0o600)
}

// Forget removes the entry of a unit whose cgroup is gone.
func (r *Record) Forget(unit string) error {
	if _, ok := r.units[unit]; !ok {
		return nil
	}
	delete(r.units, unit)
	if r.dir == "" {
		return nil
	}
	err := os.Remove(filepath.Join(r.dir, unit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Keep forgets all units except those that keep selects.
func (r *Record) Keep(keep func(unit string) bool) error {
	var errs []error
	for unit := range r.units {
		if !keep(unit) {
			errs = append(errs, r.Forget(unit))
		}
	}
	return errors.Join(errs...)
}
