package nri

import (
	"testing"

	"cosched.io/cosched"

	"github.com/containerd/nri/pkg/api"
)

// direct is a plugin that is called by the test rather than by a runtime.
func (r *rig) direct(policy string) *Plugin {
	r.T.Helper()
	parsed, err := ParsePolicy(r.Host, "policy", []byte(policy))
	if err != nil {
		r.T.Fatal(err)
	}
	return New(r.Host, r, parsed, r.log)
}

// add makes a pod with a container that requests thousandths of a CPU.
func (r *rig) add(p *Plugin, name string, annotations map[string]string, milli uint64) (*api.PodSandbox, *api.Container) {
	r.T.Helper()
	s := r.sandbox(name, annotations)
	if err := p.RunPodSandbox(r.T.Context(), s); err != nil {
		r.T.Fatal(err)
	}
	c := &api.Container{Id: name + "-main", PodSandboxId: s.Id, Name: "main", Linux: &api.LinuxContainer{
		CgroupsPath: s.Linux.CgroupParent[len("/kubepods.slice/kubepods-burstable.slice/"):] + ":cri-containerd:" + name + "-main",
		Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(milli * 1024 / 1000)}},
	}}
	if err := p.StartContainer(r.T.Context(), s, c); err != nil {
		r.T.Fatal(err)
	}
	return s, c
}

// Pods of a cluster have one home, which is large enough for all of them.
func TestClusters(t *testing.T) {
	r := newRig(t)
	p := r.direct("")
	// The other one of the two domains has more free CPUs.
	r.add(p, "busy", m{"cosched.io/cpus-preferred": "llc:0"}, 3000)
	first, _ := r.add(p, "first", m{"cosched.io/cluster": "till"}, 500)
	r.is(podCgroup("first"), "4-7; 100 150")
	r.add(p, "second", m{"cosched.io/cluster": "till", "cosched.io/weights": "1 2"}, 3500)
	r.is(podCgroup("second"), "4-7; 1 2")
	// The home grows for all of its pods, and does not shrink as long as there is a pod.
	third, large := r.add(p, "third", m{"cosched.io/cluster": "till"}, 500)
	for _, name := range []string{"first", "third"} {
		r.is(podCgroup(name), "0-7; 100 150")
	}
	if err := p.StopPodSandbox(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	r.is(podCgroup("first"), "0-7; 100 150")

	// Another cluster of that name, in another namespace, and one with another name.
	other := r.sandbox("other", m{"cosched.io/cluster": "till"})
	other.Namespace = "bank"
	if err := p.RunPodSandbox(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	r.is(podCgroup("other"), "4-7; 100 150")

	// The next plugin takes over the home.
	p = r.direct("")
	ended := &api.Container{Id: "ended", PodSandboxId: other.Id, State: api.ContainerState_CONTAINER_STOPPED, Linux: large.Linux}
	ended.Linux.Resources.Cpu.Shares = api.UInt64(8192)
	if _, err := p.Synchronize(t.Context(), []*api.PodSandbox{first, other}, []*api.Container{ended}); err != nil {
		t.Fatal(err)
	}
	r.is(podCgroup("first"), "0-7; 100 150")
	r.is(podCgroup("other"), "4-7; 100 150")

	// A home that a pod names is the home of all pods, as long as that pod exists.
	named, _ := r.add(p, "named", m{"cosched.io/cluster": "till", "cosched.io/cpus-preferred": "1-2"}, 0)
	r.is(podCgroup("first"), "1-2; 100 150")
	r.quiet()
	r.add(p, "against", m{"cosched.io/cluster": "till", "cosched.io/cpus-preferred": "3"}, 0)
	r.is(podCgroup("against"), "1-2; 100 150")
	if r.Count("shop/against: cluster till: has home 1-2, not 3") != 1 {
		t.Errorf("logged %q", r.Lines())
	}
	if err := p.StopPodSandbox(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	r.is(podCgroup("first"), "3; 100 150")
	r.add(p, "none", m{"cosched.io/cluster": "till", "cosched.io/cpus-preferred": "inherit"}, 0)
	r.is(podCgroup("none"), "; 100 150")
	if r.Count("shop/none: cluster till: not joined") != 1 {
		t.Errorf("logged %q", r.Lines())
	}
}

// If the kubelet raises the request of a container, its cluster can grow.
func TestUpdate(t *testing.T) {
	r := newRig(t)
	p := r.direct("")
	s, c := r.add(p, "a", m{"cosched.io/cluster": "x"}, 4000)
	r.is(podCgroup("a"), "0-3; 100 150")
	for _, update := range []*api.LinuxResources{{}, {Cpu: &api.LinuxCPU{Cpus: "1"}}, {Cpu: &api.LinuxCPU{Shares: api.UInt64(5000)}}} {
		r.is(podCgroup("a"), "0-3; 100 150")
		if updates, err := p.UpdateContainer(t.Context(), s, c, update); err != nil || updates != nil {
			t.Errorf("%v, %v", updates, err)
		}
	}
	r.is(podCgroup("a"), "0-7; 100 150")
}

func TestChoose(t *testing.T) {
	cpus := func(s string) cosched.CPUs {
		c, err := cosched.ParseCPUs(s)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// Four domains of two CPUs each, on two nodes.
	machine := &cosched.Machine{
		LLCs:  []cosched.CPUs{cpus("0-1"), cpus("2-3"), cpus("4-5"), cpus("6-7")},
		Nodes: []cosched.Node{{ID: 0, CPUs: cpus("0-3")}, {ID: 1, CPUs: cpus("4-7")}},
	}
	for _, tc := range []struct {
		free    []int
		home    string
		request int
		want    string
	}{
		{[]int{2000, 2000, 2000, 2000}, "", 0, "0-1"},
		{[]int{500, 1500, 2000, 2000}, "", 2000, "4-5"},
		{[]int{500, 1500, 2000, 1000}, "", 2001, "4-7"}, // a domain on the same node is preferred to the one with most free CPUs
		{[]int{2000, 2000, 0, 0}, "6-7", 1000, "6-7"},
		{[]int{2000, 2000, 0, 0}, "6-7", 3000, "4-7"},
		{[]int{1000, 2000, 0, 0}, "6-7", 5000, "2-7"},
		{[]int{0, 0, 0, 0}, "", 99000, "0-7"},
		{[]int{2000, 2000, 2000, 2000}, "9", 1000, "0-1"}, // its CPUs are offline
	} {
		if got := choose(machine, tc.free, cpus(tc.home), tc.request); got.String() != tc.want {
			t.Errorf("%v are free, home is %q, %d are requested: %s, want %s", tc.free, tc.home, tc.request, got, tc.want)
		}
	}
}
