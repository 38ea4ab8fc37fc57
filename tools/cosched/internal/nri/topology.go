package nri

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// The object that tells schedulers of a node, of k8stopologyawareschedwg's
// noderesourcetopology-api; only what is used here.
const (
	topologyGroup   = "topology.node.k8s.io"
	topologyVersion = "v1alpha2"
)

// NodeResourceTopology has a zone for each LLC domain.
type NodeResourceTopology struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	// Policies is required, and deprecated.
	Policies []string `json:"topologyPolicies"`
	Zones    []Zone   `json:"zones"`
}

// Metadata is the object's: its name is the node's.
type Metadata struct {
	Name string `json:"name"`
}

// ZoneLLC is the type of the zones. Kubernetes's own scheduler plugin looks at zones of
// the type Node only.
const ZoneLLC = "LLC"

// Zone is an LLC domain.
type Zone struct {
	Name       string      `json:"name"`
	Type       string      `json:"type"`
	Parent     string      `json:"parent,omitempty"` // as the NUMA node's zone is called by others
	Attributes []Attribute `json:"attributes,omitempty"`
	Resources  []Resource  `json:"resources,omitempty"`
}

// Attribute says what a zone is.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Resource is what a zone has, in quantities as Kubernetes writes them.
type Resource struct {
	Name        string `json:"name"`
	Capacity    string `json:"capacity"`
	Allocatable string `json:"allocatable"`
	Available   string `json:"available"`
}

// HomeCPU is the resource: CPUs that are, or can be, some pod's home. It is not called
// cpu, as no more of it is available to a pod than the node has of that.
const HomeCPU = Domain + "/home-cpu"

// Topology gives the node's LLC domains, and what is free of each to be a home.
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

// quantity writes thousandths as Kubernetes does.
func quantity(milli int) string {
	if milli%1000 == 0 {
		return strconv.Itoa(milli / 1000)
	}
	return strconv.Itoa(milli) + "m"
}

// merge puts the zones into an object that is there, of which others may have made the
// rest. It reports whether that changes it.
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
