package cosched

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	fileControl     = "cgroup.subtree_control"
	fileControllers = "cgroup.controllers"
	fileEvents      = "cgroup.events"
	fileProcs       = "cgroup.procs"
	fileThreads     = "cgroup.threads"
	fileType        = "cgroup.type"
)

// baseName is the name of the cgroup that clusters are made in.
const baseName = "cosched"

// Host is the machine: where its file systems are mounted, and the rights of the user.
type Host struct {
	Cgroup string // cgroup v2
	Sys    string
	Proc   string
	Etc    string // files of the administrator
	Run    string // files until the next boot
	Syslog string // socket of the system log, none if empty
	Root   bool
	// Writable reports whether the user may write to a file or directory.
	Writable func(path string) bool
	// Mkdir makes a cgroup, Rmdir removes one.
	Mkdir, Rmdir func(path string) error
}

// ThisHost is the machine that the program runs on.
func ThisHost() Host {
	return Host{
		Cgroup: "/sys/fs/cgroup", Sys: "/sys", Proc: "/proc", Etc: "/etc", Run: "/run", Syslog: "/dev/log",
		Root: os.Geteuid() == 0,
		Writable: func(path string) bool {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
		},
		Mkdir: func(path string) error { return os.Mkdir(path, 0o755) },
		// Not os.Remove, which would try to unlink the directory as a file first.
		Rmdir: unix.Rmdir,
	}
}

// HasController returns an error, which is errors.ErrUnsupported, if the kernel lacks the
// controller.
func (h Host) HasController() error {
	root := Group(h.Cgroup)
	text, err := root.read(fileControllers)
	if err != nil {
		return problem(ExitUnavailable, errors.Join(errors.ErrUnsupported, err), "%v: cgroup v2 is not mounted there: mount -t cgroup2 cgroup2 %s", err, h.Cgroup)
	}
	if slices.Contains(strings.Fields(text), Controller) || root.Enabled() {
		return nil
	}
	// An implicit controller is not listed. Its files are in all cgroups except the root.
	cmdline, _ := os.ReadFile(filepath.Join(h.Proc, "cmdline"))
	for _, word := range strings.Fields(string(cmdline)) {
		if word == "cgroup_disable="+Controller {
			return problem(ExitUnavailable, errors.ErrUnsupported, "%s: the controller is switched off: boot without %s", root.Path(fileControllers), word)
		}
	}
	children, _ := root.children()
	if slices.ContainsFunc(children, Group.Enabled) || slices.Contains(strings.Fields(string(cmdline)), "cgroup.cosched=implicit") {
		return nil
	}
	return problem(ExitUnavailable, errors.ErrUnsupported, "%s: no cosched in %q: boot a kernel with CONFIG_CGROUP_COSCHED=y",
		root.Path(fileControllers), strings.TrimSpace(text))
}

// Base is the cgroup of the clusters that are given by a name. It is called cosched. For root it
// is in the root cgroup, for other users in the highest ancestor of the caller's cgroup, or that
// cgroup itself, that the user may write to.
func (h Host) Base() (Group, error) {
	if h.Root {
		return Group(filepath.Join(h.Cgroup, baseName)), nil
	}
	own, err := h.cgroupOf("self")
	if err != nil {
		return "", problem(ExitUnavailable, err, "%v: give the cluster as a path below %s", err, h.Cgroup)
	}
	for _, g := range append(h.above(own), own) {
		if g != Group(h.Cgroup) && h.Writable(string(g)) && h.Writable(g.Path(fileProcs)) {
			return g.child(baseName), nil
		}
	}
	return "", problem(ExitNoPerm, nil, "%s: permission denied, here and above: no cgroup is delegated to you: "+
		"be root, or run this under systemd-run --user --scope", own.Path(fileProcs))
}

// Find gives the cgroup of a name, which is a path below the mount point or the name of a
// cluster in the base.
func (h Host) Find(name string) (Group, error) {
	if filepath.IsAbs(name) {
		path := filepath.Clean(name)
		if path != h.Cgroup && !strings.HasPrefix(path, h.Cgroup+"/") {
			return "", problem(ExitUsage, nil, "%s is not below %s: give a name, or a path there", name, h.Cgroup)
		}
		return Group(path), nil
	}
	if !filepath.IsLocal(name) || filepath.Clean(name) == "." || strings.Contains(name, "\n") {
		return "", problem(ExitUsage, nil, "%q is not the name of a cluster: give NAME, NAME/NAME, or a path below %s", name, h.Cgroup)
	}
	base, err := h.Base()
	return base.child(name), err
}

// Existing is Find for a cgroup that exists and has the controller's files. With enable, it
// enables the controller for the cgroup if necessary.
func (h Host) Existing(name string, enable bool) (Group, error) {
	g, err := h.Find(name)
	if err != nil {
		return "", err
	}
	if err := h.HasController(); err != nil {
		return "", err
	}
	if g == Group(h.Cgroup) {
		return "", problem(ExitUsage, nil, "%s is the root, which is not a cluster: name a cgroup below it", g)
	}
	if !g.exists() {
		return "", problem(ExitNoInput, fs.ErrNotExist, "%s: no such cgroup: cosched ls lists clusters, cosched create makes one", g)
	}
	if enable {
		if err := h.enable(g); err != nil {
			return "", err
		}
	}
	if !g.Enabled() {
		return "", h.notEnabled(g, nil)
	}
	return g, nil
}

// Name is how a cgroup is shown: relative to the base if it is below the base.
func (h Host) Name(g Group) string {
	base, err := h.Base()
	if err != nil {
		return string(g)
	}
	return g.NameIn(base)
}

// NameIn is Name for a base that the caller already knows; empty if the user has none.
func (g Group) NameIn(base Group) string {
	if name, ok := strings.CutPrefix(string(g), string(base)+"/"); ok && base != "" {
		return name
	}
	return string(g)
}

// Create makes a cgroup with the controller's files, and the cgroups above it that do not exist.
// It returns all cgroups that it made, from the top down, for Undo. A threaded cgroup is for
// threads of processes in its parent. A cgroup that could be nothing else (domain invalid) is made
// threaded even if that was not asked for.
func (h Host) Create(g Group, threaded bool) (made []Group, err error) {
	if err := h.HasController(); err != nil {
		return nil, err
	}
	if g.exists() {
		return nil, alreadyThere(g)
	}
	base, _ := h.Base()
	if threaded && h.parent(g) == base && h.kind(base) != "threaded" {
		return nil, problem(ExitUsage, nil, "%s cannot be threaded beside other clusters: make it a part of one, as in CLUSTER/%s", g, filepath.Base(string(g)))
	}
	if made, err = h.create(g, threaded); err != nil {
		return nil, h.Undo(made, err)
	}
	return made, nil
}

// Ensure is Existing, but makes the cgroup, as Create does, if it does not exist. If several
// callers do so at the same time, only one of them has made it.
func (h Host) Ensure(name string, threaded bool) (g Group, made []Group, err error) {
	if g, err = h.Existing(name, true); !errors.Is(err, fs.ErrNotExist) {
		return g, nil, err
	}
	if g, err = h.Find(name); err != nil {
		return "", nil, err
	}
	if made, err = h.Create(g, threaded); errors.Is(err, fs.ErrExist) {
		g, err = h.Existing(name, true)
	}
	return g, made, err
}

// Undo removes what Create made, for a caller that has failed with err since. It returns err, and
// adds to it what is left if a cgroup cannot be removed.
func (h Host) Undo(made []Group, err error) error {
	for _, g := range slices.Backward(made) {
		left := h.Remove(g, false)
		if left == nil || errors.Is(left, fs.ErrNotExist) {
			continue
		}
		status := ExitFailure
		var p *Problem
		if errors.As(err, &p) {
			status = p.Status
		}
		return problem(status, err, "%v; and what was made stays: %v", err, left)
	}
	return err
}

func alreadyThere(g Group) error {
	return problem(ExitCantCreate, fs.ErrExist, "%s is there already: cosched set changes it", g)
}

// create returns what it made even if it fails.
func (h Host) create(g Group, threaded bool) (made []Group, err error) {
	if parent := h.parent(g); !parent.exists() {
		if made, err = h.create(parent, false); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
	}
	if err := h.enable(g); err != nil {
		return made, err
	}
	switch err := h.Mkdir(string(g)); {
	case errors.Is(err, fs.ErrPermission):
		return made, problem(ExitNoPerm, err, "%v: be root, or use a cgroup that was delegated to you", err)
	case errors.Is(err, fs.ErrExist):
		// Another process made it meanwhile. It may be about to use the cgroup, and then needs the
		// cgroups above it as well: so none of these are to be removed.
		return nil, alreadyThere(g)
	case errors.Is(err, unix.EAGAIN):
		return made, problem(ExitUnavailable, err, "%v: raise cgroup.max.descendants or cgroup.max.depth above it", err)
	case err != nil:
		return made, problem(ExitCantCreate, err, "%v", err)
	}
	made = append(made, g)
	if kind := h.kind(g); kind == "domain invalid" || threaded && kind == "domain" {
		if err := h.makeThreaded(g); err != nil {
			return made, err
		}
	}
	if !g.Enabled() {
		return made, h.notEnabled(g, nil)
	}
	return made, nil
}

// enable enables the controller for a cgroup, which may not exist yet.
func (h Host) enable(g Group) error {
	if g.Enabled() || h.parent(g).passesOn() {
		return nil
	}
	text, _ := Group(h.Cgroup).read(fileControllers)
	if !slices.Contains(strings.Fields(text), Controller) {
		return nil // implicit
	}
	for _, d := range h.above(g) {
		if d.passesOn() {
			continue
		}
		if err := d.EnableChildren(Controller); err != nil {
			return h.notEnabled(g, err)
		}
	}
	return nil
}

func (h Host) makeThreaded(g Group) error {
	err := g.Write(fileType, "threaded")
	if err == nil {
		return nil
	}
	status := ExitUnavailable
	if errors.Is(err, fs.ErrPermission) {
		status = ExitNoPerm
	}
	return problem(status, err, "%v: to become threaded, a cgroup must have no processes and no children, and its cluster no other children with processes", err)
}

// SetHome asks for a home. Unless force is set, it refuses a home of which no CPU can be used now.
// The note says which part of the home cannot be used, if any.
func (h Host) SetHome(g Group, home Home, force bool) (note string, err error) {
	var notes []string
	for _, limit := range h.limits(g) {
		usable := home.CPUs.And(limit.cpus)
		switch {
		case len(usable) == len(home.CPUs):
			continue
		case len(usable) > 0:
			notes = append(notes, fmt.Sprintf("of these CPUs only %s are in %s", usable, limit.file))
		case limit.remedy == "" || force:
			notes = append(notes, fmt.Sprintf("none of these CPUs is in %s, which is %s", limit.file, limit.cpus))
		default:
			return "", problem(ExitData, nil, "%s: %q: none of these CPUs is in %s, which is %s: %s, or --force",
				g.Path(FilePreferred), home.Value, limit.file, limit.cpus, limit.remedy)
		}
	}
	if len(notes) > 0 {
		note = fmt.Sprintf("%s: %q: %s", g.Path(FilePreferred), home.Value, strings.Join(notes, "; "))
	}
	return note, h.writeProblem(g, FilePreferred, home.Value, g.Write(FilePreferred, home.Value))
}

// limit is a file with the CPUs that a home is limited to. If there is no remedy, a home that has
// none of these CPUs is not refused, only noted.
type limit struct {
	file, remedy string
	cpus         CPUs
}

// limits gives the files that can narrow a home.
func (h Host) limits(g Group) []limit {
	var all []limit
	online := filepath.Join(h.Sys, "devices/system/cpu/online")
	if cpus, err := readCPUs(online); err == nil {
		all = append(all, limit{online, "name some of these, or bring one online", cpus})
	}
	for d := g; len(d) >= len(h.Cgroup); d = h.parent(d) {
		// If a cgroup has no such file, that of the cgroup above applies.
		file := d.Path("cpuset.cpus.effective")
		if cpus, err := readCPUs(file); err == nil {
			all = append(all, limit{file, "name some of these, or widen cpuset.cpus", cpus})
			break
		}
	}
	if above, err := h.parent(g).Effective(); err == nil && len(above) > 0 {
		all = append(all, limit{h.parent(g).Path(FileEffective), "", above})
	}
	return all
}

// SetWeights sets the weights. With nil the cgroup inherits them.
func (h Host) SetWeights(g Group, w *Weights) error {
	value := ""
	if w != nil {
		value = w.String()
	}
	return h.writeProblem(g, FileWeights, value, g.Write(FileWeights, value))
}

// MoveProcess puts a process with all of its threads into a cgroup.
func (h Host) MoveProcess(g Group, pid int) error {
	if err := h.running(pid); err != nil {
		return err
	}
	if h.kind(g) == "domain invalid" {
		if err := h.makeThreaded(g); err != nil {
			return err
		}
	}
	return h.moveProblem(g, fileProcs, pid, g.Write(fileProcs, strconv.Itoa(pid)))
}

// MoveThread puts one thread into a cgroup, and makes the cgroup threaded if it is not.
// If the process is elsewhere, it is first put, as a whole, into the cluster that this
// cgroup is a part of, because the kernel keeps all threads of a process below one cgroup.
func (h Host) MoveThread(g Group, tid int) error {
	if err := h.running(tid); err != nil {
		return err
	}
	if kind := h.kind(g); kind == "domain" || kind == "domain invalid" {
		base, _ := h.Base()
		if parent := h.parent(g); parent == Group(h.Cgroup) || parent == base && h.kind(base) != "threaded" {
			return problem(ExitUsage, nil, "%s cannot take single threads, as there is no cluster above it: make it a part of one, as in CLUSTER/%s",
				g, filepath.Base(string(g)))
		}
		if err := h.makeThreaded(g); err != nil {
			return err
		}
	}
	at, err := h.cgroupOf(strconv.Itoa(tid))
	if err != nil {
		return h.moveProblem(g, fileThreads, tid, unix.ESRCH)
	}
	// The root is not a cluster, so a process is not put into it.
	if domain := h.domain(g); h.domain(at) != domain && domain != Group(h.Cgroup) {
		pid, err := h.processOf(tid)
		if err != nil {
			return h.moveProblem(g, fileThreads, tid, unix.ESRCH)
		}
		if err := h.MoveProcess(domain, pid); err != nil {
			return err
		}
	}
	return h.moveProblem(g, fileThreads, tid, g.Write(fileThreads, strconv.Itoa(tid)))
}

// Remove removes an empty cgroup. With all, it removes the cgroups below it as well, or none of them
// if there are processes in any.
func (h Host) Remove(g Group, all bool) error {
	if all {
		if busy, ok := g.populated(); ok {
			return h.busy(busy, unix.EBUSY)
		}
	}
	return h.remove(g, all)
}

func (h Host) remove(g Group, all bool) error {
	if g == Group(h.Cgroup) {
		return problem(ExitUsage, nil, "%s is the root, which cannot be removed", g)
	}
	children, err := g.children()
	if errors.Is(err, fs.ErrNotExist) {
		return problem(ExitNoInput, err, "%s: no such cgroup: cosched ls lists clusters", g)
	}
	if all {
		for _, c := range children {
			if err := h.remove(c, true); err != nil {
				return err
			}
		}
	}
	switch err := h.Rmdir(string(g)); {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return problem(ExitNoInput, err, "%s: another process removed it meanwhile", g)
	case errors.Is(err, fs.ErrPermission):
		return problem(ExitNoPerm, err, "%s: permission denied: be root, or the owner of %s", g, h.parent(g))
	case len(children) > 0:
		return problem(ExitUnavailable, err, "%s has %d cgroups below it, as %s: remove these first, or all with --recursive", g, len(children), children[0])
	case errors.Is(err, unix.EBUSY):
		return h.busy(g, err)
	default:
		return problem(ExitFailure, err, "removing %s: %v", g, err)
	}
}

func (h Host) busy(g Group, err error) error {
	n, _ := g.Threads()
	return problem(ExitUnavailable, err, "%s has %d threads: stop their processes, or cosched move them elsewhere", g, n)
}

// runPrefix begins the names of the clusters that RunCluster makes for commands. A command does not
// remove its cluster when it ends.
const runPrefix = "run-"

// RunCluster makes a cluster, as Create does, for a command that the process is about to become.
// It removes the clusters of commands that have ended.
func (h Host) RunCluster(pid int) (g Group, made []Group, err error) {
	base, err := h.Base()
	if err != nil {
		return "", nil, err
	}
	children, _ := base.children()
	for _, c := range children {
		name, ok := strings.CutPrefix(filepath.Base(string(c)), runPrefix)
		maker, nth, again := strings.Cut(name, ".")
		if _, err := strconv.Atoi(maker); !ok || err != nil {
			continue
		}
		if _, err := strconv.Atoi(nth); again && err != nil {
			continue
		}
		// As long as the process that made a cluster lives, it may be about to move there. The
		// cgroups below, such as clusters of a softened affinity, are removed too, once there are
		// no processes in any of them.
		if _, err := os.Stat(filepath.Join(h.Proc, maker)); errors.Is(err, fs.ErrNotExist) && !c.Populated() {
			_ = h.Remove(c, true)
		}
	}
	g = base.child(runPrefix + strconv.Itoa(pid))
	if g.exists() { // Made by an earlier process with this PID, whose children still live.
		for i := 2; g.exists(); i++ {
			g = base.child(fmt.Sprintf("%s%d.%d", runPrefix, pid, i))
		}
	}
	made, err = h.Create(g, false)
	return g, made, err
}

// running returns an error if there is no such process or thread.
func (h Host) running(id int) error {
	if _, err := os.Stat(filepath.Join(h.Proc, strconv.Itoa(id))); err != nil {
		return problem(ExitNoInput, err, "%s: no such process or thread: it has exited", filepath.Join(h.Proc, strconv.Itoa(id)))
	}
	return nil
}

// cgroupOf gives the cgroup of a process or thread.
func (h Host) cgroupOf(id string) (Group, error) {
	file := filepath.Join(h.Proc, id, "cgroup")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			if strings.HasPrefix(path, "/..") {
				return "", fmt.Errorf("%s: %s is outside of this cgroup namespace", file, path)
			}
			return Group(filepath.Join(h.Cgroup, path)), nil
		}
	}
	return "", fmt.Errorf("%s has no cgroup v2", file)
}

// CgroupOf gives the cgroup of a process.
func (h Host) CgroupOf(pid int) (Group, error) { return h.cgroupOf(strconv.Itoa(pid)) }

// where is cgroupOf for messages.
func (h Host) where(id int) string {
	g, err := h.cgroupOf(strconv.Itoa(id))
	if err != nil {
		return "unknown"
	}
	return string(g)
}

// processOf gives the process of a thread.
func (h Host) processOf(tid int) (int, error) {
	file := filepath.Join(h.Proc, strconv.Itoa(tid), "status")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, fmt.Errorf("%s: no Tgid", file)
}

// kind is the cgroup's type: domain, threaded and others. It is empty for the root, which has no
// cgroup.type.
func (h Host) kind(g Group) string {
	text, err := g.read(fileType)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// domain is the cgroup that holds the processes whose threads are in g.
func (h Host) domain(g Group) Group {
	for h.kind(g) == "threaded" {
		g = h.parent(g)
	}
	return g
}

// above lists the ancestors of a cgroup, from the root down.
func (h Host) above(g Group) []Group {
	var list []Group
	for g != Group(h.Cgroup) && len(g) > len(h.Cgroup) {
		g = h.parent(g)
		list = append(list, g)
	}
	slices.Reverse(list)
	return list
}

func (h Host) parent(g Group) Group { return Group(filepath.Dir(string(g))) }

func (g Group) child(name string) Group { return Group(filepath.Join(string(g), name)) }

func (g Group) exists() bool {
	st, err := os.Stat(string(g))
	return err == nil && st.IsDir()
}

// passesOn reports whether the controller is enabled for the cgroup's children.
func (g Group) passesOn() bool {
	text, err := g.read(fileControl)
	return err == nil && slices.ContainsFunc(strings.Fields(text), func(c string) bool { return strings.TrimPrefix(c, "+") == Controller })
}

// children lists the cgroups directly below, sorted by name.
func (g Group) children() ([]Group, error) {
	entries, err := os.ReadDir(string(g))
	var list []Group
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, g.child(e.Name()))
		}
	}
	return list, err
}

// Populated reports whether there are processes in the cgroup or below it.
func (g Group) Populated() bool {
	text, err := g.read(fileEvents)
	return err == nil && strings.Contains(text, "populated 1")
}

// populated finds a cgroup that has processes itself, which is the cgroup or one below it.
func (g Group) populated() (Group, bool) {
	if !g.Populated() {
		return "", false
	}
	children, _ := g.children()
	for _, c := range children {
		if busy, ok := c.populated(); ok {
			return busy, true
		}
	}
	return g, true
}

// ThreadIDs lists the threads in the cgroup itself.
func (h Host) ThreadIDs(g Group) (ids []int, err error) {
	text, err := g.read(fileThreads)
	if err != nil {
		return nil, h.ReadProblem(g, err)
	}
	for id := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return nil, problem(ExitFailure, err, "%s: %q is not a thread's number", g.Path(fileThreads), id)
		}
		ids = append(ids, n)
	}
	return ids, nil
}

// Threads counts the threads in the cgroup itself.
func (g Group) Threads() (int, error) {
	text, err := g.read(fileThreads)
	if errors.Is(err, unix.EOPNOTSUPP) { // domain invalid: it cannot have threads
		return 0, nil
	}
	return strings.Count(text, "\n"), err
}
