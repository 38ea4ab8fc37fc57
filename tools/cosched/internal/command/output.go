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

// output is a file for what takes long to come by: it is made before, and what is there under
// its name stays until all is written.
type output struct {
	*os.File
	name string // of the file that it replaces; none where it is written to itself
}

func createOutput(name string) (*output, error) {
	old, err := os.Lstat(name)
	if err == nil && !old.Mode().IsRegular() {
		// A device, a pipe, a link such as /dev/stdout: it stays what it is.
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
		// One that may not be written is not replaced, though rename(2) would.
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".cosched-*")
	if err != nil {
		if there {
			err = fmt.Errorf("the file that replaces it is made in its folder: %w", pathless(err))
		}
		return nil, err
	}
	o := &output{f, name}
	mode := 0o666 &^ umask()
	if there {
		mode = old.Mode().Perm()
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(st.Uid), int(st.Gid)) // as far as one may
		}
	}
	if err := f.Chmod(mode); err != nil {
		o.discard()
		return nil, err
	}
	return o, nil
}

// umask is the one of this process, which nothing but setting it tells.
func umask() os.FileMode {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return os.FileMode(mask)
}

// finish writes the file and puts it in its place.
func (o *output) finish(write func(io.Writer) error) error {
	if o.name != "" {
		if err := errors.Join(write(o), o.Close()); err != nil {
			return err
		}
		return os.Rename(o.Name(), o.name)
	}
	info, err := o.Stat()
	if err == nil && info.Mode().IsRegular() { // behind a link
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
