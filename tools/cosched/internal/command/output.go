package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// output is a file for data that takes long to produce. It is created beforehand, under another
// name, and an existing file of the final name stays until everything is written.
type output struct {
	*os.File
	name string // of the file that it replaces; empty if that file is written directly
}

func createOutput(name string) (*output, error) {
	old, err := os.Lstat(name)
	if err == nil && !old.Mode().IsRegular() {
		// A device, a pipe, or a link such as /dev/stdout: it is written directly, not replaced.
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		return &output{File: f}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	there := err == nil
	if there {
		// A file that may not be written is not replaced, although rename(2) would do it.
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".cosched-*")
	if err != nil {
		if there {
			err = fmt.Errorf("the file that is to replace it cannot be made in its folder: %w", pathless(err))
		}
		return nil, err
	}
	o := &output{f, name}
	mode := 0o666 &^ umask()
	if there {
		mode = old.Mode().Perm()
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(st.Uid), int(st.Gid)) // as far as this process is permitted to
		}
	}
	if err := f.Chmod(mode); err != nil {
		o.discard()
		return nil, err
	}
	return o, nil
}

// umask gives the umask of this process. The only way to read it is to set it.
func umask() os.FileMode {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return os.FileMode(mask)
}

// finish writes the file and renames it to its final name.
func (o *output) finish(write func(io.Writer) error) error {
	if o.name != "" {
		if err := errors.Join(write(o), o.Close()); err != nil {
			return err
		}
		return os.Rename(o.Name(), o.name)
	}
	info, err := o.Stat()
	if err == nil && info.Mode().IsRegular() { // the target of a link
		err = o.Truncate(0)
	}
	if err != nil {
		return err
	}
	return errors.Join(write(o), o.Close())
}

// discard closes the file, and removes it unless it is finished.
func (o *output) discard() {
	_ = o.Close()
	if o.name != "" {
		_ = os.Remove(o.Name())
	}
}
