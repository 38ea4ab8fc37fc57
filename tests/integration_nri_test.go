//go:build integration

package tests

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

var (
	//go:embed pods.sh
	podsScript string
	//go:embed nri.sh
	nriScript string
)

// image returns an image that contains only busybox, in the format of docker save. It serves as
// the pause image too.
func image(t *testing.T) []byte {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	pack := func(files map[string][]byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, data := range files {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	type m = map[string]any
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	layer := pack(map[string][]byte{"bin/busybox": busybox})
	return pack(map[string][]byte{
		"layer.tar": layer,
		"config.json": text(m{
			"architecture": "amd64", "os": "linux", "config": m{"Entrypoint": []string{"/bin/busybox", "sleep", "100000"}},
			"rootfs": m{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		}),
		"manifest.json": text([]m{{"Config": "config.json", "RepoTags": []string{"localhost/busybox:1"}, "Layers": []string{"layer.tar"}}}),
	})
}

// containerdConfig has a handler for each runtime and cgroup driver, and enables NRI.
func containerdConfig() []byte {
	var b strings.Builder
	const cri = `plugins."io.containerd.grpc.v1.cri"`
	fmt.Fprintf(&b, "version = 2\n[%s]\nsandbox_image = \"localhost/busybox:1\"\n[%[1]s.containerd]\nsnapshotter = \"native\"\ndefault_runtime_name = \"runc-systemd\"\n", cri)
	for _, runtime := range []string{"runc", "crun"} {
		for _, driver := range []string{"cgroupfs", "systemd"} {
			at := fmt.Sprintf("%s.containerd.runtimes.%s-%s", cri, runtime, driver)
			fmt.Fprintf(&b, "[%s]\nruntime_type = \"io.containerd.runc.v2\"\n[%[1]s.options]\nBinaryName = \"%s\"\nSystemdCgroup = %t\n", at, runtime, driver == "systemd")
		}
	}
	fmt.Fprintf(&b, "[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = false\n")
	return []byte(b.String())
}

// crioConfig has both runtimes; the cgroup driver is an option of the daemon.
const crioConfig = `
[crio]
storage_driver = "vfs"
[crio.runtime]
pinns_path = "/usr/local/bin/pinns"
default_runtime = "runc"
conmon_cgroup = "pod"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
[crio.image]
pause_image = "localhost/busybox:1"
pause_command = ""
`

// withPods puts into a guest what is needed to run pods there: the plugin, the client that
// takes the place of the kubelet, containerd's configuration and an image.
func withPods(t *testing.T) func(*vm.Config) {
	t.Helper()
	dir := t.TempDir()
	for _, b := range []struct{ dir, pkg, name string }{{"tools/cosched", "./cmd/cosched-nri", "cosched-nri"}, {"tests", "./cri", "cri"}} {
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s", "-o", filepath.Join(dir, b.name), b.pkg)
		build.Dir = filepath.Join(root, b.dir)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", b.name, err, text)
		}
	}
	return func(c *vm.Config) {
		c.Programs = append(c.Programs, filepath.Join(dir, "cosched-nri"), filepath.Join(dir, "cri"))
		c.Files = append(c.Files, vm.File{Path: "/nri/image.tar", Data: image(t)}, vm.File{Path: "/nri/containerd.toml", Data: containerdConfig()})
	}
}

// The first command of a container sees the home, with each runtime and cgroup driver, even if
// the controller was enabled nowhere before. The test also covers restarts, a policy that
// changes, refused values and cpusets. It uses the containerd of Debian 13: the one of Debian 12
// has no NRI.
func TestIntegrationNRI(t *testing.T) { podsBy(t, "containerd") }

// The same with CRI-O, which Debian does not have.
func TestIntegrationNRICrio(t *testing.T) {
	crio := upstream(t, "crio", "github.com/cri-o/cri-o/cmd/crio",
		"containers_image_openpgp,containers_image_ostree_stub,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper", "")
	pinns := filepath.Join(t.TempDir(), "pinns")
	sources, err := filepath.Glob(filepath.Join(moduleOf(t, "crio", "github.com/cri-o/cri-o").Dir, "pinns/src/*.c"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "gcc", append(sources, "-std=c99", "-Os", "-static", "-o", pinns)...).CombinedOutput(); err != nil {
		t.Fatalf("building pinns: %v\n%s", err, text)
	}
	podsBy(t, "crio", func(c *vm.Config) {
		c.Programs = append(c.Programs, crio, pinns)
		c.Files = append(c.Files, vm.File{Path: "/nri/crio.toml", Data: []byte(crioConfig)})
	})
}

// podsBy runs pods with homes with a runtime, and checks what the script prints.
func podsBy(t *testing.T, runtime string, change ...func(*vm.Config)) {
	t.Helper()
	script := podsScript + nriScript
	out := inDebian(t, "trixie", script, append(change, withPods(t), func(c *vm.Config) {
		c.Command = []string{"sh", "-c", script, "sh", runtime}
	})...)
	var want []string
	for _, handler := range []string{"runc-cgroupfs", "crun-cgroupfs", "runc-systemd", "crun-systemd"} {
		want = append(want, handler+": whole: 2-3, weights 4 1000", handler+": apart: 0 2-3")
	}
	want = append(want,
		"after a restart of the runtime: 2-3, before: 2-3",
		"topology: llc-0 0-1 1500m llc-1 2-3 875m",
		"without the plugin: nothing",
		"with the plugin again: auto, before: 2-3",
		"with another policy: 0-1",
		"a refused value: runs, with 0-1, one line",
		"a cpuset: runs on 2, home 2-3",
		"a cluster: 0-1 0-1",
		"not without: refused",
	)
	got := strings.Split(strings.TrimSpace(out), "\n")
	if !slices.Equal(got, want) {
		t.Errorf("the guest says\n%s\nwant\n%s", out, strings.Join(want, "\n"))
	}
}
