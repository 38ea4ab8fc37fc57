package nri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

func TestPolicy(t *testing.T) {
	h := coschedtest.Host(t)
	p, err := ParsePolicy(h, "policy", []byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		namespace string
		labels    map[string]string
		class     string
	}{
		{"kube-system", m{"app": "db"}, "inherit"},
		{"shop", m{"app": "db", "tier": "x"}, "database"},
		{"shop-1", m{"app": "db"}, "database"},
		{"shop-12", m{"app": "db"}, "auto"},
		{"shop", nil, "auto"},
		{"shop", m{"App": "db"}, "auto"},
		{"x", m{"app": "huge"}, "elsewhere"},
	} {
		if class, _ := p.Of(tc.namespace, tc.labels); class != tc.class {
			t.Errorf("a pod of %s with %v is of class %s, want %s", tc.namespace, tc.labels, class, tc.class)
		}
	}
	for text, want := range map[string]string{
		"default: x":                                    `there is no class "x", only auto, inherit`,
		"onError: panic":                                `"panic" is neither log nor fail`,
		"on_error: fail":                                `unknown field "on_error"`,
		"classes: {auto: {}}":                           "auto is built in",
		"classes: {annotated: {}}":                      "annotated is built in",
		"classes: {x: {cpusPreferred: somewhere}}":      `classes: x: cpusPreferred: home "somewhere" is not`,
		"classes: {x: {cpusPreferred: 3-1}}":            `home "3-1" is not a CPU list`,
		"classes: {x: {cpusPreferred: 0-}}":             `home "0-" is not a CPU list`,
		"classes: {x: {weights: 1 2 3}}":                "classes: x: weights: weights are two integers",
		"classes: {x: {cpus: 1}}":                       `unknown field "cpus"`,
		"rules: [{class: auto}, {class: z}]":            `number 2: there is no class "z"`,
		"rules: [{class: auto, namespaces: ['a[']}]":    `namespaces: "a["`,
		"rules: [{class: auto, namespaces: a}]":         "policy: ",
		"rules: [{labels: {a: b}}]":                     `there is no class ""`,
		"default: auto\ndefault: auto\n":                `key "default" already set`,
		"[1":                                            "policy: ",
		"default: \"\\e[2J\"":                           `there is no class "\x1b[2J"`,
		"classes: {x: {cpusPreferred: '\x00'}}":         "policy: ",
		"a: &a [*a]":                                    "policy: ",
		"rules: [{class: auto, labels: {a: {b: c}}}]\n": "policy: ",
	} {
		_, err := ParsePolicy(h, "policy", []byte(text))
		var problem *cosched.Problem
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") || !errors.As(err, &problem) || problem.Status != cosched.ExitData {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	// A home that another machine can have.
	for _, home := range []string{"4000", "0-255:2/4", "20-N"} {
		if _, err := ParsePolicy(h, "policy", []byte("classes: {x: {cpusPreferred: '"+home+"'}}")); err != nil {
			t.Error(err)
		}
	}
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, make([]byte, maxPolicy+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPolicy(h, file); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a large file: %v", err)
	}
}

func TestGroups(t *testing.T) {
	h := cosched.Host{Cgroup: "/cg"}
	for path, want := range map[string]cosched.Group{
		"/kubepods/burstable/pod1/c":                        "/cg/kubepods/burstable/pod1/c",
		"kubepods-besteffort-pod1_2.slice:cri-containerd:c": "/cg/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-c.scope",
		"/kubepods.slice/kubepods-pod1.slice:crio:c":        "/cg/kubepods.slice/kubepods-pod1.slice/crio-c.scope",
		":crio:c":           "/cg/system.slice/crio-c.scope",
		"a.slice::c":        "/cg/a.slice/c.scope",
		"":                  "",
		"/":                 "",
		"..":                "",
		"/a/../../x":        "",
		"-.slice:x:c":       "",
		"a--b.slice:x:c":    "",
		"../a.slice:x:c":    "/cg",
		"a.slice:../..:c":   "",
		"a.slice:x:b.slice": "",
		"a.slice:x:c\n":     "",
		"a:b:c:d":           "/cg/a:b:c:d",
		"user.slice:x:y":    "/cg/user.slice/x-y.scope",
	} {
		if want == "/cg" {
			want = ""
		}
		got, ok := containerGroup(h, &api.Container{Linux: &api.LinuxContainer{CgroupsPath: path}})
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t; want %q", path, got, ok, want)
		}
	}
	for _, tc := range []struct {
		parent, uid string
		want        cosched.Group
	}{
		{"/kubepods/pod1-2", "1-2", "/cg/kubepods/pod1-2"},
		{"/kubepods.slice/kubepods-pod1_2.slice", "1-2", "/cg/kubepods.slice/kubepods-pod1_2.slice"},
		{"kubepods-pod1_2.slice", "1-2", "/cg/kubepods.slice/kubepods-pod1_2.slice"},
		{"/kubepods.slice", "1-2", ""},
		{"/kubepods/pod1-2", "", ""},
		{"", "", ""},
		{"pod1-2", "1-2", ""},
		{"/../pod1-2", "1-2", ""},
	} {
		got, ok := podGroup(h, &api.PodSandbox{Uid: tc.uid, Linux: &api.LinuxPodSandbox{CgroupParent: tc.parent}})
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("%q of %q: %q, %t; want %q", tc.parent, tc.uid, got, ok, tc.want)
		}
	}
}

// Any policy is either refused, or can give the class of a pod.
func FuzzPolicy(f *testing.F) {
	h := coschedtest.Host(f)
	f.Add([]byte(policyText), "shop", "app", "db")
	f.Add([]byte("rules: [{class: auto, namespaces: ['[a-']}]"), "a", "", "")
	f.Fuzz(func(t *testing.T, text []byte, namespace, key, value string) {
		p, err := ParsePolicy(h, "policy", text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			return
		}
		name, class := p.Of(namespace, m{key: value})
		if _, ok := p.class(name); !ok {
			t.Errorf("there is no class %q", name)
		}
		if _, err := parseWeights(class.Weights); err != nil {
			t.Error(err)
		}
	})
}

// A pod with many invalid annotations is told of ten, and is given what the valid ones ask for, which
// come last here.
func TestManyAnnotations(t *testing.T) {
	all := m{"weights.cosched.io/container.main": "1 2"}
	for i := range 30 {
		all[fmt.Sprintf("cosched.io/mistake-%d", i)] = "1"
	}
	a, refused := annotations(coschedtest.Host(t).ParseHome, all)
	if len(refused) != maxSaid+1 || !strings.Contains(refused[maxSaid-1], "mistake-") || refused[maxSaid] != "more annotations were refused" {
		t.Errorf("refused are\n%s", strings.Join(refused, "\n"))
	}
	if c := a.containers["main"]; c == nil || c.weights == nil || c.weights.Allowed != 2 {
		t.Errorf("the container's annotation is lost: %+v", c)
	}
}

// What annotations ask for is valid, and the number of messages about them is bounded.
func FuzzAnnotations(f *testing.F) {
	h := coschedtest.Host(f)
	f.Add("cosched.io/cpus-preferred", "0-3", "weights.cosched.io/container.a", "1 2")
	f.Add("cosched.io/cluster", "a/b", "cpus-preferred.cosched.io/container.", "llc:0")
	f.Add("cosched.io/", "dev:../x", ".cosched.io/container.x", "near:1-4096")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		a, refused := annotations(h.ParseHome, m{k1: v1, k2: v2})
		if len(refused) > 2 {
			t.Errorf("%d lines of two annotations", len(refused))
		}
		all := []*asked{&a}
		for _, c := range a.containers {
			all = append(all, c)
			if c.cluster != "" {
				t.Error("a container has a cluster")
			}
		}
		for _, a := range all {
			if a.home != nil && strings.ContainsAny(a.home.Value, "\n\x00") {
				t.Errorf("home %q", a.home.Value)
			}
			if w := a.weights; w != nil && (w.Preferred < 1 || w.Allowed > 10000) {
				t.Errorf("weights %v", w)
			}
			if a.cluster != "" && strings.ContainsAny(a.cluster, "/\n ") {
				t.Errorf("cluster %q", a.cluster)
			}
		}
	})
}

// A path of the runtime leads to a cgroup below the root, or to none.
func FuzzGroups(f *testing.F) {
	f.Add("kubepods-pod1.slice:cri-containerd:c", "/kubepods/pod1", "1")
	f.Add("..:..:..", "/../1", "1")
	f.Fuzz(func(t *testing.T, path, parent, uid string) {
		h := cosched.Host{Cgroup: "/cg"}
		c, ok1 := containerGroup(h, &api.Container{Linux: &api.LinuxContainer{CgroupsPath: path}})
		p, ok2 := podGroup(h, &api.PodSandbox{Uid: uid, Linux: &api.LinuxPodSandbox{CgroupParent: parent}})
		for g, ok := range map[cosched.Group]bool{c: ok1, p: ok2} {
			if ok && (!strings.HasPrefix(string(g), "/cg/") || filepath.Clean(string(g)) != string(g) || len(g) < 5) {
				t.Errorf("%q and %q lead to %q", path, parent, g)
			}
		}
	})
}
