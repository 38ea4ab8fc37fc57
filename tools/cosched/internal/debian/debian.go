// Package debian makes disk images of Debian for guests (package vm), with mmdebstrap, from
// the mirror that this machine's apt uses.
//
// An image has systemd, and the container runtimes and cgroup tools that cosched is used
// with, as Debian ships them: see Packages and Machines. Guests share an image: what a
// guest writes goes to a temporary file of QEMU, and nothing of it is kept. Images are
// cached for a week, so that guests get updates of Debian.
package debian

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"cosched.io/cosched/internal/kbuild"
)

// Suites are the releases of Debian that the tests use, the oldest first. Images of other
// releases can be made too.
var Suites = []string{"bookworm", "trixie"}

// Packages are what an image has in addition to Debian's essential packages and apt.
var Packages = []string{
	// The service manager, that of a user, and the bus to talk to them
	"systemd", "systemd-sysv", "dbus", "libpam-systemd", "dbus-user-session",
	// libcgroup
	"cgroup-tools",
	// Container runtimes, and what they need when they run without root
	"runc", "crun", "podman", "containerd", "uidmap",
	// What tests use: a root file system for containers, and tools to look around
	"busybox-static", "procps", "iproute2",
}

// setup is run by mmdebstrap, with the image's root directory as its argument, when the
// packages are installed.
//
//go:embed setup.sh
var setup string

// size is that of an image's file system, of which 600 MB are used. The rest is holes in
// the image file.
const size = "3G"

// unusedFor is how long an image is kept that is not used.
const unusedFor = 14 * 24 * time.Hour

var suiteName = regexp.MustCompile(`^[a-z][a-z-]*$`)

// Machines are the additional packages of an image whose guests run virtual machines with
// libvirt.
var Machines = []string{
	"libvirt-daemon-system", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86",
	// systemd-machined, with which libvirt registers machines, as on most servers
	"systemd-container",
}

// Image returns the path of a suite's image with Packages. If the image is not in the
// cache, it is made. Messages about that are written to out.
func Image(ctx context.Context, suite string, out io.Writer) (string, error) {
	return ImageWith(ctx, suite, nil, out)
}

// ImageWith is Image with additional packages.
func ImageWith(ctx context.Context, suite string, more []string, out io.Writer) (string, error) {
	if !suiteName.MatchString(suite) {
		return "", fmt.Errorf("%q is no suite of Debian, such as %s", suite, strings.Join(Suites, ", "))
	}
	cache, err := kbuild.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "debian")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, suite+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := waitLock(ctx, lock); err != nil {
		return "", err
	}
	packages := slices.Concat(Packages, more)
	image := filepath.Join(dir, suite+"-"+key(suite, packages, time.Now())+".ext4")
	now := time.Now()
	if _, err := os.Stat(image); err == nil {
		fmt.Fprintf(out, "debian: the image of %s is up to date\n", suite)
		// The time of the last use decides what is kept.
		return image, os.Chtimes(image, now, now)
	}
	forget(dir, now)
	fmt.Fprintf(out, "debian: making an image of %s, 1 to 3 minutes\n", suite)
	if err := build(ctx, suite, packages, dir, image); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "debian: made %s in %s\n", image, time.Since(now).Round(time.Second))
	return image, nil
}

// key is a hash of everything that goes into an image, as far as that is known before the
// image is made.
func key(suite string, packages []string, at time.Time) string {
	year, week := at.ISOWeek()
	h := sha256.Sum256(fmt.Appendf(nil, "%s %d-%d %s %s %q", suite, year, week, size, setup, packages))
	return fmt.Sprintf("%x", h[:8])
}

// forget removes images that have not been used for longer than unusedFor.
func forget(dir string, now time.Time) {
	old, _ := filepath.Glob(filepath.Join(dir, "*.ext4"))
	for _, f := range old {
		if info, err := os.Stat(f); err == nil && now.Sub(info.ModTime()) > unusedFor {
			os.Remove(f)
		}
	}
}

func build(ctx context.Context, suite string, packages []string, dir, image string) error {
	mirror, err := kbuild.Mirror(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	tar, root, disk := filepath.Join(tmp, "root.tar"), filepath.Join(tmp, "root"), filepath.Join(tmp, "disk")
	hook := filepath.Join(tmp, "setup")
	if err := os.WriteFile(hook, []byte(setup), 0o755); err != nil {
		return err
	}
	args := []string{
		"--variant=minbase", "--include=" + strings.Join(packages, ","), "--customize-hook=" + hook + ` "$1"`,
		`--aptopt=Acquire::Retries "3"`,
		"--skip=cleanup/reproducible", // it would remove the machine's identifier, and make each boot the first one
		// Nobody reads these files in a guest, and they are a fifth of the image.
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	}
	if suite == "sid" {
		// A mirror of sid is often older than its own limit of validity allows.
		args = append(args, `--aptopt=Acquire::Check-Valid-Until "false"`)
	}
	if err := command(ctx, "mmdebstrap", append(args, suite, tar, mirror)...); err != nil {
		return fmt.Errorf("making an image of Debian %s: %w", suite, err)
	}
	// e2fsprogs before 1.47.1 cannot make a file system from an archive, so the archive is
	// unpacked first. The file system has no journal: nothing is kept, so nothing needs to
	// be recovered.
	pack := fmt.Sprintf("mkdir %[2]s && tar -x -p --numeric-owner --xattrs --xattrs-include='*' -f %[1]s -C %[2]s && "+
		"PATH=$PATH:/sbin:/usr/sbin mke2fs -q -t ext4 -O ^has_journal -d %[2]s %[3]s %[4]s && rm -rf %[2]s", quote(tar), quote(root), quote(disk), size)
	argv := []string{"sh", "-c", pack}
	if os.Geteuid() != 0 {
		// In a user namespace, files can have the owners that the archive says.
		argv = append([]string{"mmdebstrap", "--unshare-helper"}, argv...)
	}
	if err := command(ctx, argv[0], argv[1:]...); err != nil {
		return fmt.Errorf("making an image of Debian %s: %w", suite, err)
	}
	return os.Rename(disk, image)
}

// said is how many bytes of a failed command's output are shown, counted from the end.
const said = 2000

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: run `tools/setup.sh --integration` as root, or install the package %s", err, name)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, text[max(0, len(text)-said):])
	}
	return nil
}

// waitLock waits until no other process is making an image of the suite.
func waitLock(ctx context.Context, f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
