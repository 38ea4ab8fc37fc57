package kbuild

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// contrib is a program of Debian that is changed by a series in contrib/.
type contrib struct {
	name     string // of the source package, and in contrib/
	upstream string // the version that the series is for
	tarOnly  bool   // use upstream's source, without Debian's patches
	needs    []string
	script   string         // builds /tree in /build and puts the files for a guest under /out
	step     *regexp.Regexp // see type progress
}

// contribSuite is the Debian release that the programs come from, and in which they are
// built.
const contribSuite = "trixie"

var (
	//go:embed contrib-systemd.sh
	systemdScript string
	//go:embed contrib-crun.sh
	crunScript string

	contribs = []contrib{
		{"systemd", "257", false, []string{
			"gcc", "libc6-dev", "ccache", "meson", "ninja-build", "gperf", "pkgconf", "python3-jinja2",
			"libcap-dev", "libmount-dev", "libblkid-dev", "libcrypt-dev", "libpam0g-dev", "libseccomp-dev",
		}, systemdScript, ninjaStep},
		// The mirror may lack what Debian adds to upstream's source, which the build does
		// not need.
		{"crun", "1.21", true, []string{
			"gcc", "libc6-dev", "ccache", "make", "pkgconf", "python3", "libyajl-dev", "libcap-dev", "libseccomp-dev", "libsystemd-dev",
		}, crunScript, makeStep},
	}
)

// Contribs returns the names of the programs that BuildContrib can build.
func Contribs() (names []string) {
	for _, c := range contribs {
		names = append(names, c.name)
	}
	return names
}

// Contrib is a changed program of Debian that has been built.
type Contrib struct {
	Version string // of the source package
	Root    string // has the program's files, by their paths in a guest
}

// Files returns the paths of the files below Root, as a guest has them.
func (c *Contrib) Files() (paths []string, err error) {
	err = filepath.WalkDir(c.Root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, strings.TrimPrefix(path, c.Root))
		}
		return err
	})
	return paths, err
}

// BuildContrib builds a program of Debian with the series in contrib/NAME, or finds it in
// the cache. The source and the build dependencies are those of the mirror. The program is
// built in a Debian that mmdebstrap makes for it, and nothing of that is installed on this
// machine.
func BuildContrib(ctx context.Context, name string, o Options) (*Contrib, error) {
	b, err := newContribBuilder(name, o)
	if err != nil {
		return nil, err
	}
	lock, err := b.lock(ctx, "build", syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	src, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.base, "built-"+hashOf(b.key, src.version)[:16])
	built := &Contrib{Version: src.version, Root: dir}
	if _, err := os.Stat(dir); err == nil {
		fmt.Fprintf(b.out, "%s: the patched %s %s is up to date\n", name, name, src.version)
		return built, nil
	}
	t := &tree{pristine: src, dir: filepath.Join(b.base, "tree"), root: b.opt.Root, product: b.name, base: b.upstream, patches: b.patches}
	if err := t.patched(ctx); err != nil {
		return nil, err
	}
	return built, b.compile(ctx, t, dir)
}

type contribBuilder struct {
	*builder
	contrib
	patches []string
	key     string // of the series and of the way it is built
}

func newContribBuilder(name string, o Options) (*contribBuilder, error) {
	i := slices.IndexFunc(contribs, func(c contrib) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no patched program %q (there are: %s)", name, strings.Join(Contribs(), ", "))
	}
	base, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	b := &contribBuilder{builder: base, contrib: contribs[i]}
	b.base = filepath.Join(base.cache, name+"-"+b.upstream)
	if err := os.MkdirAll(b.base, 0o755); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.opt.Root, "contrib", name)
	if b.patches, err = readSeries(dir); err != nil {
		return nil, err
	}
	if len(b.patches) == 0 {
		return nil, fmt.Errorf("%s/series names no patch", dir)
	}
	parts := append(slices.Clone(b.needs), b.script, contribSuite)
	for _, p := range b.patches {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("the series names a patch that cannot be read: %w", err)
		}
		parts = append(parts, string(text))
	}
	b.key = hashOf(parts...)
	return b, nil
}

// sourceAge is the time after which the mirror is asked again whether it has a newer
// source.
const sourceAge = 7 * 24 * time.Hour

// source unpacks the newest source package, with Debian's own patches unless tarOnly is
// set.
func (b *contribBuilder) source(ctx context.Context) (source, error) {
	stamp := filepath.Join(b.base, "fetched")
	if age := time.Now().UnixNano() - modTime(stamp); age > int64(sourceAge) {
		fmt.Fprintf(b.out, "%s: fetching the source package of %s %s\n", b.name, b.name, b.upstream)
		args := []string{}
		if b.tarOnly {
			args = append(args, "--tar-only")
		}
		if err := b.aptSource(ctx, contribSuite, b.name, args...); err != nil {
			return source{}, err
		}
		if err := os.WriteFile(stamp, nil, 0o644); err != nil {
			return source{}, err
		}
	}
	pattern := "_*.dsc"
	if b.tarOnly {
		pattern = "_*.orig.tar.*z"
	}
	found, err := filepath.Glob(filepath.Join(b.base, "apt", "packages", b.name+pattern))
	if err != nil {
		return source{}, err
	}
	if len(found) == 0 {
		return source{}, fmt.Errorf("%s has no source of %s: remove %s to fetch it again", filepath.Join(b.base, "apt", "packages"), b.name, stamp)
	}
	file := slices.MaxFunc(found, func(x, y string) int { return cmp.Compare(modTime(x), modTime(y)) })
	_, version, _ := strings.Cut(filepath.Base(file), "_")
	version = sourceSuffix.ReplaceAllString(version, "")
	if version != b.upstream && !strings.HasPrefix(version, b.upstream+".") {
		return source{}, fmt.Errorf("the source of %s in Debian %s is %s, and contrib/%s is for %s: the series has to be brought to it", b.name, contribSuite, version, b.name, b.upstream)
	}
	dir := filepath.Join(b.base, "pristine-"+safeName(version))
	src := source{dir: dir, version: version}
	if _, err := os.Stat(dir); err == nil {
		return src, nil
	}
	tmp, err := os.MkdirTemp(b.base, "unpack-")
	if err != nil {
		return source{}, err
	}
	defer os.RemoveAll(tmp)
	to := filepath.Join(tmp, "src")
	// apt has checked the signature of what it downloaded.
	cmd := exec.CommandContext(ctx, "dpkg-source", "--no-check", "-x", file, to)
	if b.tarOnly {
		if err := os.Mkdir(to, 0o755); err != nil {
			return source{}, err
		}
		cmd = exec.CommandContext(ctx, "tar", "-xf", file, "-C", to, "--strip-components=1", "--no-same-owner")
	}
	killGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return source{}, fmt.Errorf("unpacking %s: %w\n%s", file, err, out)
	}
	return src, os.Rename(to, dir)
}

var sourceSuffix = regexp.MustCompile(`(\.dsc|\.orig\.tar\.\w+)$`)

// compile runs the script in a Debian with the build dependencies, which is thrown away
// afterwards. The compiler's output for each file is kept by ccache.
func (b *contribBuilder) compile(ctx context.Context, t *tree, dir string) error {
	mirror, err := Mirror(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.base, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	ccache := filepath.Join(b.base, "ccache")
	script, out := filepath.Join(tmp, "build.sh"), filepath.Join(tmp, "out")
	for _, d := range []string{ccache, out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(script, []byte(b.script), 0o755); err != nil {
		return err
	}
	logFile := filepath.Join(b.base, "cosched-build.log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	stampFile := filepath.Join(b.base, ".cosched-stamp")
	old := readStamp(stampFile)
	start := time.Now()
	fmt.Fprintf(b.out, "%s: building %s %s with contrib/%s in a Debian %s\n", b.name, b.name, t.pristine.version, b.name, contribSuite)
	p := newProgress(b.out, log, b.name, old.Steps)
	p.step = b.step
	defer p.stop()
	cmd := exec.CommandContext(ctx, "mmdebstrap", "--variant=apt", "--include="+strings.Join(b.needs, ","),
		`--aptopt=Acquire::Retries "3"`, "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--customize-hook=copy-in "+t.dir+" "+script+" /",
		"--customize-hook=mkdir \"$1\"/ccache \"$1\"/out",
		"--customize-hook=sync-in "+ccache+" /ccache",
		"--customize-hook=chroot \"$1\" env CCACHE_DIR=/ccache CCACHE_MAXSIZE=300M VERSION="+t.pristine.version+" sh /build.sh",
		"--customize-hook=sync-out /ccache "+ccache,
		"--customize-hook=sync-out /out "+out,
		contribSuite, "/dev/null", mirror)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=")
	killGroup(cmd)
	cmd.Stdout, cmd.Stderr = p, p.stderr()
	err = cmd.Run()
	p.stop()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: run `tools/setup.sh --integration` as root, or install the package mmdebstrap", err)
	case err != nil:
		return fmt.Errorf("building %s: %w\n%s\nthe whole log is in %s", b.name, err, p.tail(), logFile)
	}
	fmt.Fprintf(b.out, "%s: %s %s built, %d steps in %s\n", b.name, b.name, t.pristine.version, p.steps(), time.Since(start).Round(time.Second))
	if err := (stamp{Steps: max(p.steps(), old.Steps)}).write(stampFile); err != nil {
		return err
	}
	return os.Rename(out, dir)
}
