// Package nri gives the pods and containers of Kubernetes homes, by a plugin for the Node
// Resource Interface of containerd and CRI-O.
//
// Values are written to the files of cgroups rather than handed to the runtime, which
// could write them too (linux.resources.unified). A runtime that cannot enable the
// controller, as crun, or a kernel that refuses a value, would fail the container; and the
// containers of a pod are one cluster only by the pod's cgroup, which is not the
// runtime's. NRI tells of a pod before its first container is made, and of a container
// when its cgroup is there and its program not yet started: what is written then holds
// from the first thread on.
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

// Domain is what annotations begin or end with: cosched.io/KEY for a pod and, as NRI's own
// plugins have it, KEY.cosched.io/container.NAME for one of its containers.
const Domain = "cosched.io"

// Keys of annotations.
const (
	KeyHome    = "cpus-preferred"
	KeyWeights = "weights"
	KeyCluster = "cluster"
)

// classAnnotated is shown as the class of pods and containers whose annotations choose.
const classAnnotated = "annotated"

// asked is what annotations ask for; what is nil is not asked for.
type asked struct {
	home    *cosched.Home
	weights *cosched.Weights
	inherit bool // the weights, asked for by a value that says so
	cluster string

	containers map[string]*asked
}

// maxValue is far more than a CPU list of a machine with every other CPU of thousands, and
// what the kernel takes in one write.
const maxValue = 4095

// maxSaid bounds what is said of one pod: its annotations can be as long as etcd allows.
const maxSaid = 10

// annotations reads those of a pod. One that makes no sense is refused, and asks for nothing.
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
		err := to.assign(parse, key, all[name])
		if err == nil {
			continue
		}
		if len(refused) == maxSaid {
			return a, append(refused, "more annotations are refused")
		}
		refused = append(refused, fmt.Sprintf("annotation %.253s: %v", name, err))
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
			return fmt.Errorf("%q is no name of a cluster, such as shop: at most 63 of a-z, 0-9, . and -", value)
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

// wish is what a cgroup is to have: nothing of what is nil, so that it inherits it.
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
