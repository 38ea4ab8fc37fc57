// Package nri gives the pods and containers of Kubernetes homes, with a plugin for the Node
// Resource Interface (NRI) of containerd and CRI-O.
//
// The plugin writes values to the files of cgroups itself. It does not pass them to the
// runtime, although the runtime could write them too (linux.resources.unified): a runtime
// that cannot enable the controller, such as crun, or a kernel that refuses a value, would
// make the container fail. Also, only the pod's cgroup makes the containers of a pod one
// cluster, and that cgroup does not belong to the runtime. NRI calls the plugin for a pod
// before its first container is made, and for a container when its cgroup exists but its
// program is not started yet. So the values that are written then are in force from the
// first thread on.
package nri

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cosched.io/cosched"
)

// Domain is part of the name of each annotation: cosched.io/KEY for a pod and, as in NRI's own
// plugins, KEY.cosched.io/container.NAME for one of its containers.
const Domain = "cosched.io"

// Keys of annotations.
const (
	KeyHome    = "cpus-preferred"
	KeyWeights = "weights"
	KeyCluster = "cluster"
)

// classAnnotated is shown as the class of pods and containers whose annotations decide.
const classAnnotated = "annotated"

// asked is what annotations ask for. A value that is nil is not asked for.
type asked struct {
	home    *cosched.Home
	weights *cosched.Weights
	inherit bool // an annotation asks for inherited weights
	cluster string

	containers map[string]*asked
}

// maxValue is what the kernel accepts in one write. It is enough for a CPU list of every other of
// 1,800 CPUs.
const maxValue = 4095

// maxSaid bounds the messages about one pod, whose annotations can be as long as etcd allows.
const maxSaid = 10

// annotations parses the annotations of a pod. An invalid annotation is refused and ignored.
func annotations(parse func(string) (cosched.Home, error), all map[string]string) (a asked, refused []string) {
	a.containers = map[string]*asked{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		prefix, key, _ := strings.Cut(name, "/")
		to := &a
		switch {
		case prefix == Domain:
		case strings.HasSuffix(prefix, "."+Domain):
			container, ok := strings.CutPrefix(key, "container.")
			key = strings.TrimSuffix(prefix, "."+Domain)
			if !ok || container == "" || key == KeyCluster {
				key = "" // pods have clusters, containers do not
				break
			}
			if to = a.containers[container]; to == nil {
				to = &asked{}
				a.containers[container] = to
			}
		default:
			continue
		}
		// Those after the last one that is told of are still parsed: they may be valid.
		switch err := to.assign(parse, key, all[name]); {
		case err == nil || len(refused) > maxSaid:
		case len(refused) == maxSaid:
			refused = append(refused, "more annotations were refused")
		default:
			refused = append(refused, fmt.Sprintf("annotation %.253s: %v", name, err))
		}
	}
	return a, refused
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

func (a *asked) assign(parse func(string) (cosched.Home, error), key, value string) error {
	if len(value) > maxValue {
		return fmt.Errorf("its value is longer than %d bytes", maxValue)
	}
	switch key {
	case KeyHome:
		home, err := parse(value)
		if err != nil {
			return err
		}
		a.home = &home
	case KeyWeights:
		w, err := parseWeights(value)
		if err != nil {
			return err
		}
		a.weights, a.inherit = w, w == nil
	case KeyCluster:
		if !clusterName.MatchString(value) {
			return fmt.Errorf("%q is not the name of a cluster, such as shop: give at most 63 of a-z, 0-9, . and -", value)
		}
		a.cluster = value
	default:
		return fmt.Errorf("there are %s/%s, %s and %s for pods, %s.%s/container.NAME and %s for containers", Domain, KeyHome, KeyWeights, KeyCluster, KeyHome, Domain, KeyWeights)
	}
	return nil
}

// parseWeights gives nil for weights that are inherited.
func parseWeights(value string) (*cosched.Weights, error) {
	if value == "" || value == "inherit" {
		return nil, nil
	}
	w, err := cosched.ParseWeights(strings.Replace(value, ":", " ", 1))
	if err != nil {
		return nil, errors.New("weights are two integers from 1 to 10000, as 100 150")
	}
	return &w, nil
}

// wish is the values that a cgroup is to have. A value that is nil is inherited.
type wish struct {
	home    *cosched.Home
	weights *cosched.Weights
}

func (w wish) String() string {
	var parts []string
	if w.home != nil {
		parts = append(parts, "home "+w.home.Value)
	}
	if w.weights != nil {
		parts = append(parts, "weights "+w.weights.String())
	}
	if parts == nil {
		return "nothing of its own"
	}
	return strings.Join(parts, ", ")
}

// some gives nil for a home that is inherited.
func some(h *cosched.Home) *cosched.Home {
	if h == nil || h.Value == "" {
		return nil
	}
	return h
}
