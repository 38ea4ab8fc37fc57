package nri

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cosched.io/cosched/internal/openmetrics"
)

// OpenMetrics gives the metrics of the plugin. It returns a text instead of writing to the client,
// because pods wait while the plugin is locked, and must not wait for a client that reads slowly.
func (p *Plugin) OpenMetrics() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	pods := slices.SortedFunc(maps.Values(p.pods), func(a, b *pod) int { return strings.Compare(a.name, b.name) })
	containers := map[string]int{}
	for _, d := range pods {
		for _, c := range d.containers {
			containers[c.class]++
		}
	}
	count := func(n int) func(func(float64, ...string)) {
		return func(point func(float64, ...string)) { point(float64(n)) }
	}
	families := []openmetrics.Family{
		{Name: "cosched_nri_containers", Kind: "gauge", Help: "Running containers by the class of the policy that they belong to; the class is annotated if annotations decide.", Points: func(point func(float64, ...string)) {
			for _, class := range slices.Sorted(maps.Keys(containers)) {
				point(float64(containers[class]), "class", class)
			}
		}},
		{Name: "cosched_nri_home_cpus", Kind: "gauge", Unit: "cpus", Help: "CPUs in the home of a pod, if the pod as a whole has a home.", Points: func(point func(float64, ...string)) {
			for _, d := range pods {
				if d.cgroup == nil {
					continue
				}
				if home, err := d.cgroup.group.Effective(); err == nil && len(home) > 0 {
					name := strings.TrimPrefix(d.name, d.namespace+"/")
					point(float64(len(home)), "namespace", d.namespace, "pod", name)
				}
			}
		}},
		{Name: "cosched_nri_refused", Kind: "counter", Help: "Values that annotations or the policy asked for but a pod was not given.", Points: count(p.counts.Refused)},
		{Name: "cosched_nri_synchronizations", Kind: "counter", Help: "Times that the runtime has sent the list of all pods: once for each start of the runtime or of the plugin.", Points: count(p.counts.Synchronized)},
		{Name: "cosched_nri_policy_reloads", Kind: "counter", Help: "Changes of the policy file, by whether they were valid.", Points: func(point func(float64, ...string)) {
			point(float64(p.counts.Reloads), "valid", "yes")
			point(float64(p.counts.ReloadsRejected), "valid", "no")
		}},
	}
	if m, err := p.host.Machine(); err == nil {
		free := p.free(m, func(*pod) bool { return true })
		llcs := func(of func(int) float64) func(func(float64, ...string)) {
			return func(point func(float64, ...string)) {
				for i, llc := range m.LLCs {
					point(of(i), "llc", fmt.Sprint(i), "cpus", llc.String())
				}
			}
		}
		families = append(families,
			openmetrics.Family{Name: "cosched_nri_llc_cpus", Kind: "gauge", Unit: "cpus", Help: "CPUs of an LLC domain.", Points: llcs(func(i int) float64 { return float64(len(m.LLCs[i])) })},
			openmetrics.Family{Name: "cosched_nri_llc_free_cpus", Kind: "gauge", Unit: "cpus", Help: "CPUs of an LLC domain minus the requests of the pods whose home it is.", Points: llcs(func(i int) float64 { return float64(free[i]) / 1000 })})
	}
	var b bytes.Buffer
	openmetrics.Write(&b, families)
	return b.Bytes()
}
