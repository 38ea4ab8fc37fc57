package nri

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"cosched.io/cosched"
)

// Classes that need no definition.
const (
	ClassAuto    = "auto"    // the kernel chooses the home
	ClassInherit = "inherit" // nothing is asked for
)

// Policy is the content of the file that says which class a pod belongs to.
type Policy struct {
	// OnError is "log", or "fail" if pods must not run without the values that they ask for.
	OnError string `json:"onError,omitempty"`
	// Default is the class of pods that no rule matches: ClassAuto if it is not given.
	Default string           `json:"default,omitempty"`
	Classes map[string]Class `json:"classes,omitempty"`
	// Rules are tried in their order. The first that matches decides.
	Rules []Rule `json:"rules,omitempty"`

	text string
}

// Class is what pods are given.
type Class struct {
	CPUsPreferred string `json:"cpusPreferred,omitempty"`
	Weights       string `json:"weights,omitempty"`
}

// Rule matches pods that are in one of the namespaces and have all labels. If namespaces or labels
// are not given, all match.
type Rule struct {
	Namespaces []string          `json:"namespaces,omitempty"` // * and ? stand for other characters
	Labels     map[string]string `json:"labels,omitempty"`
	Class      string            `json:"class"`
}

// maxPolicy is the maximum size of a ConfigMap, as etcd does not store more.
const maxPolicy = 1 << 20

// ReadPolicy reads the file. Without a file, every pod has ClassAuto.
func ReadPolicy(h cosched.Host, file string) (*Policy, error) {
	if file == "" {
		return ParsePolicy(h, file, nil)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fail(cosched.ExitNoInput, err, "%v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fail(cosched.ExitIO, err, "%v", err)
	}
	if len(text) > maxPolicy {
		return nil, fail(cosched.ExitData, nil, "%s: longer than %d bytes", file, maxPolicy)
	}
	return ParsePolicy(h, file, text)
}

// ParsePolicy reads a policy in YAML or JSON. It refuses what is wrong on every machine. It does not
// refuse a home that this machine lacks, because the same file is used on all machines.
func ParsePolicy(h cosched.Host, file string, text []byte) (*Policy, error) {
	p := &Policy{text: string(text)}
	wrong := func(format string, args ...any) error {
		return fail(cosched.ExitData, nil, "%s: %s", file, cosched.Printable(fmt.Sprintf(format, args...)))
	}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		return nil, wrong("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	if p.OnError == "" {
		p.OnError = "log"
	}
	if p.OnError != "log" && p.OnError != "fail" {
		return nil, wrong("onError: %q is neither log nor fail", p.OnError)
	}
	for name, c := range p.Classes {
		if name == ClassAuto || name == ClassInherit || name == classAnnotated {
			return nil, wrong("classes: %s is built in: give your class another name", name)
		}
		_, err := h.ParseHome(c.CPUsPreferred)
		var problem *cosched.Problem
		if errors.As(err, &problem) && problem.Status == cosched.ExitUsage {
			return nil, wrong("classes: %s: cpusPreferred: %v", name, err)
		}
		if _, err := parseWeights(c.Weights); err != nil {
			return nil, wrong("classes: %s: weights: %v", name, err)
		}
	}
	if p.Default == "" {
		p.Default = ClassAuto
	}
	if _, ok := p.class(p.Default); !ok {
		return nil, wrong("default: there is no class %q, only %s", p.Default, p.names())
	}
	for i, r := range p.Rules {
		if _, ok := p.class(r.Class); !ok {
			return nil, wrong("rules: number %d: there is no class %q, only %s", i+1, r.Class, p.names())
		}
		for _, n := range r.Namespaces {
			if _, err := path.Match(n, ""); err != nil {
				return nil, wrong("rules: number %d: namespaces: %q: %v", i+1, n, err)
			}
		}
	}
	return p, nil
}

func (p *Policy) class(name string) (Class, bool) {
	switch name {
	case ClassAuto:
		return Class{CPUsPreferred: "auto"}, true
	case ClassInherit:
		return Class{}, true
	}
	c, ok := p.Classes[name]
	return c, ok
}

func (p *Policy) names() string {
	names := []string{ClassAuto, ClassInherit}
	for name := range p.Classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Of gives the class of a pod.
func (p *Policy) Of(namespace string, labels map[string]string) (name string, c Class) {
	name = p.Default
	if i := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.matches(namespace, labels) }); i >= 0 {
		name = p.Rules[i].Class
	}
	c, _ = p.class(name)
	return name, c
}

func (r *Rule) matches(namespace string, labels map[string]string) bool {
	in := func(pattern string) bool {
		ok, _ := path.Match(pattern, namespace)
		return ok
	}
	if len(r.Namespaces) > 0 && !slices.ContainsFunc(r.Namespaces, in) {
		return false
	}
	for k, v := range r.Labels {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
