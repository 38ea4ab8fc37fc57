package nri

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

// rig is a machine with NRI's own runtime. It imitates the kernel as far as the plugin writes to it.
type rig struct {
	cosched.Host
	*coschedtest.Log
	dir     string
	socket  string
	runtime *adaptation.Adaptation
	stop    func() // the plugin
	hangUp  func()
	metrics string

	mu         sync.Mutex
	pods       map[string]*api.PodSandbox
	containers map[string]*api.Container
	wrote      int      // number of homes written
	order      []string // all values, in the order in which they were written
}

func newRig(t *testing.T) *rig {
	logrus.SetOutput(io.Discard) // the runtime's
	// Not t.TempDir(): a socket's path can have 107 bytes.
	dir, err := os.MkdirTemp("", "nri-")
	if err != nil {
		t.Fatal(err)
	}
	h := coschedtest.Host(t)
	r := &rig{
		Host: h, Log: &coschedtest.Log{T: t, Without: []string{dir, h.Cgroup}}, dir: dir, socket: filepath.Join(dir, "nri.sock"),
		pods: map[string]*api.PodSandbox{}, containers: map[string]*api.Container{},
	}
	coschedtest.Replace(t, filepath.Join(r.Cgroup, "cgroup.subtree_control"), "cpu\n")
	t.Cleanup(func() {
		r.stopPlugin()
		r.stopRuntime()
		os.RemoveAll(dir)
	})
	return r
}

func (r *rig) startRuntime() {
	r.T.Helper()
	runtime, err := adaptation.New("mock", "1.0", r.synchronize,
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithPluginPath(filepath.Join(r.dir, "plugins")), adaptation.WithPluginConfigPath(filepath.Join(r.dir, "conf.d")), adaptation.WithSocketPath(r.socket+"-behind"))
	if err == nil {
		err = runtime.Start()
	}
	if err != nil {
		r.T.Fatal(err)
	}
	r.runtime = runtime
	r.forward()
}

// forward is between the plugin and the runtime, which as a process of its own would close
// its connections when it ends.
func (r *rig) forward() {
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.T.Fatal(err)
	}
	var mu sync.Mutex
	open := []io.Closer{l}
	r.hangUp = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	}
	go func() {
		for {
			plugin, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("unix", r.socket+"-behind")
			if err != nil {
				plugin.Close()
				continue
			}
			mu.Lock()
			open = append(open, plugin, behind)
			mu.Unlock()
			for _, way := range [][2]net.Conn{{plugin, behind}, {behind, plugin}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					way[0].Close()
				}()
			}
		}
	}()
}

func (r *rig) stopRuntime() {
	if r.runtime != nil {
		r.hangUp()
		r.runtime.Stop()
		r.runtime = nil
	}
}

func (r *rig) synchronize(ctx context.Context, f adaptation.SyncCB) error {
	r.mu.Lock()
	var pods []*api.PodSandbox
	var containers []*api.Container
	for _, p := range r.pods {
		pods = append(pods, p)
	}
	for _, c := range r.containers {
		containers = append(containers, c)
	}
	r.mu.Unlock()
	_, err := f(ctx, pods, containers)
	return err
}

// startPlugin starts the plugin, with a policy unless that is "".
func (r *rig) startPlugin(policy string) {
	r.T.Helper()
	o := Options{Socket: r.socket, Index: "90", Metrics: r.metrics}
	if policy != "" {
		o.Policy = r.policy(policy)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, r.Host, r, o, r.log)
	}()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.T.Error(err)
		}
	}
	r.connected()
}

// connected waits until the runtime calls the plugin, and drops what was logged before.
func (r *rig) connected() {
	r.T.Helper()
	r.Logged(": connected to mock 1.0")
	r.runtime.BlockPluginSync().Unblock()
	r.Forget()
}

func (r *rig) stopPlugin() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// policy writes the file as Kubernetes does, in a directory that a link points to.
func (r *rig) policy(text string) string {
	r.T.Helper()
	link := filepath.Join(r.dir, "policy", "..data")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		r.T.Fatal(err)
	}
	made, err := os.MkdirTemp(filepath.Dir(link), "..version")
	if err != nil {
		r.T.Fatal(err)
	}
	coschedtest.Replace(r.T, filepath.Join(made, "policy.yaml"), text)
	if err := os.Symlink(filepath.Base(made), link+"_tmp"); err != nil {
		r.T.Fatal(err)
	}
	file := filepath.Join(r.dir, "policy", "policy.yaml")
	if err := os.Rename(link+"_tmp", link); err != nil { // atomically
		r.T.Fatal(err)
	}
	if err := os.Symlink("..data/policy.yaml", file); err != nil && !os.IsExist(err) {
		r.T.Fatal(err)
	}
	return file
}

// makeGroup does the part of the kernel in mkdir.
func (r *rig) makeGroup(path string) {
	r.T.Helper()
	at := r.Cgroup
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		control, _ := os.ReadFile(filepath.Join(at, "cgroup.subtree_control"))
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); os.IsExist(err) {
			continue
		} else if err != nil {
			r.T.Fatal(err)
		}
		coschedtest.Replace(r.T, filepath.Join(at, "cgroup.subtree_control"), "")
		if strings.Contains(string(control), "cosched") {
			enable(at)
		}
	}
}

func enable(dir string) {
	for file, text := range map[string]string{cosched.FilePreferred: "", cosched.FileEffective: "", cosched.FileWeights: "100 150\n"} {
		_ = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
	}
}

// Existing does the part of the kernel: children of a cgroup for which the controller is enabled in
// cgroup.subtree_control get its files.
func (r *rig) Existing(name string, on bool) (cosched.Group, error) {
	if _, err := os.Stat(name); err == nil && on {
		at := r.Cgroup
		for part := range strings.SplitSeq(strings.TrimPrefix(filepath.Dir(name), r.Cgroup), "/") {
			at = filepath.Join(at, part)
			control := filepath.Join(at, "cgroup.subtree_control")
			if text, _ := os.ReadFile(control); strings.Contains(string(text), "cosched") {
				continue
			}
			_ = os.WriteFile(control, []byte("cosched\n"), 0o644)
			children, _ := os.ReadDir(at)
			for _, c := range children {
				if dir := filepath.Join(at, c.Name()); c.IsDir() && !cosched.Group(dir).Enabled() {
					enable(dir)
				}
			}
		}
	}
	return r.Host.Existing(name, on)
}

// SetHome imitates a kernel with CPUs 0 to 11.
func (r *rig) SetHome(g cosched.Group, home cosched.Home, _ bool) (string, error) {
	if len(home.CPUs) > 0 && home.CPUs[len(home.CPUs)-1] > 11 {
		return "", &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%q: names a CPU that this machine cannot have", home.Value), Err: syscall.ERANGE}
	}
	r.mu.Lock()
	r.wrote++
	r.order = append(r.order, home.Value)
	r.mu.Unlock()
	effective := home.CPUs.String()
	if home.Value == "auto" {
		effective = "0-3"
	}
	_ = os.WriteFile(g.Path(cosched.FileEffective), []byte(effective+"\n"), 0o644)
	if err := os.WriteFile(g.Path(cosched.FilePreferred), []byte(home.Value+"\n"), 0o644); err != nil {
		return "", err
	}
	if len(home.CPUs) > 0 && home.CPUs[0] > 7 {
		return "none of these CPUs is online", nil
	}
	return "", nil
}

func (r *rig) SetWeights(g cosched.Group, w *cosched.Weights) error {
	value := cosched.DefaultWeights.String()
	if w != nil {
		value = w.String()
	}
	r.mu.Lock()
	r.order = append(r.order, value)
	r.mu.Unlock()
	return os.WriteFile(g.Path(cosched.FileWeights), []byte(value+"\n"), 0o644)
}

// sandbox is a pod NAME in the namespace shop, as the kubelet makes it.
func (r *rig) sandbox(name string, annotations map[string]string) *api.PodSandbox {
	r.T.Helper()
	s := &api.PodSandbox{
		Id: "sandbox-" + name, Name: name, Namespace: "shop", Uid: "1-2-" + name, Labels: map[string]string{"app": name}, Annotations: annotations,
		Linux: &api.LinuxPodSandbox{CgroupParent: podCgroup(name)},
	}
	r.makeGroup(s.Linux.CgroupParent)
	return s
}

func podCgroup(name string) string {
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2_" + name + ".slice"
}

// run lets the runtime make a pod.
func (r *rig) run(s *api.PodSandbox) error {
	r.T.Helper()
	err := r.runtime.RunPodSandbox(r.T.Context(), &api.RunPodSandboxRequest{Pod: s})
	if err == nil {
		r.mu.Lock()
		r.pods[s.Id] = s
		r.mu.Unlock()
	}
	return err
}

// container lets the runtime make and start a container in a pod. It requests thousandths of a CPU.
func (r *rig) container(s *api.PodSandbox, name string, milli uint64) (*api.Container, error) {
	r.T.Helper()
	c := &api.Container{Id: s.Name + "-" + name, PodSandboxId: s.Id, Name: name, State: api.ContainerState_CONTAINER_RUNNING, Linux: &api.LinuxContainer{
		CgroupsPath: filepath.Base(s.Linux.CgroupParent) + ":cri-containerd:" + s.Name + "-" + name,
		Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(max(2, milli*1024/1000))}},
	}}
	adjusted, err := r.runtime.CreateContainer(r.T.Context(), &api.CreateContainerRequest{Pod: s, Container: c})
	if err != nil {
		return c, err
	}
	if a := adjusted.GetAdjust(); a.GetLinux().GetResources().GetCpu().GetCpus() != "" || len(a.GetLinux().GetResources().GetUnified()) > 0 {
		r.T.Errorf("the container is adjusted: %v", a)
	}
	r.makeGroup(containerCgroup(s.Name, name))
	if err := r.runtime.StartContainer(r.T.Context(), &api.StartContainerRequest{Pod: s, Container: c}); err != nil {
		return c, err
	}
	r.mu.Lock()
	r.containers[c.Id] = c
	r.mu.Unlock()
	return c, nil
}

func containerCgroup(pod, name string) string {
	return podCgroup(pod) + "/cri-containerd-" + pod + "-" + name + ".scope"
}

// start makes a pod and its containers, without an error.
func (r *rig) start(name string, annotations map[string]string, containers ...string) *api.PodSandbox {
	r.T.Helper()
	s := r.sandbox(name, annotations)
	if err := r.run(s); err != nil {
		r.T.Fatal(err)
	}
	for _, c := range containers {
		if _, err := r.container(s, c, 0); err != nil {
			r.T.Fatal(err)
		}
	}
	return s
}

// value gives the values of a cgroup as "home; weights", or - without the controller's files.
func (r *rig) value(cgroup string) string {
	g := cosched.Group(filepath.Join(r.Cgroup, cgroup))
	home, err := os.ReadFile(g.Path(cosched.FilePreferred))
	weights, _ := os.ReadFile(g.Path(cosched.FileWeights))
	if err != nil {
		return "-"
	}
	return strings.TrimSpace(string(home)) + "; " + strings.TrimSpace(string(weights))
}

// is asserts that a cgroup has the given values now.
func (r *rig) is(cgroup, want string) {
	r.T.Helper()
	if got := r.value(cgroup); got != want {
		r.T.Errorf("%s: has %q, want %q; logged: %q", cgroup, got, want, r.Lines())
	}
}

// becomes waits until a cgroup has the given values.
func (r *rig) becomes(cgroup, want string) {
	r.T.Helper()
	r.Wait(fmt.Sprintf("%s: %s", cgroup, want), func() bool { return r.value(cgroup) == want })
}

// quiet asserts that nothing was refused.
func (r *rig) quiet() {
	r.T.Helper()
	for _, l := range r.Lines() {
		if !strings.Contains(l, ": has ") && !strings.HasPrefix(l, "cluster ") {
			r.T.Errorf("logged %q", l)
		}
	}
}

// log is the Log of the plugin.
func (r *rig) log(object, text string) { r.Add(object + ": " + text) }
