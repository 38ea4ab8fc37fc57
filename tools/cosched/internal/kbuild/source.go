package kbuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sourceEnv names a tarball to use instead of the distribution's package.
const sourceEnv = "COSCHED_LINUX_SOURCE"

// findTarball returns the source tarball of a base and its version.
//
// Debian's linux-source-6.12 puts /usr/src/linux-source-6.12.tar.xz there: its
// name has no point release, so the version comes from the package.
func findTarball(ctx context.Context, base string) (path, version string, err error) {
	if p := os.Getenv(sourceEnv); p != "" {
		info, err := os.Stat(p)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", sourceEnv, err)
		}
		return p, fmt.Sprintf("%s-%s", base, hashOf(p, info.ModTime().String(), strconv.FormatInt(info.Size(), 10))[:12]), nil
	}
	pkg := "linux-source-" + base
	path = "/usr/src/" + pkg + ".tar.xz"
	info, err := os.Stat(path)
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

// unpack returns the unmodified source, from the cache if it is there.
func (b *builder) unpack(ctx context.Context) (source, error) {
	tarball, version, err := findTarball(ctx, b.opt.Base)
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
		return src, nil // another build did it while this one waited
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
	if err := os.Chmod(tmp, 0o755); err != nil {
		return source{}, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return source{}, err
	}
	return src, nil
}

// safeName makes a version usable as part of a file name.
func safeName(s string) string {
	return regexp.MustCompile(`[^A-Za-z0-9.+~-]`).ReplaceAllString(s, "_")
}

// overlayDirs are the directories of the repository whose files belong at the
// same path in a kernel tree. Documentation does too, but changing it changes no kernel.
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
			// Editors' and patch's leavings are not part of it.
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

// Patches lists the patches for a base, in order, as paths.
func Patches(root, base string) ([]string, error) {
	if base == "" {
		base = DefaultBase
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
