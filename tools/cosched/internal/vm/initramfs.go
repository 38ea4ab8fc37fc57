package vm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

var (
	//go:embed init.sh
	initScript []byte
	//go:embed disk-init.sh
	diskInitScript []byte
	//go:embed disk-start.sh
	diskStartScript []byte
	//go:embed coslab.service
	diskService []byte
)

// image collects the files of an initramfs. Each path is added once, and the directories
// above it are added before it.
type image struct {
	records []cpio.Record
	seen    map[string]bool
	prefix  string // goes before the paths of files that are for the disk
}

func newImage() *image { return &image{seen: map[string]bool{}} }

func (m *image) add(r cpio.Record) {
	r.Name = strings.TrimPrefix(path.Clean("/"+r.Name), "/")
	if m.seen[r.Name] {
		return
	}
	if dir := path.Dir(r.Name); dir != "." {
		m.add(cpio.Directory(dir, 0o755))
	}
	m.seen[r.Name] = true
	m.records = append(m.records, r)
}

func (m *image) data(name string, data []byte, mode fs.FileMode) {
	m.add(cpio.StaticFile(name, string(data), uint64(mode.Perm())))
}

func (m *image) file(name, host string, mode fs.FileMode) error {
	data, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	if mode == 0 {
		info, err := os.Stat(host)
		if err != nil {
			return err
		}
		mode = info.Mode()
	}
	m.data(name, data, mode)
	return nil
}

// program puts a host program into the guest at name, with the libraries that it needs to
// start, unless the guest has its own libraries.
func (m *image) program(name, host string) error {
	if err := m.file(name, host, 0o755); err != nil || m.prefix != "" {
		return err
	}
	libs, err := SharedLibraries(host)
	if err != nil {
		return err
	}
	for _, lib := range libs {
		if err := m.file(lib, lib, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeInitramfs makes the guest's initramfs.
func writeInitramfs(file string, c Config) error {
	if len(c.Command) == 0 {
		return errors.New("no command to run")
	}
	m, argv, err := contents(c)
	if err != nil {
		return err
	}
	var run strings.Builder
	for _, e := range c.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return fmt.Errorf("environment %q is not NAME=VALUE", e)
		}
		fmt.Fprintf(&run, "export %s=%s\n", name, shellQuote(value))
	}
	run.WriteString("cd /root\nexec")
	for _, a := range argv {
		run.WriteString(" " + shellQuote(a))
	}
	run.WriteString("\n")
	m.data(m.prefix+"/coslab/run", []byte(run.String()), 0o755)
	return m.write(file)
}

// GuestHash returns a hash of what the guest's initramfs has: names, modes and contents, in
// the order in which the guest unpacks them. These are busybox, the init, Programs with
// their libraries, and Files. Command and Env are not in it, except for a Command of the
// host.
func GuestHash(c Config) (string, error) {
	m, _, err := contents(c)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := m.archive(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// contents collects the files of the guest's initramfs, except for the script that starts
// the command, and returns the command as the guest has it.
func contents(c Config) (*image, []string, error) {
	m := newImage()
	for _, d := range []string{"dev", "proc", "sys", "tmp", "run", "root", "etc", "sbin", "usr/bin", "usr/sbin", "var/tmp"} {
		m.add(cpio.Directory(d, 0o755))
	}
	// The kernel opens these for init before devtmpfs is mounted.
	m.add(cpio.CharDev("dev/console", 0o600, 5, 1))
	m.add(cpio.CharDev("dev/null", 0o666, 1, 3))
	m.data("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"), 0o644)
	m.data("etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644)
	busybox, err := staticBusybox()
	if err != nil {
		return nil, nil, err
	}
	if err := m.file("bin/busybox", busybox, 0o755); err != nil {
		return nil, nil, err
	}
	bin := "/bin/"
	if c.Disk == "" {
		m.data("init", initScript, 0o755)
	} else {
		m.data("init", diskInitScript, 0o755)
		bin = "/usr/local/bin/"
		m.prefix = "/files"
		m.data(m.prefix+"/coslab/start", diskStartScript, 0o755)
		const units = "/etc/systemd/system/"
		m.data(m.prefix+units+"coslab.service", diskService, 0o644)
		m.add(cpio.Symlink(m.prefix+units+"multi-user.target.wants/coslab.service", units+"coslab.service"))
	}

	argv := slices.Clone(c.Command)
	if len(argv) > 0 && strings.Contains(argv[0], "/") {
		if _, err := os.Stat(argv[0]); err == nil {
			guest := bin + filepath.Base(argv[0])
			if err := m.program(m.prefix+guest, argv[0]); err != nil {
				return nil, nil, err
			}
			argv[0] = guest
		}
	}
	for _, p := range c.Programs {
		host, err := exec.LookPath(p)
		if err != nil {
			return nil, nil, err
		}
		if err := m.program(m.prefix+bin+filepath.Base(p), host); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range c.Files {
		if f.Host == "" {
			mode := f.Mode
			if mode == 0 {
				mode = 0o644
			}
			m.data(m.prefix+f.Path, f.Data, mode)
		} else if err := m.file(m.prefix+f.Path, f.Host, f.Mode); err != nil {
			return nil, nil, err
		}
	}
	return m, argv, nil
}

func (m *image) write(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	// An emulated CPU unpacks it, so speed matters more than size.
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := m.archive(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func (m *image) archive(w io.Writer) error {
	out := cpio.Newc.Writer(w)
	for _, r := range m.records {
		if err := out.WriteRecord(r); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return cpio.WriteTrailer(out)
}

// staticBusybox finds a busybox that needs no libraries.
func staticBusybox() (string, error) {
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox", "/bin/busybox.static"} {
		if _, err := os.Stat(p); err != nil {
			continue
		}
		libs, err := SharedLibraries(p)
		if err != nil {
			return "", err
		}
		if len(libs) == 0 {
			return p, nil
		}
	}
	return "", errors.New("no static busybox: run `make setup`, or install the package busybox-static")
}

// libraryDirs is where the loader of Debian and Ubuntu looks.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}

// SharedLibraries lists the loader and the libraries that a program needs to start. A file
// that is not an ELF program, such as a script, needs none.
func SharedLibraries(host string) ([]string, error) {
	var found []string
	seen := map[string]bool{}
	var visit func(file string) error
	visit = func(file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
			return nil
		}
		e, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, p := range e.Progs {
			if p.Type == elf.PT_INTERP {
				interp := make([]byte, p.Filesz)
				if _, err := p.ReadAt(interp, 0); err != nil {
					return fmt.Errorf("%s: its loader's name: %w", file, err)
				}
				if name := strings.TrimRight(string(interp), "\x00"); !seen[name] {
					seen[name] = true
					found = append(found, name)
				}
			}
		}
		needed, err := e.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: the libraries that it needs: %w", file, err)
		}
		dirs := slices.Clone(libraryDirs)
		for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
			if paths, err := e.DynString(tag); err == nil {
				for _, p := range paths {
					for _, d := range strings.Split(p, ":") {
						dirs = append([]string{strings.ReplaceAll(d, "$ORIGIN", filepath.Dir(file))}, dirs...)
					}
				}
			}
		}
		for _, lib := range needed {
			if seen[lib] {
				continue
			}
			seen[lib] = true
			i := slices.IndexFunc(dirs, func(d string) bool {
				_, err := os.Stat(filepath.Join(d, lib))
				return err == nil
			})
			if i < 0 {
				return fmt.Errorf("%s needs the library %s, which is not in %s", file, lib, strings.Join(dirs, ", "))
			}
			p := filepath.Join(dirs[i], lib)
			found = append(found, p)
			if err := visit(p); err != nil {
				return err
			}
		}
		return nil
	}
	err := visit(host)
	return found, err
}

// shellQuote quotes a word for the guest's shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
