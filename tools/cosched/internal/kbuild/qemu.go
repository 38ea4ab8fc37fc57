package kbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// qemuSourceEnv is the environment variable that names the .dsc file of a source package to
// use instead of the mirror's.
const qemuSourceEnv = "COSCHED_QEMU_SOURCE"

// The version of QEMU that the series in patches/qemu-10.0 is for, and the Debian release
// that has it.
const (
	qemuBase  = "10.0"
	qemuSuite = "trixie"
)

// qemuConfigure enables the parts of QEMU that a guest here needs; everything else is left
// out.
var qemuConfigure = []string{
	"--python=/usr/bin/python3", "--cc=ccache gcc",
	"--target-list=x86_64-softmmu", "--without-default-features",
	"--enable-system", "--enable-tcg", "--enable-plugins", "--enable-fdt=system",
	// Debian has the firmware in separate packages.
	"--disable-install-blobs",
}

// firmwareDirs is where packages of Debian and Ubuntu put firmware.
var firmwareDirs = []string{"/usr/share/qemu", "/usr/share/seabios"}

// QEMU is a QEMU that has been built.
type QEMU struct {
	Version   string // of the source package, such as 10.0.13+ds-0+deb13u1
	Binary    string
	PluginDir string   // has qemu-plugin.h
	Firmware  []string // directories, for -L
}

// FindQEMU returns the QEMU that BuildQEMU built from this clone's series, if it is still
// in the cache.
func FindQEMU(o Options) (*QEMU, error) {
	b, err := newQEMUBuilder(o)
	if err != nil {
		return nil, err
	}
	return b.find()
}

// BuildQEMU builds QEMU with parallel virtual time, or finds it in the cache. It downloads
// Debian's source package, with apt's own keys, but changes nothing of the system's apt.
func BuildQEMU(ctx context.Context, o Options) (*QEMU, error) {
	b, err := newQEMUBuilder(o)
	if err != nil {
		return nil, err
	}
	if q, err := b.find(); err == nil {
		fmt.Fprintf(b.out, "qemu: QEMU %s is up to date\n", q.Version)
		return q, nil
	}
	lock, err := b.lock(ctx, "build", syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if q, err := b.find(); err == nil {
		return q, nil // another build made it while this one waited for the lock
	}
	src, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	t := &tree{pristine: src, dir: filepath.Join(b.base, "tree"), root: b.opt.Root, product: "QEMU", base: qemuBase, patches: b.patches}
	if err := t.patched(ctx); err != nil {
		return nil, err
	}
	if err := b.compile(ctx, t); err != nil {
		return nil, err
	}
	return b.keep(t)
}

type qemuBuilder struct {
	*builder
	patches []string
	key     string // of the series and the configuration
}

func newQEMUBuilder(o Options) (*qemuBuilder, error) {
	base, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	base.base = filepath.Join(base.cache, "qemu-"+qemuBase)
	b := &qemuBuilder{builder: base}
	if err := os.MkdirAll(b.base, 0o755); err != nil {
		return nil, err
	}
	if b.patches, err = readSeries(filepath.Join(b.opt.Root, "patches", "qemu-"+qemuBase)); err != nil {
		return nil, err
	}
	parts := slices.Concat(qemuConfigure, []string{os.Getenv(qemuSourceEnv)})
	for _, p := range b.patches {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("the series names a patch that cannot be read: %w", err)
		}
		parts = append(parts, string(text))
	}
	b.key = hashOf(parts...)[:16]
	return b, nil
}

// dir is where a built QEMU is kept.
func (b *qemuBuilder) dir() string { return filepath.Join(b.base, "built-"+b.key) }

func (b *qemuBuilder) find() (*QEMU, error) {
	dir := b.dir()
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return nil, fmt.Errorf("no QEMU with parallel virtual time yet: `make lab` builds it: %w", err)
	}
	q := &QEMU{Version: strings.TrimSpace(string(version)), Binary: filepath.Join(dir, "qemu-system-x86_64"), PluginDir: dir}
	for _, d := range firmwareDirs {
		if _, err := os.Stat(d); err == nil {
			q.Firmware = append(q.Firmware, d)
		}
	}
	return q, nil
}

// source unpacks the source package, with Debian's own patches applied.
func (b *qemuBuilder) source(ctx context.Context) (source, error) {
	dsc := os.Getenv(qemuSourceEnv)
	if dsc == "" {
		var err error
		if dsc, err = b.fetch(ctx); err != nil {
			return source{}, err
		}
	}
	name := strings.TrimSuffix(filepath.Base(dsc), ".dsc")
	_, version, ok := strings.Cut(name, "_")
	if !ok || !strings.HasPrefix(version, qemuBase+".") {
		return source{}, fmt.Errorf("%s: not a source package of QEMU %s, for which the patches are (qemu_%s.*.dsc)", dsc, qemuBase, qemuBase)
	}
	dir := filepath.Join(b.base, "pristine-"+safeName(version))
	src := source{dir: dir, version: version}
	if _, err := os.Stat(filepath.Join(dir, "configure")); err == nil {
		return src, nil
	}
	fmt.Fprintf(b.out, "qemu: unpacking QEMU %s\n", version)
	tmp, err := os.MkdirTemp(b.base, "unpack-")
	if err != nil {
		return source{}, err
	}
	defer os.RemoveAll(tmp)
	// apt has checked the signature of what it fetched.
	cmd := exec.CommandContext(ctx, "dpkg-source", "--no-check", "-x", dsc, filepath.Join(tmp, "src"))
	killGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return source{}, fmt.Errorf("unpacking %s: %w\n%s", dsc, err, out)
	}
	if err := b.wheels(ctx, filepath.Join(tmp, "src"), filepath.Join(tmp, "venv")); err != nil {
		return source{}, err
	}
	return src, os.Rename(filepath.Join(tmp, "src"), dir)
}

var mesonVersion = regexp.MustCompile(`(?m)^meson = .*installed = "([0-9.]+)"`)

// wheels puts the meson that configure asks for into the directory where configure looks
// for it. Debian's source package leaves meson out, because Debian has it as a package, and
// the package of Debian 12 is too old.
func (b *qemuBuilder) wheels(ctx context.Context, src, venv string) error {
	deps, err := os.ReadFile(filepath.Join(src, "pythondeps.toml"))
	if err != nil {
		return err
	}
	m := mesonVersion.FindSubmatch(deps)
	if m == nil {
		return fmt.Errorf("%s/pythondeps.toml names no version of meson", src)
	}
	for _, args := range [][]string{
		{"/usr/bin/python3", "-m", "venv", venv},
		{filepath.Join(venv, "bin", "pip"), "download", "-q", "--no-deps", "-d", filepath.Join(src, "python", "wheels"), "meson==" + string(m[1])},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		killGroup(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("getting meson %s: %s: %w\n%s", m[1], strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// fetch downloads the newest source package of the Debian release that has this QEMU, from
// the mirror that this system uses, and returns its .dsc.
func (b *qemuBuilder) fetch(ctx context.Context) (string, error) {
	remedy := fmt.Sprintf("set %s to the .dsc file of Debian %s's source package qemu %s", qemuSourceEnv, qemuSuite, qemuBase)
	fmt.Fprintf(b.out, "qemu: fetching the source package of QEMU %s\n", qemuBase)
	if err := b.aptSource(ctx, qemuSuite, "qemu"); err != nil {
		return "", fmt.Errorf("%w\nor %s", err, remedy)
	}
	found, err := filepath.Glob(filepath.Join(b.base, "apt", "packages", "qemu_"+qemuBase+".*.dsc"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("the mirror's source package of QEMU is not %s any more; %s", qemuBase, remedy)
	}
	// Take what apt downloaded last.
	return slices.MaxFunc(found, func(x, y string) int { return cmp.Compare(modTime(x), modTime(y)) }), nil
}

// aptSource downloads the newest source package of a Debian release, from the mirror that
// this system uses, to apt/packages below the builder's directory. more are further
// options.
func (b *builder) aptSource(ctx context.Context, suite, name string, more ...string) error {
	return b.apt(ctx, suite, "deb-src", name, append([]string{"source", "--download-only", "--only-source"}, more...)...)
}

// apt downloads a package of a Debian release with the given apt-get command. types says
// which types of packages the archive entry has. apt-get uses lists and settings of its
// own, so nothing of this system changes.
func (b *builder) apt(ctx context.Context, suite, types, name string, command ...string) error {
	uri, err := Mirror(ctx)
	if err != nil {
		return err
	}
	apt := filepath.Join(b.base, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial", "sources", "packages"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return err
		}
	}
	entry := fmt.Sprintf("Types: %s\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n", types, uri, suite)
	if err := os.WriteFile(filepath.Join(apt, "sources", name+".sources"), []byte(entry), 0o644); err != nil {
		return err
	}
	options := []string{
		"-q", "-o", "Dir::State::lists=" + filepath.Join(apt, "lists"), "-o", "Dir::Cache=" + filepath.Join(apt, "cache"),
		"-o", "Dir::Etc::SourceList=/dev/null", "-o", "Dir::Etc::SourceParts=" + filepath.Join(apt, "sources"),
		"-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3",
	}
	for _, args := range [][]string{{"update"}, append(command, name)} {
		cmd := exec.CommandContext(ctx, "apt-get", slices.Concat(options, args)...)
		cmd.Dir = filepath.Join(apt, "packages")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		killGroup(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func modTime(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}

// Mirror returns the archive that this Debian takes its packages from.
func Mirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)").Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) == 3 && f[0] == "Debian" && f[1] == "Debian" {
			return f[2], nil
		}
	}
	return "", errors.New("apt knows no mirror of Debian")
}

var ninjaStep = regexp.MustCompile(`^\[\d+/(\d+)\] (?:Compiling \S+ object |Linking target |Generating )?(\S+)`)

// compile configures QEMU and builds its system emulator.
func (b *qemuBuilder) compile(ctx context.Context, t *tree) error {
	dir := filepath.Join(b.base, "build")
	inputs := hashOf(append(slices.Clone(qemuConfigure), t.pristine.version)...)
	stampFile := filepath.Join(dir, ".cosched-stamp")
	old := readStamp(stampFile)
	if old.Inputs != inputs {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		fmt.Fprintf(b.out, "qemu: configuring QEMU %s in %s\n", t.pristine.version, dir)
		cmd := b.tool(ctx, dir, filepath.Join(t.dir, "configure"), qemuConfigure...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("configuring QEMU: %w\n%s\nthe whole log is in %s/meson-logs", err, lastOf(string(out), tailLines), dir)
		}
		if err := (stamp{Inputs: inputs}).write(stampFile); err != nil {
			return err
		}
	}
	logFile := filepath.Join(dir, "cosched-build.log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	start := time.Now()
	fmt.Fprintf(b.out, "qemu: building QEMU %s in %s\n", t.pristine.version, dir)
	p := newProgress(b.out, log, "qemu", old.Steps)
	p.step = ninjaStep
	defer p.stop()
	cmd := b.tool(ctx, dir, "ninja", fmt.Sprintf("-j%d", runtime.NumCPU()), "qemu-system-x86_64")
	cmd.Stdout, cmd.Stderr = p, p.stderr()
	err = cmd.Run()
	p.stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("building QEMU: %w\n%s\nthe whole log is in %s", err, p.tail(), logFile)
	}
	fmt.Fprintf(b.out, "qemu: QEMU %s built, %d steps in %s\n", t.pristine.version, p.steps(), time.Since(start).Round(time.Second))
	return stamp{Inputs: inputs, Steps: max(p.steps(), old.Steps)}.write(stampFile)
}

func (b *qemuBuilder) tool(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=",
		"CCACHE_DIR="+filepath.Join(b.cache, "ccache"), "CCACHE_BASEDIR="+b.base, "CCACHE_MAXSIZE=4G")
	killGroup(cmd)
	return cmd
}

func lastOf(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// keep copies what was built out of the build directory.
func (b *qemuBuilder) keep(t *tree) (*QEMU, error) {
	tmp, err := os.MkdirTemp(b.base, "new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	files := map[string]os.FileMode{
		filepath.Join(b.base, "build", "qemu-system-x86_64"):     0o755,
		filepath.Join(t.dir, "include", "qemu", "qemu-plugin.h"): 0o644,
	}
	for _, from := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(tmp, filepath.Base(from)), data, files[from]); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, "version"), []byte(t.pristine.version+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, b.dir()); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return b.find()
}
