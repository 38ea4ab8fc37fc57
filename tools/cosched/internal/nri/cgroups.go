package nri

import (
	"path"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"cosched.io/cosched"
)

// podGroup gives the cgroup of a pod. There is none if the client of the runtime, unlike the
// kubelet, does not make a cgroup for each pod. Then the pod's UID is not in the name of the parent
// cgroup.
func podGroup(h cosched.Host, pod *api.PodSandbox) (cosched.Group, bool) {
	parent := pod.GetLinux().GetCgroupParent()
	base := path.Base(parent)
	uid := strings.ReplaceAll(pod.GetUid(), "_", "-")
	if uid == "" || !strings.Contains(strings.ReplaceAll(base, "_", "-"), uid) {
		return "", false
	}
	if !strings.Contains(parent, "/") {
		if parent = slice(base); parent == "" {
			return "", false
		}
	}
	return group(h, parent)
}

// containerGroup gives the cgroup of a container, in the forms of both cgroup drivers:
// a path, or SLICE:PREFIX:NAME for a scope of systemd.
func containerGroup(h cosched.Host, c *api.Container) (cosched.Group, bool) {
	at := c.GetLinux().GetCgroupsPath()
	parts := strings.Split(at, ":")
	if len(parts) != 3 {
		return group(h, at)
	}
	parent := parts[0]
	switch {
	case parent == "":
		parent = "system.slice" // as in runc and crun
	case !strings.Contains(parent, "/"):
		if parent = slice(parent); parent == "" {
			return "", false
		}
	}
	unit := parts[2]
	if parts[1] != "" {
		unit = parts[1] + "-" + unit
	}
	if strings.HasSuffix(parts[2], ".slice") {
		return "", false
	}
	return group(h, parent+"/"+unit+".scope")
}

// slice gives the path of a slice of systemd: a-b.slice is in a.slice.
func slice(name string) string {
	stem, ok := strings.CutSuffix(name, ".slice")
	if !ok || stem == "" || strings.Contains(name, "/") {
		return ""
	}
	at, prefix := "", ""
	for part := range strings.SplitSeq(stem, "-") {
		if part == "" {
			return "" // -.slice is the root; others are not valid names
		}
		prefix += part
		at += "/" + prefix + ".slice"
		prefix += "-"
	}
	return at
}

// group gives the cgroup of a path below the root, and none for a path that leads out of it.
func group(h cosched.Host, at string) (cosched.Group, bool) {
	if strings.ContainsAny(at, "\n\x00") || path.Clean("/"+at) == "/" {
		return "", false
	}
	for part := range strings.SplitSeq(at, "/") {
		if part == ".." {
			return "", false
		}
	}
	return cosched.Group(h.Cgroup + path.Clean("/"+at)), true
}
