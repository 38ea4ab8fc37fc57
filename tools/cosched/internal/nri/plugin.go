package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"cosched.io/cosched"
)

// Log takes a message about a pod or container or, if the object is "", about the plugin. It is
// called while pods wait, so it must not block.
type Log func(object, text string)

// Tree is what values are written to. It is a cosched.Host, except in tests, which imitate a kernel.
type Tree interface {
	Existing(name string, enable bool) (cosched.Group, error)
	SetHome(g cosched.Group, home cosched.Home, force bool) (note string, err error)
	SetWeights(g cosched.Group, w *cosched.Weights) error
}

// Plugin gives the cgroups of pods and containers the values that annotations and policy ask for.
// The runtime calls its methods, several at the same time.
type Plugin struct {
	host cosched.Host // is read
	tree Tree         // is written to
	log  Log

	mu       sync.Mutex
	policy   *Policy
	homes    map[string]cosched.Home // what specifications stand for as long as these CPUs are online
	online   string
	pods     map[string]*pod
	clusters map[string]*cluster
	counts   Counts
}

// pod is a pod that runs.
type pod struct {
	name        string // NAMESPACE/NAME
	namespace   string
	labels      map[string]string
	annotations map[string]string
	asked       asked
	cgroup      *cgroup // nil if it has no cgroup of its own
	containers  map[string]*container
	class       string
	wish        wish            // for the pod as a whole
	said        map[string]bool // messages about the pod and its containers that were logged
}

type container struct {
	name   string
	class  string
	cgroup *cgroup // nil if the runtime does not say where it is
	milli  int     // thousandths of a CPU that it requests
}

// cgroup is a cgroup that values are written to.
type cgroup struct {
	group cosched.Group
	known bool // has was written, and nothing was refused
	has   wish
	reads values // what the files read after that
}

// values are the contents of a cgroup's files. The weights are those in force, so that a change of
// inherited weights is noticed too.
type values struct{ home, weights string }

func (c *cgroup) values() values {
	return values{home: c.read(cosched.FilePreferred), weights: c.read(cosched.FileWeights)}
}

// read gives the content of one of the files; empty if there is no such file.
func (c *cgroup) read(file string) string {
	text, _ := os.ReadFile(c.group.Path(file))
	return strings.TrimSpace(string(text))
}

// Counts are counters for the metrics.
type Counts struct {
	Refused         int // values of annotations or the policy that were not given, also by the kernel
	Synchronized    int
	Reloads         int // of the policy
	ReloadsRejected int
}

// New makes a plugin.
func New(h cosched.Host, tree Tree, policy *Policy, log Log) *Plugin {
	return &Plugin{
		host: h, tree: tree, policy: policy, log: log,
		homes: map[string]cosched.Home{}, pods: map[string]*pod{}, clusters: map[string]*cluster{},
	}
}

// SetPolicy puts another policy into force, also for pods that run already.
func (p *Plugin) SetPolicy(policy *Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Reloads++
	p.policy = policy
	for _, d := range p.pods {
		d.said = nil
	}
	p.settle()
}

// RejectPolicy counts a policy that is not valid.
func (p *Plugin) RejectPolicy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.ReloadsRejected++
}

// Check checks whether cgroups still have their values, and retries values that were refused.
func (p *Plugin) Check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.pods {
		for _, c := range d.cgroups() {
			if c.values() != c.reads {
				c.known = false
			}
		}
	}
	p.settle()
}

func (d *pod) cgroups() (all []*cgroup) {
	if d.cgroup != nil {
		all = append(all, d.cgroup)
	}
	for _, c := range d.containers {
		if c.cgroup != nil {
			all = append(all, c.cgroup)
		}
	}
	return all
}

// Synchronize takes the list of all pods and containers that exist.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.pods
	p.pods = map[string]*pod{}
	for _, s := range pods {
		p.add(s)
		if d := before[s.GetId()]; d != nil {
			p.pods[s.GetId()].said = d.said
		}
	}
	for _, c := range containers {
		if s := c.GetState(); s == api.ContainerState_CONTAINER_STOPPED {
			continue
		}
		if d := p.pods[c.GetPodSandboxId()]; d != nil {
			d.add(p.host, c)
		}
	}
	p.counts.Synchronized++
	p.settle()
	return nil, nil
}

func (p *Plugin) add(s *api.PodSandbox) *pod {
	d := &pod{
		name: s.GetNamespace() + "/" + s.GetName(), namespace: s.GetNamespace(),
		labels: s.GetLabels(), annotations: s.GetAnnotations(), containers: map[string]*container{},
	}
	if g, ok := podGroup(p.host, s); ok {
		d.cgroup = &cgroup{group: g}
	}
	p.pods[s.GetId()] = d
	return d
}

func (d *pod) add(h cosched.Host, c *api.Container) *container {
	k := d.containers[c.GetId()]
	if k == nil {
		k = &container{name: c.GetName()}
		d.containers[c.GetId()] = k
	}
	if g, ok := containerGroup(h, c); ok && (k.cgroup == nil || k.cgroup.group != g) {
		k.cgroup = &cgroup{group: g}
	}
	k.milli = request(c.GetLinux().GetResources())
	return k
}

// request gives the thousandths of a CPU that a container requests. The kubelet turns the request
// into CPU shares. 2 shares, the minimum, stand for no request.
func request(r *api.LinuxResources) int {
	shares := r.GetCpu().GetShares().GetValue()
	// The upper limit is the number of CPUs that CPU numbers can name.
	if shares <= 2 || shares > 1024*(1<<16) {
		return 0
	}
	return int((shares*1000 + 512) / 1024)
}

// RunPodSandbox is called when the pod's cgroup exists, but no process is in it yet.
func (p *Plugin) RunPodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.add(s)
	err := p.settle()[d]
	if err != nil {
		delete(p.pods, s.GetId()) // the runtime sends no further events about it
		p.settle()
	}
	return err
}

// CreateContainer is called before the container's cgroup exists.
func (p *Plugin) CreateContainer(ctx context.Context, s *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	err := p.container(s, c)
	if err != nil {
		// It will not be made, and the kubelet tries again with another one.
		_ = p.RemoveContainer(ctx, s, c)
	}
	return nil, nil, err
}

// StartContainer is called when the cgroup exists, but the program is not started yet.
func (p *Plugin) StartContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	return p.container(s, c)
}

func (p *Plugin) container(s *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.pods[s.GetId()]
	if d == nil {
		d = p.add(s)
	}
	d.add(p.host, c)
	return p.settle()[d]
}

// UpdateContainer is called before a container's resources change.
func (p *Plugin) UpdateContainer(_ context.Context, s *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.pods[s.GetId()]; d != nil && d.containers[c.GetId()] != nil && r.GetCpu().GetShares() != nil {
		d.containers[c.GetId()].milli = request(r)
		p.settle()
	}
	return nil, nil
}

// StopContainer is called after a container has ended.
func (p *Plugin) StopContainer(_ context.Context, s *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.RemoveContainer(context.Background(), s, c)
}

// RemoveContainer also handles a container that was created but never started.
func (p *Plugin) RemoveContainer(_ context.Context, s *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.pods[s.GetId()]; d != nil {
		delete(d.containers, c.GetId())
	}
	return nil
}

// StopPodSandbox is called after all containers of a pod have ended.
func (p *Plugin) StopPodSandbox(_ context.Context, s *api.PodSandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, s.GetId())
	p.settle()
	return nil
}

// RemovePodSandbox also handles a pod that was not stopped before.
func (p *Plugin) RemovePodSandbox(ctx context.Context, s *api.PodSandbox) error {
	return p.StopPodSandbox(ctx, s)
}

// parse is ParseHome with a cache. For names of domains, ParseHome reads the topology, which on a
// large machine takes longer than starting a container.
func (p *Plugin) parse(spec string) (cosched.Home, error) {
	if h, ok := p.homes[spec]; ok {
		return h, nil
	}
	h, err := p.host.ParseHome(spec)
	if err == nil {
		p.homes[spec] = h
	}
	return h, err
}

// maxHomes bounds the cache. A node has fewer pods and containers that name different homes.
const maxHomes = 1000

// look clears the cache if specifications may stand for other CPUs now.
func (p *Plugin) look() {
	text, err := os.ReadFile(filepath.Join(p.host.Sys, "devices/system/cpu/online"))
	if err == nil && string(text) != p.online || len(p.homes) > maxHomes {
		p.online = string(text)
		clear(p.homes)
	}
}

// settle determines the values of each pod, and writes those that are not in force yet. If the
// policy says onError: fail, it returns an error for each pod that did not get its values.
func (p *Plugin) settle() map[*pod]error {
	p.look()
	failed := map[*pod]error{}
	order := slices.SortedFunc(maps.Values(p.pods), func(a, b *pod) int { return strings.Compare(a.name, b.name) })
	complain := func(d *pod, object string, text string) {
		object, text = cosched.Printable(object), cosched.Printable(text)
		if !d.said[object+text] {
			if d.said == nil {
				d.said = map[string]bool{}
			}
			d.said[object+text] = true
			p.counts.Refused++
			p.log(object, text)
		}
		if p.policy.OnError == "fail" && failed[d] == nil {
			failed[d] = errors.New("cosched: " + text)
		}
	}
	for _, d := range order {
		var refused []string
		d.asked, refused = annotations(p.parse, d.annotations)
		for _, text := range refused {
			complain(d, d.name, text)
		}
		p.choose(d, complain)
	}
	p.join(order, complain)
	for _, d := range order {
		p.give(d, complain)
	}
	return failed
}

// choose determines the values of a pod, before clusters are taken into account.
func (p *Plugin) choose(d *pod, complain func(*pod, string, string)) {
	name, class := p.policy.Of(d.namespace, d.labels)
	d.class, d.wish = name, wish{}
	home, err := p.parse(class.CPUsPreferred)
	if err != nil {
		complain(d, d.name, fmt.Sprintf("class %s: %v", name, err))
	} else {
		d.wish.home = some(&home)
	}
	d.wish.weights, _ = parseWeights(class.Weights)
	if d.asked.home != nil {
		d.class, d.wish.home = classAnnotated, some(d.asked.home)
	}
	if d.asked.weights != nil || d.asked.inherit {
		d.class, d.wish.weights = classAnnotated, d.asked.weights
	}
	if d.asked.cluster != "" {
		d.class = classAnnotated
	}
}

// give writes the values of a pod and its containers.
func (p *Plugin) give(d *pod, complain func(*pod, string, string)) {
	// The home of a container can only be a part of the pod's home. So if any container has a home of
	// its own, the pod as a whole has none and each container gets one.
	apart := d.cgroup == nil || d.wish.home != nil && d.wish.home.Value == "auto" && d.barred()
	for _, a := range d.asked.containers {
		apart = apart || a.home != nil
	}
	if d.cgroup != nil {
		whole := d.wish
		if apart {
			whole.home = nil
		}
		p.write(d, d.name, d.cgroup, whole, complain)
	}
	for _, c := range d.containers {
		var w wish
		c.class = d.class
		if apart {
			w.home = d.wish.home
		}
		if d.cgroup == nil {
			w.weights = d.wish.weights
		}
		if a := d.asked.containers[c.name]; a != nil {
			c.class = classAnnotated
			if a.home != nil {
				w.home = some(a.home)
			}
			if a.weights != nil || a.inherit {
				w.weights = a.weights
			}
		}
		name := d.name + "/" + c.name
		if c.cgroup != nil {
			p.write(d, name, c.cgroup, w, complain)
		} else if w != (wish{}) {
			complain(d, name, fmt.Sprintf("%s: not given, because the runtime does not say which cgroup the container has", w))
		}
	}
}

// barred reports whether one of a pod's containers cannot use the home that the kernel chooses for
// the pod. The kernel chooses it from the cpusets of all containers together, but the kubelet's CPU
// manager and the balloons policy give each container a cpuset of its own. Once a container was
// given a home of its own for that reason, barred stays true as long as the container's cpuset is
// narrower than the pod's.
func (d *pod) barred() bool {
	allowed := func(g cosched.Group) cosched.CPUs {
		text, _ := os.ReadFile(g.Path("cpuset.cpus.effective"))
		cpus, _ := cosched.ParseCPUs(string(text))
		return cpus
	}
	all := allowed(d.cgroup.group)
	home, _ := d.cgroup.group.Effective()
	for _, c := range d.containers {
		if c.cgroup == nil {
			continue
		}
		cpus := allowed(c.cgroup.group)
		if len(cpus) == 0 || len(cpus) >= len(all) {
			continue
		}
		if c.cgroup.read(cosched.FilePreferred) == "auto" || len(home) > 0 && len(home.And(cpus)) == 0 {
			return true
		}
	}
	return false
}

// write writes the values of a cgroup, and resets values that it is not to have any more.
func (p *Plugin) write(d *pod, name string, c *cgroup, w wish, complain func(*pod, string, string)) {
	if c.known && same(c.has, w) {
		return
	}
	g := c.group
	if w == (wish{}) && !g.Enabled() {
		return
	}
	fine := true
	refuse := func(err error) bool {
		if err != nil && !cosched.Gone(err) { // the cgroup was removed, or does not exist yet
			complain(d, name, err.Error())
		}
		fine = fine && err == nil
		return err == nil
	}
	if _, err := p.tree.Existing(string(g), true); !refuse(err) {
		return
	}
	var home cosched.Home
	if w.home != nil {
		home = *w.home
	}
	// Weights first: a write that follows a change of home within an RCU grace period has to wait
	// until that grace period ends, and the pod would wait with it.
	before, _ := g.Weights()
	changed := w.weights != nil && before != *w.weights
	refuse(p.tree.SetWeights(g, w.weights))
	if c.read(cosched.FilePreferred) != home.Value {
		changed = true
		// A home that cannot be used now may be usable later, so it is written with force.
		note, err := p.tree.SetHome(g, home, true)
		if refuse(err) && note != "" && !d.said[note] {
			if d.said == nil {
				d.said = map[string]bool{}
			}
			d.said[note] = true
			p.log(name, note)
		}
	}
	if fine && changed {
		p.log(name, "has "+w.String())
	}
	c.known, c.has, c.reads = fine, w, c.values()
}

func same(a, b wish) bool {
	return (a.home == nil) == (b.home == nil) && (a.home == nil || a.home.Value == b.home.Value) &&
		(a.weights == nil) == (b.weights == nil) && (a.weights == nil || *a.weights == *b.weights)
}
