package nri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/fsnotify/fsnotify"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

type m = map[string]string

const policyText = `
default: auto
classes:
  database:
    cpusPreferred: llc:1
    weights: 4 1000
  elsewhere:
    cpusPreferred: llc:9
    weights: 100:100
rules:
- namespaces: ["kube-*"]
  class: inherit
- namespaces: [shop, "shop-?"]
  labels: {app: db}
  class: database
- labels: {app: huge}
  class: elsewhere
- labels: {app: plain}
  class: inherit
`

// The values that a pod and its containers have when their first thread runs.
func TestPods(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin(policyText)
	const defaults = "; 100 150"
	for _, tc := range []struct {
		name        string
		annotations m
		pod         string
		containers  m
		refused     string
	}{
		{"a", nil, "auto" + defaults, m{"main": "-"}, ""},
		{"db", nil, "4-7; 4 1000", m{"main": "-"}, ""},
		{"db", m{"cosched.io/cpus-preferred": "0-1"}, "0-1; 4 1000", nil, ""},
		{"db", m{"cosched.io/weights": "inherit", "cosched.io/cpus-preferred": "inherit"}, defaults, nil, ""},
		{"plain", nil, defaults, m{"main": "-"}, ""},
		{"b", m{"cosched.io/cpus-preferred": "llc:0", "cosched.io/weights": "1:2", "unrelated": "x", "example.com/weights": "x"}, "0-3; 1 2", m{"main": "-"}, ""},
		// The home of a container can only be a part of the pod's home, so each container has its own.
		{"c", m{"cosched.io/cpus-preferred": "llc:0", "cpus-preferred.cosched.io/container.side": "llc:1", "weights.cosched.io/container.side": "1 2"},
			defaults, m{"main": "0-3; 100 150", "side": "4-7; 1 2"}, ""},
		{"d", m{"cpus-preferred.cosched.io/container.side": "inherit"}, defaults, m{"main": "auto" + defaults, "side": defaults}, ""},
		{"e", m{"weights.cosched.io/container.side": "7 8"}, "auto" + defaults, m{"main": defaults, "side": "; 7 8"}, ""},
		// If a value is refused, the values without it are in force.
		{"f", m{"cosched.io/cpus-preferred": "sometimes"}, "auto" + defaults, m{"main": "-"}, `annotation cosched.io/cpus-preferred: home "sometimes" is not`},
		{"g", m{"cosched.io/cpus-preferred": "llc:7", "cosched.io/weights": "9 9"}, "auto; 9 9", nil, "this machine has no llc 7, only 0-1"},
		{"h", m{"cosched.io/weights": "0 5"}, "auto" + defaults, nil, "weights are two integers"},
		{"i", m{"cosched.io/cpu-preferred": "0-1"}, "auto" + defaults, nil, "annotation cosched.io/cpu-preferred: there are"},
		{"j", m{"cosched.io/cluster": "No/Name"}, "auto" + defaults, nil, `"No/Name" is not the name of a cluster`},
		{"k", m{"cosched.io/cpus-preferred": "0,4000"}, defaults, nil, "names a CPU that this machine cannot have"},
		{"l", m{"cosched.io/cpus-preferred": strings.Repeat("1,", 3000) + "1"}, "auto" + defaults, nil, "longer than 4095 bytes"},
		{"n", m{"cosched.io/cpus-preferred": "0-1\n2\x1b[2J"}, "auto" + defaults, nil, "annotation cosched.io/cpus-preferred: "},
		{"o", m{"cpus-preferred.cosched.io/pod": "0-1"}, "auto" + defaults, nil, "annotation cpus-preferred.cosched.io/pod: there are"},
		{"p", m{"cluster.cosched.io/container.main": "x"}, "auto" + defaults, nil, "annotation cluster.cosched.io/container.main: there are"},
		{"huge", nil, "; 100 100", nil, "class elsewhere: home \"llc:9\""},
		{"q", m{"cosched.io/cpus-preferred": "8-9"}, "8-9" + defaults, nil, "none of these CPUs is online"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.Forget()
			r.T = t
			s := r.sandbox(tc.name, tc.annotations)
			if err := r.run(s); err != nil {
				t.Fatal(err)
			}
			// Before any process is in the cgroup.
			r.is(podCgroup(tc.name), tc.pod)
			for c := range tc.containers {
				if _, err := r.container(s, c, 0); err != nil {
					t.Fatal(err)
				}
			}
			for c, want := range tc.containers {
				r.is(containerCgroup(tc.name, c), want)
			}
			if tc.refused == "" {
				r.quiet()
			} else if n := r.Count("shop/" + tc.name + ": "); r.Count(tc.refused) != 1 || strings.Contains(strings.Join(r.Lines(), ""), "\x1b") {
				t.Errorf("%d lines, want one with %q: %q", n, tc.refused, r.Lines())
			}
			if err := r.runtime.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: s}); err != nil {
				t.Error(err)
			}
			coschedtest.Remove(t, filepath.Join(r.Cgroup, podCgroup(tc.name)))
		})
	}
}

// Weights are written before the home. After it, the write would have to wait in the kernel.
func TestWeightsFirst(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin("")
	r.start("x", m{"cosched.io/cpus-preferred": "llc:1", "cosched.io/weights": "3 4"})
	if got := strings.Join(r.order, ", "); got != "3 4, 4-7" {
		t.Errorf("written: %s", got)
	}
}

// A container that may not be made requests nothing: the kubelet makes another one, again and again.
func TestCreateRefused(t *testing.T) {
	r := newRig(t)
	policy, err := ParsePolicy(r.Host, "", []byte("onError: fail\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := New(r.Host, r, policy, r.log)
	s := r.sandbox("x", m{"cosched.io/cluster": "one"})
	if err := p.RunPodSandbox(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.Annotations["weights.cosched.io/container.main"] = "none" // as if the plugin had been started since
	for i := range 9 {
		c := &api.Container{Id: fmt.Sprint("main-", i), PodSandboxId: s.Id, Name: "main", Linux: &api.LinuxContainer{
			CgroupsPath: filepath.Base(s.Linux.CgroupParent) + ":cri-containerd:main", Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(1024)}},
		}}
		if _, _, err := p.CreateContainer(t.Context(), s, c); err == nil {
			t.Error("it may be made")
		}
	}
	if d := p.pods[s.Id]; len(d.containers) != 0 || r.Count("cluster shop/one: ") != 1 {
		t.Errorf("%d containers, %q", len(d.containers), r.Lines())
	}
}

// A client other than the kubelet may not make a cgroup for each pod.
func TestNoPodCgroup(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin("")
	for _, parent := range []string{"", "/", "test.slice", "/kubepods.slice", "/../1-2-x", "-.slice"} {
		s := r.sandbox("x", m{"cosched.io/cpus-preferred": "llc:1", "cosched.io/weights": "3 4", "weights.cosched.io/container.side": "inherit"})
		s.Linux.CgroupParent = parent
		if err := r.run(s); err != nil {
			t.Fatal(err)
		}
		side := &api.Container{Id: "side", PodSandboxId: s.Id, Name: "side", Linux: &api.LinuxContainer{CgroupsPath: "/test/side"}}
		r.makeGroup("/test/side")
		if err := r.runtime.StartContainer(t.Context(), &api.StartContainerRequest{Pod: s, Container: side}); err != nil {
			t.Fatal(err)
		}
		r.is("/test/side", "4-7; 100 150")
		c := &api.Container{Id: "c", PodSandboxId: s.Id, Name: "main", Linux: &api.LinuxContainer{CgroupsPath: "/test/c"}}
		r.makeGroup("/test/c")
		if err := r.runtime.StartContainer(t.Context(), &api.StartContainerRequest{Pod: s, Container: c}); err != nil {
			t.Fatal(err)
		}
		r.is("/test/c", "4-7; 3 4")
		r.is(podCgroup("x"), "-")
		if home := r.value("/kubepods.slice"); strings.Contains(home, "4-7") {
			t.Errorf("with %q all pods have %s", parent, home)
		}
		if err := r.runtime.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: s}); err != nil {
			t.Error(err)
		}
		coschedtest.Remove(t, filepath.Join(r.Cgroup, "test"))
	}
}

// A pod that must not run without its values does not run if they are refused.
func TestOnErrorFail(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin("onError: fail\n")
	err := r.run(r.sandbox("a", m{"cosched.io/cpus-preferred": "llc:9"}))
	if err == nil || !strings.Contains(err.Error(), "no llc 9") {
		t.Errorf("the pod runs: %v", err)
	}
	err = r.run(r.sandbox("b", m{"cosched.io/cpus-preferred": "4000"}))
	if err == nil || !strings.Contains(err.Error(), "cannot have") {
		t.Errorf("the pod runs: %v", err)
	}
	s := r.sandbox("c", m{"weights.cosched.io/container.main": "x", "cosched.io/weights": "1 2"})
	if err := r.run(s); err == nil {
		t.Error("the pod runs")
	}
	r.start("fine", m{"cosched.io/weights": "1 2"}, "main")
	r.is(podCgroup("fine"), "auto; 1 2")
}

// Pods and containers that existed before the plugin, and values that are not asked for any more.
func TestRestarts(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	s := r.start("a", m{"cosched.io/cpus-preferred": "llc:1", "cpus-preferred.cosched.io/container.side": "0"}, "main", "side")
	r.start("db", nil, "main")
	r.is(podCgroup("a"), "-")
	r.startPlugin("")
	r.becomes(containerCgroup("a", "main"), "4-7; 100 150")
	r.becomes(containerCgroup("a", "side"), "0; 100 150")
	r.becomes(podCgroup("db"), "auto; 100 150")

	// Values stay without the plugin; the next one has another policy.
	r.stopPlugin()
	r.is(podCgroup("db"), "auto; 100 150")
	r.start("late", nil)
	r.is(podCgroup("late"), "; 100 150")
	r.startPlugin(policyText)
	r.becomes(podCgroup("db"), "4-7; 4 1000")
	r.becomes(podCgroup("late"), "auto; 100 150")

	// The runtime was restarted, and a pod is gone.
	for i := range 3 {
		r.stopRuntime()
		r.Wait("the connection is closed", func() bool { return r.Count("connection was closed") > 0 })
		delete(r.pods, "sandbox-late")
		if i == 1 {
			r.pods["new"] = r.sandbox("new", m{"cosched.io/weights": "5 6"})
		}
		r.startRuntime()
		r.connected()
		name := fmt.Sprint("again", i)
		r.start(name, m{"cosched.io/cpus-preferred": "llc:0"}, "main")
		r.is(podCgroup(name), "0-3; 100 150")
	}
	r.becomes(podCgroup("new"), "auto; 5 6")
	wrote := r.wrote

	// Values that are in force are not written again.
	r.stopPlugin()
	r.startPlugin(policyText)
	r.becomes(podCgroup("new"), "auto; 5 6")
	if r.wrote != wrote {
		t.Errorf("%d homes were written again", r.wrote-wrote)
	}
	if _, err := r.runtime.StopContainer(t.Context(), &api.StopContainerRequest{Pod: s, Container: r.containers["a-side"]}); err != nil {
		t.Error(err)
	}
}

// A policy is in force as soon as it is written, also for pods that run already. A policy that is
// not valid has no effect.
func TestPolicyReload(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin("classes: {one: {cpusPreferred: '0-1'}}\ndefault: one\n")
	r.start("a", nil, "main")
	r.start("b", m{"cosched.io/weights": "1 2"}, "main")
	r.is(podCgroup("a"), "0-1; 100 150")
	r.policy("default: auto\n")
	r.becomes(podCgroup("a"), "auto; 100 150")
	r.becomes(podCgroup("b"), "auto; 1 2")
	for _, bad := range []string{"default: none\n", "defaults: auto\n", "rules: 7\n", "\t", "classes: {x: {weights: '0 0'}}\n"} {
		r.policy(bad)
		r.Logged(": the previous policy stays in force")
		r.mu.Lock()
		r.Forget()
		r.mu.Unlock()
		r.is(podCgroup("a"), "auto; 100 150")
	}
	r.policy("default: inherit\n")
	r.becomes(podCgroup("a"), "; 100 150")
	r.becomes(podCgroup("b"), "; 1 2")
	r.start("c", nil, "main")
	r.is(podCgroup("c"), "; 100 150") // its parent has the controller by now
}

// A policy that is being written in its place is empty at first.
func TestPolicyHalfWritten(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.dir, "policy.yaml")
	p := New(r.Host, r, &Policy{}, r.log)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	go p.watch(t.Context(), w, file, "")
	for _, tc := range []struct {
		text    string
		reloads int
	}{{"default: auto\n", 1}, {"", 1}, {"default: inherit\n", 2}} {
		if err := os.WriteFile(file, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		// The third event is taken only after the file was read because of the first.
		for range 3 {
			w.Events <- fsnotify.Event{}
		}
		p.mu.Lock()
		if p.counts.Reloads != tc.reloads {
			t.Errorf("%d policies after %q, want %d", p.counts.Reloads, tc.text, tc.reloads)
		}
		p.mu.Unlock()
	}
}

// Values that another program has overwritten, and values that were refused, are written again.
func TestCheck(t *testing.T) {
	r := newRig(t)
	policy, err := ParsePolicy(r.Host, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := New(r.Host, r, policy, r.log)
	s := r.sandbox("a", m{"cosched.io/cpus-preferred": "llc:2"})
	if err := p.RunPodSandbox(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.is(podCgroup("a"), "auto; 100 150")
	coschedtest.Replace(t, filepath.Join(r.Cgroup, podCgroup("a"), cosched.FilePreferred), "3\n")
	p.Check()
	r.is(podCgroup("a"), "auto; 100 150")
	// The same for weights: those that were asked for, and those that are to be inherited.
	r.add(p, "w", m{"cosched.io/weights": "4 1000"}, 0)
	for pod, want := range (m{"w": "auto; 4 1000", "a": "auto; 100 150"}) {
		r.is(podCgroup(pod), want)
		coschedtest.Replace(t, filepath.Join(r.Cgroup, podCgroup(pod), cosched.FileWeights), "100 100\n")
		p.Check()
		r.is(podCgroup(pod), want)
		// Values that have not changed are not written.
		wrote := len(r.order)
		if p.Check(); len(r.order) != wrote {
			t.Errorf("%s: written again: %q", pod, r.order[wrote:])
		}
	}
	// CPUs come online, so that the domain exists now.
	r.add(p, "b", m{"cosched.io/cpus-preferred": "llc:1"}, 0)
	r.is(podCgroup("b"), "4-7; 100 150")
	coschedtest.Replace(t, filepath.Join(r.Sys, "devices/system/cpu/online"), "0-6,8\n")
	cpu := filepath.Join(r.Sys, "devices/system/cpu/cpu8")
	coschedtest.Append(t, filepath.Join(cpu, "topology/package_cpus_list"), "8\n")
	coschedtest.Append(t, filepath.Join(cpu, "topology/physical_package_id"), "2\n")
	coschedtest.Append(t, filepath.Join(cpu, "topology/core_cpus_list"), "8\n")
	p.Check()
	r.is(podCgroup("a"), "8; 100 150")
	r.is(podCgroup("b"), "4-6; 100 150")
	if r.Count("no llc 2") != 1 {
		t.Errorf("logged %q", r.Lines())
	}
	// After a change of the policy, errors are logged again.
	coschedtest.Replace(t, filepath.Join(r.Sys, "devices/system/cpu/online"), "0-7\n")
	p.Check()
	r.Forget()
	p.SetPolicy(policy)
	if r.Count("no llc 2") != 1 {
		t.Errorf("logged %q", r.Lines())
	}
}

// The kernel chooses a pod's home without regard to the cpusets of single containers. If a container
// may not use any CPU of it, each container is given a home of its own that the kernel chooses.
func TestBarred(t *testing.T) {
	r := newRig(t)
	policy, err := ParsePolicy(r.Host, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := r.sandbox("a", nil)
	c := &api.Container{Id: "c", PodSandboxId: s.Id, Name: "main", Linux: &api.LinuxContainer{CgroupsPath: containerCgroup("a", "main")}}
	p := New(r.Host, r, policy, r.log)
	if err := p.RunPodSandbox(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.makeGroup(containerCgroup("a", "main"))
	if err := p.StartContainer(t.Context(), s, c); err != nil {
		t.Fatal(err)
	}
	coschedtest.Append(t, filepath.Join(r.Cgroup, podCgroup("a"), "cpuset.cpus.effective"), "0-7\n")
	cpuset := filepath.Join(r.Cgroup, containerCgroup("a", "main"), "cpuset.cpus.effective")
	coschedtest.Append(t, cpuset, "0-7\n")
	for _, tc := range []struct{ cpus, pod, container string }{
		{"0-7", "auto; 100 150", "-"},
		{"2-7", "auto; 100 150", "-"}, // a part of the home, which is 0-3, can be used
		{"4-7", "; 100 150", "auto; 100 150"},
		{"2-7", "; 100 150", "auto; 100 150"}, // and it does not change back and forth
		{"0-7", "auto; 100 150", "; 100 150"},
	} {
		coschedtest.Replace(t, cpuset, tc.cpus+"\n")
		for range 2 {
			p.Check()
			r.is(podCgroup("a"), tc.pod)
			r.is(containerCgroup("a", "main"), tc.container)
			// A new plugin gets the same result.
			p = New(r.Host, r, policy, r.log)
			if _, err := p.Synchronize(t.Context(), []*api.PodSandbox{s}, []*api.Container{c}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.quiet()
}
