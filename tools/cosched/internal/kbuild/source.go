package kbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sourceEnv is the environment variable that names tarballs to use instead of the
// distribution's packages, separated by colons.
const sourceEnv = "COSCHED_LINUX_SOURCE"

// ErrNoSource is the error for a base whose source is neither on this system nor available
// from an archive that this system knows.
var ErrNoSource = errors.New("no source")

// givenTarball returns the tarball that sourceEnv names for a base: one with the version of
// the base in its name, or, for the base that is built unless told otherwise, one with no
// version in its name.
func givenTarball(base string) string {
	of := regexp.MustCompile(`(?:^|[-_])(\d+\.\d+)(?:[-_.]|$)`)
	for _, p := range filepath.SplitList(os.Getenv(sourceEnv)) {
		m := of.FindStringSubmatch(filepath.Base(p))
		if m != nil && m[1] == base || m == nil && base == Base() {
			return p
		}
	}
	return ""
}

// sourceSuites has, for a base, the release of Debian whose archive has the base's source
// package. A system of another release gets the package from there.
var sourceSuites = map[string]string{"7.3": "trixie-backports"}

// findTarball returns the source tarball of the base and its version.
//
// Debian's linux-source-6.12 installs /usr/src/linux-source-6.12.tar.xz. That name has no
// point release, so the version is taken from the package.
func (b *builder) findTarball(ctx context.Context) (path, version string, err error) {
	base := b.opt.Base
	if p := givenTarball(base); p != "" {
		info, err := os.Stat(p)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", sourceEnv, err)
		}
		return p, fmt.Sprintf("%s-%s", base, hashOf(p, info.ModTime().String(), strconv.FormatInt(info.Size(), 10))[:12]), nil
	}
	pkg := "linux-source-" + base
	path = "/usr/src/" + pkg + ".tar.xz"
	info, err := os.Stat(path)
	if os.IsNotExist(err) && sourceSuites[base] != "" {
		return b.fetchTarball(ctx, pkg, sourceSuites[base])
	}
	if err != nil {
		return "", "", fmt.Errorf("no source of Linux %s: run `make setup` as root, or install the package %s,"+
			" or set %s to a tarball with that source: %w", base, pkg, sourceEnv, err)
	}
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", pkg).Output()
	version = strings.TrimSpace(string(out))
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil || version == "" {
		version = fmt.Sprintf("%s-%d", base, info.ModTime().Unix())
	}
	return path, version, nil
}

// fetchTarball takes the source tarball of Linux and its version out of the package of
// another release of Debian. The package is downloaded once, and again when it is two weeks
// old.
func (b *builder) fetchTarball(ctx context.Context, pkg, suite string) (path, version string, err error) {
	lock, err := b.lock(ctx, "fetch", syscall.LOCK_EX)
	if err != nil {
		return "", "", err
	}
	defer lock.Close()
	packages := filepath.Join(b.base, "apt", "packages")
	newest := func() string {
		found, _ := filepath.Glob(filepath.Join(packages, pkg+"_*.deb"))
		if len(found) == 0 {
			return ""
		}
		return slices.MaxFunc(found, func(x, y string) int { return cmp.Compare(modTime(x), modTime(y)) })
	}
	deb := newest()
	if deb == "" || time.Since(time.Unix(0, modTime(deb))) > 14*24*time.Hour {
		if _, err := Mirror(ctx); err != nil && deb == "" && ctx.Err() == nil {
			return "", "", fmt.Errorf("%w of Linux %s: %w; set %s to the %s.tar.xz taken out of Debian's package",
				ErrNoSource, b.opt.Base, err, sourceEnv, pkg)
		}
		fmt.Fprintf(b.out, "kernel: fetching the package %s of Debian %s\n", pkg, suite)
		switch err := b.apt(ctx, suite, "deb", pkg, "download"); {
		case err == nil:
			deb = newest()
			now := time.Now()
			if err := os.Chtimes(deb, now, now); err != nil {
				return "", "", err
			}
		case deb == "":
			return "", "", fmt.Errorf("%w\nor set %s to the %s.tar.xz taken out of Debian's package", err, sourceEnv, pkg)
		default:
			fmt.Fprintf(b.out, "kernel: going on with %s: %v\n", filepath.Base(deb), err)
		}
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "-f", deb, "Version").Output()
	if err != nil {
		return "", "", fmt.Errorf("reading %s: %w", deb, err)
	}
	version = strings.TrimSpace(string(out))
	dir := filepath.Join(b.base, "apt", "source-"+safeName(version))
	path = filepath.Join(dir, "usr", "src", pkg+".tar.xz")
	if _, err := os.Stat(path); err == nil {
		return path, version, nil
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, tmp)
	killGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("unpacking %s: %w\n%s", deb, err, out)
	}
	return path, version, os.Rename(tmp, dir)
}

// unpack returns the unmodified source, from the cache if it is there.
func (b *builder) unpack(ctx context.Context) (source, error) {
	tarball, version, err := b.findTarball(ctx)
	if err != nil {
		return source{}, err
	}
	dir := filepath.Join(b.base, "pristine-"+safeName(version))
	src := source{dir: dir, version: version, hash: "pristine"}
	if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
		return src, nil
	}
	lock, err := b.lock(ctx, filepath.Base(dir), syscall.LOCK_EX)
	if err != nil {
		return source{}, err
	}
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
		return src, nil // another build unpacked it while this one waited for the lock
	}
	fmt.Fprintf(b.out, "kernel: unpacking Linux %s from %s\n", version, tarball)
	tmp, err := os.MkdirTemp(b.base, "unpack-")
	if err != nil {
		return source{}, err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, "tar", "-xf", tarball, "-C", tmp, "--strip-components=1", "--no-same-owner")
	killGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return source{}, fmt.Errorf("unpacking %s: %w\n%s", tarball, err, out)
	}
	if is, err := makefileVersion(filepath.Join(tmp, "Makefile")); err != nil || is != b.opt.Base {
		return source{}, fmt.Errorf("%s is the source of Linux %s, not of %s: set %s to that, or leave it out (%w)",
			tarball, cmp.Or(is, "?"), b.opt.Base, sourceEnv, cmp.Or(err, errors.New("VERSION and PATCHLEVEL of its Makefile")))
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return source{}, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return source{}, err
	}
	return src, nil
}

// makefileVersion reads which version of Linux a Makefile belongs to, such as 6.12.
func makefileVersion(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^VERSION = (\d+)\nPATCHLEVEL = (\d+)$`).FindStringSubmatch(string(data))
	if m == nil {
		return "", errors.New("no VERSION and PATCHLEVEL in its Makefile")
	}
	return m[1] + "." + m[2], nil
}

// safeName makes a version usable as part of a file name.
func safeName(s string) string {
	return regexp.MustCompile(`[^A-Za-z0-9.+~-]`).ReplaceAllString(s, "_")
}

// overlayDirs are the directories of the repository whose files belong at the same path in
// a kernel tree. Files of Documentation do too, but changing them changes no kernel.
var overlayDirs = []string{"kernel", "include"}

// findOverlay lists the overlay's files, relative to the repository.
func findOverlay(root string) ([]string, error) {
	var files []string
	for _, d := range overlayDirs {
		err := filepath.WalkDir(filepath.Join(root, d), func(path string, e os.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			// Files that editors and patch leave behind are not part of the overlay.
			if n := e.Name(); strings.HasPrefix(n, ".") || strings.HasSuffix(n, "~") ||
				strings.HasSuffix(n, ".orig") || strings.HasSuffix(n, ".rej") {
				return nil
			}
			rel, err := filepath.Rel(root, path)
			files = append(files, rel)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading the overlay: %w", err)
		}
	}
	slices.Sort(files)
	return files, nil
}

// Overlay lists the files of the overlay, relative to the repository.
func Overlay(root string) ([]string, error) { return findOverlay(root) }

// Bases lists the versions of Linux that the repository has a series for.
func Bases(root string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "patches", "linux-*", "series"))
	if err != nil {
		return nil, err
	}
	var bases []string
	for _, d := range dirs {
		bases = append(bases, strings.TrimPrefix(filepath.Base(filepath.Dir(d)), "linux-"))
	}
	return bases, nil
}

// Patches lists the patches for a base, in order, as paths.
func Patches(root, base string) ([]string, error) {
	if base == "" {
		base = Base()
	}
	return readSeries(filepath.Join(root, "patches", "linux-"+base))
}

// readSeries returns the paths of the patches of a quilt series, in order. A
// missing series is an empty one.
func readSeries(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "series"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var patches []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			patches = append(patches, filepath.Join(dir, f[0]))
		}
	}
	return patches, nil
}
