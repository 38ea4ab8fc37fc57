package nri

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"cosched.io/cosched"
)

// cluster is a cluster that pods of a namespace are joined into. Each pod has a cgroup of its own,
// and the kubelet decides where it makes that cgroup, so what the pods share is the home.
type cluster struct {
	home  cosched.Home
	named bool // one of the pods names the home; otherwise it is chosen here
}

// join gives the pods of each cluster the same home. It is the home that a pod of the cluster names
// or, if none does, a home that is chosen here, as the kernel would choose for each pod separately.
func (p *Plugin) join(pods []*pod, complain func(*pod, string, string)) {
	members := map[string][]*pod{}
	var names []string
	for _, d := range pods {
		if d.asked.cluster == "" {
			continue
		}
		if d.asked.home != nil && d.wish.home == nil {
			complain(d, d.name, fmt.Sprintf("cluster %s: not joined, because the pod is to have no home of its own", d.asked.cluster))
			continue
		}
		name := d.namespace + "/" + d.asked.cluster
		if members[name] == nil {
			names = append(names, name)
		}
		members[name] = append(members[name], d)
	}
	for name := range p.clusters {
		if members[name] == nil {
			delete(p.clusters, name)
		}
	}
	for _, name := range names {
		c := p.clusters[name]
		if c == nil {
			c = &cluster{}
			p.clusters[name] = c
		}
		if err := p.house(c, name, members[name], complain); err != nil {
			for _, d := range members[name] {
				complain(d, d.name, fmt.Sprintf("cluster %s: not joined: %v", d.asked.cluster, err))
			}
			continue
		}
		for _, d := range members[name] {
			home := c.home
			d.wish.home = &home
		}
	}
}

// house finds the home of a cluster.
func (p *Plugin) house(c *cluster, name string, members []*pod, complain func(*pod, string, string)) error {
	auto := func(d *pod) bool { return d.wish.home == nil || d.wish.home.Value == "auto" }
	// A home that a pod names stays until no pod names it any more.
	if c.named && !slices.ContainsFunc(members, func(d *pod) bool { return !auto(d) && d.wish.home.Value == c.home.Value }) {
		*c = cluster{}
	}
	for _, d := range members {
		switch {
		case auto(d):
		case !c.named:
			*c = cluster{*d.wish.home, true}
		case d.wish.home.Value != c.home.Value:
			complain(d, d.name, fmt.Sprintf("cluster %s: has home %s, not %s: all its pods share one home", d.asked.cluster, c.home.Value, d.wish.home.Value))
		}
	}
	if c.named {
		return nil
	}
	m, err := p.host.Machine()
	if err != nil {
		return err
	}
	if c.home.Value == "" {
		c.home.CPUs = p.previous(m, members)
	}
	request := 0
	joined := map[*pod]bool{}
	for _, d := range members {
		request += d.milli()
		joined[d] = true
	}
	free := p.free(m, func(d *pod) bool { return !joined[d] })
	grown := choose(m, free, c.home.CPUs, request)
	if grown.String() != c.home.CPUs.String() {
		p.log("cluster "+cosched.Printable(name), fmt.Sprintf("home %s, for %d pods that request %.2f CPUs", grown, len(members), float64(request)/1000))
	}
	c.home = cosched.Home{Value: grown.String(), CPUs: grown}
	return nil
}

// previous is the home that an earlier run of the plugin gave to pods of the cluster.
func (p *Plugin) previous(m *cosched.Machine, members []*pod) cosched.CPUs {
	for _, d := range members {
		for _, c := range d.cgroups() {
			text, err := os.ReadFile(c.group.Path(cosched.FilePreferred))
			if err != nil || strings.TrimSpace(string(text)) == "auto" {
				continue
			}
			cpus, err := cosched.ParseCPUs(string(text))
			if err != nil || len(cpus) == 0 {
				continue
			}
			// A home that a pod named before can be any set of CPUs. Only whole LLC domains are taken.
			whole := 0
			for _, llc := range m.LLCs {
				if n := len(llc.And(cpus)); n == len(llc) {
					whole += n
				}
			}
			if whole == len(cpus.And(m.Online)) {
				return cpus
			}
		}
	}
	return nil
}

func (d *pod) milli() (sum int) {
	for _, c := range d.containers {
		sum += c.milli
	}
	return sum
}

// free gives, in thousandths of a CPU, the part of each LLC domain that is not requested by pods
// whose home it is. The request of a pod is spread evenly over its home.
func (p *Plugin) free(m *cosched.Machine, counts func(*pod) bool) []int {
	free := make([]int, len(m.LLCs))
	for i, llc := range m.LLCs {
		free[i] = 1000 * len(llc)
	}
	claim := func(c *cgroup, milli int) {
		home, err := c.group.Effective()
		if home = home.And(m.Online); err != nil || len(home) == 0 {
			return
		}
		for i, llc := range m.LLCs {
			free[i] -= milli * len(home.And(llc)) / len(home)
		}
	}
	for _, d := range p.pods {
		if !counts(d) {
			continue
		}
		for _, c := range d.containers {
			// If the container's cgroup lacks the controller's files, the home of the pod is used.
			switch {
			case c.milli == 0:
			case c.cgroup != nil && c.cgroup.group.Enabled():
				claim(c.cgroup, c.milli)
			case d.cgroup != nil:
				claim(d.cgroup, c.milli)
			}
		}
	}
	for i := range free {
		free[i] = max(free[i], 0)
	}
	return free
}

// choose gives as few LLC domains as a request needs. It takes the domains that are home already,
// then those on NUMA nodes that already have a part of the home, then those with most free CPUs.
func choose(m *cosched.Machine, free []int, home cosched.CPUs, request int) cosched.CPUs {
	var chosen []bool
	for _, llc := range m.LLCs {
		chosen = append(chosen, len(llc.And(home)) > 0)
	}
	node := func(i int) int {
		return slices.IndexFunc(m.Nodes, func(n cosched.Node) bool { return n.CPUs.Has(m.LLCs[i][0]) })
	}
	for {
		var cpus cosched.CPUs
		near := map[int]bool{}
		for i, llc := range m.LLCs {
			if chosen[i] {
				cpus = append(cpus, llc...)
				near[node(i)] = true
			}
		}
		best := -1
		for i := range m.LLCs {
			if chosen[i] {
				continue
			}
			if best < 0 || near[node(i)] && !near[node(best)] || near[node(i)] == near[node(best)] && free[i] > free[best] {
				best = i
			}
		}
		if best < 0 || len(cpus) > 0 && request <= 1000*len(cpus) {
			slices.Sort(cpus)
			return cpus
		}
		chosen[best] = true
	}
}
