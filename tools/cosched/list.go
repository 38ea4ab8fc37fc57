package cosched

import (
	"strings"
)

// Cluster is what is shown of a cgroup with the controller's files.
type Cluster struct {
	Name     string     `json:"name"`
	Path     string     `json:"path"`
	Type     string     `json:"type"`
	Asked    string     `json:"cpus_preferred"`
	Home     string     `json:"home"`
	Weights  [2]int     `json:"weights"` // PREFERRED, ALLOWED
	Threads  int        `json:"threads"` // in the cgroup itself
	Stat     Stat       `json:"stat"`
	Load     *Load      `json:"load,omitempty"`
	Children []*Cluster `json:"children,omitempty"`
}

// Read reads everything of a cluster except its load and its children.
func (h Host) Read(g Group) (*Cluster, error) {
	c := &Cluster{Name: h.Name(g), Path: string(g), Type: h.kind(g)}
	asked, err := g.read(FilePreferred)
	if err != nil {
		return nil, h.ReadProblem(g, err)
	}
	c.Asked = strings.TrimSpace(asked)
	home, err := g.Effective()
	if err != nil {
		return nil, h.ReadProblem(g, err)
	}
	c.Home = home.String()
	w, err := g.Weights()
	if err != nil {
		return nil, h.ReadProblem(g, err)
	}
	c.Weights = [2]int{w.Preferred, w.Allowed}
	if c.Threads, err = g.Threads(); err != nil {
		return nil, h.ReadProblem(g, err)
	}
	if c.Stat, err = g.Stat(); err != nil {
		return nil, h.ReadProblem(g, err)
	}
	return c, nil
}

// Tree reads the clusters below a cgroup, without the cgroup itself. A cluster that is
// removed meanwhile is left out.
func (h Host) Tree(g Group) ([]*Cluster, error) {
	children, err := g.children()
	if Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, h.ReadProblem(g, err)
	}
	var list []*Cluster
	for _, child := range children {
		if !child.Enabled() {
			continue
		}
		c, err := h.Read(child)
		if Gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if c.Children, err = h.Tree(child); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// Flat lists the clusters of a tree, parents first.
func Flat(tree []*Cluster) []*Cluster {
	var list []*Cluster
	for _, c := range tree {
		list = append(list, c)
		list = append(list, Flat(c.Children)...)
	}
	return list
}

// ReadLoad reads a cluster's decayed load.
func (h Host) ReadLoad(g Group) (*Load, error) {
	l, err := g.Load()
	return &l, h.ReadProblem(g, err)
}
