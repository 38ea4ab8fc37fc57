package nri

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// The object that describes a node to schedulers. It is defined in the noderesourcetopology-api of
// k8stopologyawareschedwg; only what is used here is declared.
const (
	topologyGroup   = "topology.node.k8s.io"
	topologyVersion = "v1alpha2"
)

// NodeResourceTopology has a zone for each LLC domain.
type NodeResourceTopology struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	// Policies is required, although it is deprecated.
	Policies []string `json:"topologyPolicies"`
	Zones    []Zone   `json:"zones"`
}

// Metadata is the metadata of the object, whose name is the node's name.
type Metadata struct {
	Name string `json:"name"`
}

// ZoneLLC is the type of the zones. Kubernetes's own scheduler plugin only looks at zones of the
// type Node.
const ZoneLLC = "LLC"

// Zone is an LLC domain.
type Zone struct {
	Name       string      `json:"name"`
	Type       string      `json:"type"`
	Parent     string      `json:"parent,omitempty"` // the name that other publishers give to the zone of the NUMA node
	Attributes []Attribute `json:"attributes,omitempty"`
	Resources  []Resource  `json:"resources,omitempty"`
}

// Attribute describes a zone.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Resource is a resource of a zone, in quantities as Kubernetes writes them.
type Resource struct {
	Name        string `json:"name"`
	Capacity    string `json:"capacity"`
	Allocatable string `json:"allocatable"`
	Available   string `json:"available"`
}

// HomeCPU is a domain's resource: CPUs that may be the home of pods. It has a name of its
// own as a pod that requests cpu takes that from the node, wherever its home is.
const HomeCPU = Domain + "/home-cpu"

// Topology gives the node's LLC domains, and how many CPUs of each are free to be a home.
func (p *Plugin) Topology(node string) (*NodeResourceTopology, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, err := p.host.Machine()
	if err != nil {
		return nil, err
	}
	t := &NodeResourceTopology{
		APIVersion: topologyGroup + "/" + topologyVersion, Kind: "NodeResourceTopology",
		Metadata: Metadata{node}, Policies: []string{}, Zones: []Zone{},
	}
	free := p.free(m, func(*pod) bool { return true })
	for i, llc := range m.LLCs {
		z := Zone{Name: fmt.Sprintf("llc-%d", i), Type: ZoneLLC, Attributes: []Attribute{{"cpus", llc.String()}}}
		for _, n := range m.Nodes {
			if n.CPUs.Has(llc[0]) {
				z.Parent = fmt.Sprintf("node-%d", n.ID)
			}
		}
		all := strconv.Itoa(len(llc))
		z.Resources = []Resource{{HomeCPU, all, all, quantity(free[i])}}
		t.Zones = append(t.Zones, z)
	}
	return t, nil
}

// quantity formats thousandths as Kubernetes does.
func quantity(milli int) string {
	if milli%1000 == 0 {
		return strconv.Itoa(milli / 1000)
	}
	return strconv.Itoa(milli) + "m"
}

// merge puts the zones into an existing object, whose other parts may come from other publishers. It
// reports whether that changes the object.
func (t *NodeResourceTopology) merge(object map[string]any) (changed bool, err error) {
	text, err := json.Marshal(t.Zones)
	if err != nil {
		return false, err
	}
	var ours []any
	if err := json.Unmarshal(text, &ours); err != nil {
		return false, err
	}
	zones, _ := object["zones"].([]any)
	isLLC := func(zone any) bool {
		m, _ := zone.(map[string]any)
		return m["type"] == ZoneLLC
	}
	var was []any
	for _, z := range zones {
		if isLLC(z) {
			was = append(was, z)
		}
	}
	before, err := json.Marshal(was)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(ours)
	object["zones"] = append(slices.DeleteFunc(slices.Clone(zones), isLLC), ours...)
	return string(before) != string(after), err
}
