// Package kbuild turns a Linux source package, the overlay and the patch series of this
// repository into bootable kernels, and does no more work than the changes since the last
// time need.
//
// The cache has, for each base (here 6.12):
//
//	linux-6.12/pristine-<version>/  the unpacked source package, never written to again
//	linux-6.12/tree/                hard links to it, with overlay and patches on top
//	linux-6.12/build-<variant>/     the build directory (O=) of each variant
//	linux-6.12/kernels/             the last kernels built, each by a hash of all that went into it
//
// The patched tree is never in a half-patched state. Patches are applied to copies of the
// files that they touch, in a staging directory. Only when all of them apply are the files
// that differ moved into the tree. A file whose content stays the same keeps its time
// stamp, so make rebuilds only what a change concerns.
//
// Clones that share a cache share all of it: a fresh clone starts from what the last clone
// built. A kernel that was handed out stays as it is, whatever another clone builds
// meanwhile.
package kbuild

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultBase is the Linux version that a build uses unless told otherwise.
const DefaultBase = "6.12"

// BaseEnv is the environment variable that names another version, for everything that a
// command and the programs that it runs build.
const BaseEnv = "COSCHED_BASE"

// Base returns the Linux version that a build uses unless Options say otherwise.
func Base() string {
	if base := os.Getenv(BaseEnv); base != "" {
		return base
	}
	return DefaultBase
}

// Variant is one way to configure the kernel.
type Variant struct {
	Name      string
	About     string
	Patched   bool     // whether it has the overlay and the patches, or is the unmodified source
	Fragments []string // files in configs/; later files override earlier ones
}

// Variants lists what Build can build, the usual one first.
var Variants = []Variant{
	{"test", "cosched with its KUnit suites, silent unless booted with kunit.enable=1", true,
		[]string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config"}},
	{"vanilla", "the unmodified source with the same configuration", false,
		[]string{"base.config", "kunit.config"}},
	{"off", "the patched source with CONFIG_CGROUP_COSCHED=n", true,
		[]string{"base.config", "kunit.config", "nocosched.config"}},
	{"debug", "as test, with KASAN, lockdep and the kernel's other checks", true,
		[]string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config", "debug.config"}},
	{"integration", "as test, with what Debian's systemd, containers and eBPF programs need", true,
		[]string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config", "integration.config"}},
	{"large", "as test, for machines of up to 256 CPUs", true,
		[]string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config", "large.config"}},
	{"nonumab", "as test, with CONFIG_NUMA_BALANCING=n", true,
		[]string{"base.config", "kunit.config", "cosched.config", "kunit-cosched.config", "matrix/nonumabalancing.config"}},
}

// FindVariant looks up a variant by name.
func FindVariant(name string) (Variant, error) {
	var names []string
	for _, v := range Variants {
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	return Variant{}, fmt.Errorf("no kernel variant %q (there are: %s)", name, strings.Join(names, ", "))
}

// Options says what to build and where to report.
type Options struct {
	Root    string    // the repository; searched from the working directory upwards when empty
	Base    string    // Base() when empty
	Variant string    // "test" when empty
	Out     io.Writer // progress and messages; os.Stderr when nil
}

// Kernel is a kernel that has been built.
type Kernel struct {
	Base      string
	Variant   string
	Version   string // of the source package, such as 6.12.117-1
	Image     string // bzImage
	VMLinux   string
	Config    string // its .config
	CPUs      int    // the number of CPUs that it is configured for
	SourceDir string // the source tree that it was built from; a patched tree may have changed in later builds
	BuildDir  string // its O= directory, which may have changed too
}

// Build builds the kernel, or finds it in the cache if nothing that goes into it has
// changed.
func Build(ctx context.Context, o Options) (*Kernel, error) {
	b, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	v, err := FindVariant(b.opt.Variant)
	if err != nil {
		return nil, err
	}
	src, err := b.unpack(ctx)
	if err != nil {
		return nil, err
	}
	var t *tree
	if v.Patched {
		if src, t, err = b.patch(ctx, src); err != nil {
			return nil, err
		}
	}
	if v.Patched && len(t.patches) == 0 {
		fmt.Fprintf(b.out, "kernel: the series for Linux %s is empty: building the %s variant without cosched\n", b.opt.Base, v.Name)
		v.Fragments = slices.DeleteFunc(slices.Clone(v.Fragments), func(f string) bool {
			return strings.Contains(f, "cosched")
		})
	}
	frag, err := b.fragments(v.Fragments...)
	if err != nil {
		return nil, err
	}
	j := job{name: v.Name, frag: frag, must: frag, arch: "x86_64", targets: []string{"bzImage"}}
	dir := filepath.Join(b.base, "kernels", v.Name+"-"+b.inputs(ctx, j, src)[:16])
	k := &Kernel{
		Base: b.opt.Base, Variant: v.Name, Version: src.version,
		Image:     filepath.Join(dir, "bzImage"),
		VMLinux:   filepath.Join(dir, "vmlinux"),
		Config:    filepath.Join(dir, "config"),
		SourceDir: src.dir, BuildDir: b.buildDir(v.Name),
	}
	if _, err := os.Stat(dir); err == nil {
		fmt.Fprintf(b.out, "kernel: Linux %s %s is up to date\n", src.version, v.Name)
		// The time of the last use decides what is kept.
		now := time.Now()
		return k, errors.Join(k.readCPUs(), os.Chtimes(dir, now, now))
	}
	if v.Patched {
		unlock, err := b.update(ctx, t)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	done, err := b.compile(ctx, j, src)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := b.keep(k, dir); err != nil {
		return nil, err
	}
	return k, k.readCPUs()
}

var configuredCPUs = regexp.MustCompile(`(?m)^CONFIG_NR_CPUS=(\d+)$`)

// readCPUs finds out how many CPUs the kernel is configured for. It reads the configuration
// itself, because any fragment may set that.
func (k *Kernel) readCPUs() error {
	text, err := os.ReadFile(k.Config)
	if err != nil {
		return err
	}
	m := configuredCPUs.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s has no CONFIG_NR_CPUS", k.Config)
	}
	k.CPUs, err = strconv.Atoi(string(m[1]))
	return err
}

// kernelsKept is how many kernels stay in the cache: a day's work on four variants, at 30
// MB each.
const kernelsKept = 24

// keep copies what was built to dir, and removes the kernels that have not been used for
// longest.
func (b *builder) keep(k *Kernel, dir string) error {
	all := filepath.Dir(dir)
	if err := os.MkdirAll(all, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(all, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for from, to := range map[string]string{"arch/x86/boot/bzImage": k.Image, "vmlinux": k.VMLinux, ".config": k.Config} {
		data, err := os.ReadFile(filepath.Join(k.BuildDir, from))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, filepath.Base(to)), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	age := func(e os.DirEntry) time.Duration {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return time.Since(info.ModTime())
	}
	slices.SortFunc(entries, func(x, y os.DirEntry) int { return cmp.Compare(age(x), age(y)) })
	for _, e := range entries[min(kernelsKept, len(entries)):] {
		if err := os.RemoveAll(filepath.Join(all, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Source returns the directory of the unmodified source, which is unpacked first if needed.
func Source(ctx context.Context, o Options) (string, error) {
	b, err := newBuilder(o)
	if err != nil {
		return "", err
	}
	src, err := b.unpack(ctx)
	return src.dir, err
}

// Prepare brings the patched source tree up to date without building it, and
// returns its directory.
func Prepare(ctx context.Context, o Options) (string, error) {
	b, err := newBuilder(o)
	if err != nil {
		return "", err
	}
	src, unlock, err := b.prepare(ctx)
	if err != nil {
		return "", err
	}
	unlock()
	return src.dir, nil
}

// Shadow makes the patched source, for reading only, in the empty directory dir. It does
// not wait for any build.
func Shadow(ctx context.Context, o Options, dir string) error {
	b, err := newBuilder(o)
	if err != nil {
		return err
	}
	src, err := b.unpack(ctx)
	if err != nil {
		return err
	}
	t, err := b.tree(src)
	if err != nil {
		return err
	}
	want, err := t.want(ctx)
	if err != nil {
		return err
	}
	return t.shadow(dir, want)
}

// CacheDir returns the directory for everything that can be made again.
func CacheDir() (string, error) {
	if d := os.Getenv("COSCHED_CACHE"); d != "" {
		return filepath.Abs(d)
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "cosched"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: set COSCHED_CACHE: %w", err)
	}
	return filepath.Join(home, ".cache", "cosched"), nil
}

// FindRoot finds the repository, searching from the working directory upwards.
func FindRoot() (string, error) {
	if d := os.Getenv("COSCHED_ROOT"); d != "" {
		return filepath.Abs(d)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "configs", "base.config")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not in a clone of cosched: no configs/base.config there or above (or set COSCHED_ROOT)", dir)
		}
	}
}

type builder struct {
	opt   Options
	out   io.Writer
	cache string // CacheDir()
	base  string // cache/linux-<base>
}

func newBuilder(o Options) (*builder, error) {
	if o.Base == "" {
		o.Base = Base()
	}
	if o.Variant == "" {
		o.Variant = Variants[0].Name
	}
	if o.Out == nil {
		o.Out = os.Stderr
	}
	if o.Root == "" {
		root, err := FindRoot()
		if err != nil {
			return nil, err
		}
		o.Root = root
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	b := &builder{
		opt:   o,
		out:   o.Out,
		cache: cache,
		base:  filepath.Join(cache, "linux-"+o.Base),
	}
	return b, os.MkdirAll(b.base, 0o755)
}

// lock takes the lock called name, with syscall.LOCK_EX or LOCK_SH, and waits for others to
// release it. Locks keep builds that share a cache apart: a tree does not change while it
// is built, and a build directory has one builder at a time.
func (b *builder) lock(ctx context.Context, name string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(b.base, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := b.relock(ctx, f, how); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (b *builder) relock(ctx context.Context, f *os.File, how int) error {
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if !told {
			fmt.Fprintf(b.out, "waiting for another build in %s\n", b.base)
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// prepare unpacks the source and brings the patched tree up to date. It returns the tree to
// build, which does not change until unlock is called.
func (b *builder) prepare(ctx context.Context) (src source, unlock func(), err error) {
	if src, err = b.unpack(ctx); err != nil {
		return src, nil, err
	}
	src, t, err := b.patch(ctx, src)
	if err != nil {
		return src, nil, err
	}
	unlock, err = b.update(ctx, t)
	return src, unlock, err
}

// patch finds out what the patched tree will be, and takes no lock: if a build of that tree
// is in the cache, the tree itself is not needed.
func (b *builder) patch(ctx context.Context, src source) (source, *tree, error) {
	t, err := b.tree(src)
	if err != nil {
		return src, nil, err
	}
	if t.wanted, err = t.want(ctx); err != nil {
		return src, nil, err
	}
	src.dir, src.hash, src.overlay = t.dir, hashWant(t.wanted), t.overlay
	for _, rel := range slices.Sorted(maps.Keys(t.wanted)) {
		if !slices.Contains(t.overlay, rel) {
			src.patched = append(src.patched, rel)
		}
	}
	return src, t, nil
}

// update makes the tree what patch found out. The tree does not change until unlock is
// called.
func (b *builder) update(ctx context.Context, t *tree) (unlock func(), err error) {
	lock, err := b.lock(ctx, filepath.Base(t.dir), syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	// Another process may get the lock between the change to LOCK_EX and the change back to
	// LOCK_SH.
	for err == nil && !t.current(t.wanted) {
		if err = b.relock(ctx, lock, syscall.LOCK_EX); err == nil {
			if err = t.update(ctx, t.wanted); err == nil {
				err = b.relock(ctx, lock, syscall.LOCK_SH)
			}
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// tree returns the patched tree of this clone, as it should be.
func (b *builder) tree(src source) (*tree, error) {
	t := &tree{pristine: src, dir: filepath.Join(b.base, "tree"), root: b.opt.Root, product: "Linux", base: b.opt.Base}
	var err error
	if t.patches, err = readSeries(filepath.Join(b.opt.Root, "patches", "linux-"+b.opt.Base)); err != nil {
		return nil, err
	}
	t.overlay, err = findOverlay(b.opt.Root)
	return t, err
}

// source is a source tree and what identifies its content.
type source struct {
	dir     string
	version string
	hash    string
	overlay []string // files that are only in the overlay
	patched []string // files of the kernel that the series changes
}

// stamp records what a build was made from.
type stamp struct {
	Inputs string // empty while the build is not complete
	Steps  int    // how many steps the last full build took, to show how far this one is
}

func readStamp(path string) stamp {
	var s stamp
	if data, err := os.ReadFile(path); err == nil {
		// An unreadable stamp only means that the build is done again.
		_ = json.Unmarshal(data, &s)
	}
	return s
}

func (s stamp) write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// job is one configuration to build out of tree.
type job struct {
	name    string           // also that of its build directory
	frag    string           // configuration on top of allnoconfig
	must    string           // the part of frag that Kconfig has to accept
	arch    string           // ARCH=
	targets []string         // what to make, and variables for make
	quiet   bool             // the caller looks at the warnings in the log itself
	fresh   func(dir string) // if set, called before anything is built
}

func (b *builder) buildDir(name string) string {
	return filepath.Join(b.base, "build-"+name)
}

// compile does a job, unless its build directory has the result already. The directory does
// not change until the caller calls done.
func (b *builder) compile(ctx context.Context, j job, src source) (done func(), err error) {
	dir := b.buildDir(j.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := b.lock(ctx, filepath.Base(dir), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	done = func() { lock.Close() }
	stampFile := filepath.Join(dir, ".cosched-stamp")
	inputs := b.inputs(ctx, j, src)
	old := readStamp(stampFile)
	if old.Inputs == inputs {
		fmt.Fprintf(b.out, "kernel: Linux %s %s is up to date\n", src.version, j.name)
		return done, nil
	}
	// An interrupted build must not leave the stamp of a complete one.
	if err := (stamp{Steps: old.Steps}).write(stampFile); err != nil {
		return nil, err
	}
	if j.fresh != nil {
		j.fresh(dir)
	}
	if err := b.configure(ctx, j, src); err != nil {
		return nil, err
	}
	start := time.Now()
	fmt.Fprintf(b.out, "kernel: building Linux %s %s in %s\n", src.version, j.name, dir)
	n, err := b.make(ctx, j, src, old.Steps)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.out, "kernel: Linux %s %s built, %d steps in %s\n", src.version, j.name, n, time.Since(start).Round(time.Second))
	return done, stamp{Inputs: inputs, Steps: max(n, old.Steps)}.write(stampFile)
}

// inputs returns a hash of everything that the outcome of a job depends on.
func (b *builder) inputs(ctx context.Context, j job, src source) string {
	return hashOf(src.version, src.hash, j.frag, j.must, j.arch, strings.Join(j.targets, " "), compilerVersion(ctx, crossPrefix[j.arch]+"gcc"))
}

// fragments joins configuration fragments.
func (b *builder) fragments(names ...string) (string, error) {
	var all strings.Builder
	// Options whose names differ between bases are in a fragment for each base, which goes
	// with the one that all bases have.
	if i := slices.Index(names, "base.config"); i >= 0 {
		names = slices.Insert(slices.Clone(names), i+1, "linux-"+b.opt.Base+".config")
	}
	for _, f := range names {
		data, err := os.ReadFile(filepath.Join(b.opt.Root, "configs", f))
		if err != nil {
			return "", fmt.Errorf("reading a configuration: %w", err)
		}
		all.Write(data)
		all.WriteByte('\n')
	}
	return all.String(), nil
}

// configure writes .config, and fails if Kconfig did not accept a setting: otherwise a
// symbol that a point release renamed would be lost silently.
func (b *builder) configure(ctx context.Context, j job, src source) error {
	dir := b.buildDir(j.name)
	file := filepath.Join(dir, "cosched.fragment")
	if err := os.WriteFile(file, []byte(j.frag), 0o644); err != nil {
		return err
	}
	cmd := b.command(ctx, j, src, "KCONFIG_ALLCONFIG="+file, "allnoconfig")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("configuring %s: %w\n%s", dir, err, out)
	}
	config, err := os.ReadFile(filepath.Join(dir, ".config"))
	if err != nil {
		return err
	}
	if lost := notTaken(j.must, string(config)); len(lost) > 0 {
		return fmt.Errorf("configuration %s: Linux %s does not take these settings (unknown, or a dependency is missing):\n  %s",
			j.name, src.version, strings.Join(lost, "\n  "))
	}
	return nil
}

// notTaken lists the settings of a fragment that a configuration lacks.
func notTaken(frag, config string) []string {
	have := parseConfig(config)
	var lost []string
	want := parseConfig(frag)
	for _, name := range want.names {
		if value := want.value[name]; have.value[name] != value && (value != "n" || have.value[name] != "") {
			lost = append(lost, name+"="+value)
		}
	}
	return lost
}

type config struct {
	names []string
	value map[string]string
}

func parseConfig(text string) config {
	c := config{value: map[string]string{}}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(name, "CONFIG_") {
			continue
		}
		if _, seen := c.value[name]; !seen {
			c.names = append(c.names, name)
		}
		c.value[name] = value
	}
	return c
}

// crossPrefix has what the names of the tools begin with that build for another machine.
var crossPrefix = map[string]string{"arm64": "aarch64-linux-gnu-"}

// command returns a make command for a kernel tree, with everything fixed that would make
// two builds of the same source differ.
func (b *builder) command(ctx context.Context, j job, src source, args ...string) *exec.Cmd {
	cc, prefix := "gcc", crossPrefix[j.arch]
	if _, err := exec.LookPath("ccache"); err == nil {
		cc = "ccache gcc"
	}
	cmd := exec.CommandContext(ctx, "make", append([]string{
		"-C", src.dir, "O=" + b.buildDir(j.name), "ARCH=" + j.arch, "CROSS_COMPILE=" + prefix,
		"CC=" + strings.Replace(cc, "gcc", prefix+"gcc", 1), "HOSTCC=" + cc,
		fmt.Sprintf("-j%d", runtime.NumCPU()),
	}, args...)...)
	cmd.Env = append(os.Environ(),
		"LC_ALL=C",
		// The variables of a `make kernel` that runs this program are not for this make.
		"MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=",
		"KBUILD_BUILD_TIMESTAMP=1970-01-01", "KBUILD_BUILD_USER=cosched",
		"KBUILD_BUILD_HOST=cosched", "KBUILD_BUILD_VERSION=1",
		"CCACHE_DIR="+filepath.Join(b.cache, "ccache"),
		// Variants and clones share objects: ccache hashes paths below the cache as
		// relative ones.
		"CCACHE_BASEDIR="+b.base, "CCACHE_NOHASHDIR=1", "CCACHE_MAXSIZE=4G",
		"CCACHE_SLOPPINESS=time_macros",
	)
	killGroup(cmd)
	return cmd
}

// killGroup makes the end of a context end the children of the command too.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
}

// make builds a job's targets, shows progress, and keeps the whole log. It returns the
// number of steps.
func (b *builder) make(ctx context.Context, j job, src source, expect int) (int, error) {
	logFile := filepath.Join(b.buildDir(j.name), "cosched-build.log")
	log, err := os.Create(logFile)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	p := newProgress(b.out, log, "kernel: "+j.name, expect)
	defer p.stop()
	cmd := b.command(ctx, j, src, j.targets...)
	cmd.Stdout = p
	cmd.Stderr = p.stderr()
	err = cmd.Run()
	p.stop()
	if ctx.Err() != nil {
		return p.steps(), ctx.Err()
	}
	if err != nil {
		return p.steps(), fmt.Errorf("building Linux %s %s: %w\n%s\nthe whole log is in %s",
			src.version, j.name, err, p.tail(), logFile)
	}
	if w := p.warnings(); w != "" && !j.quiet {
		fmt.Fprintf(b.out, "%s", w)
	}
	return p.steps(), nil
}

// compilerVersion returns a compiler's version, which is part of what a build depends on.
func compilerVersion(ctx context.Context, compiler string) string {
	out, err := exec.CommandContext(ctx, compiler, "-dumpfullversion").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
