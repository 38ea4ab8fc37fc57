//go:build integration

package tests

import (
	_ "embed"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

//go:embed kubelet.sh
var kubeletScript string

// kubeletConfig is the configuration of a kubelet without an API server, which runs the pods
// that the files of a directory describe. A pod with exclusive CPUs gets those of a whole LLC
// domain, if possible.
const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /pods
fileCheckFrequency: 1s
enableServer: false
authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
cpuManagerPolicy: static
cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"}
cpuManagerReconcilePeriod: 1s
reservedSystemCPUs: "0"
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%"}
`

// kubeletWant is the expected output for a home that overlaps with the exclusive CPUs of another
// pod, for a home that the kernel chooses, and for the homes of pods with exclusive CPUs, on these
// CPUs and elsewhere.
const kubeletWant = `
all in the pool
shared: on 0-3, asks for 1-2, has 1-2, runs at home
auto: on 0-3, asks for auto, has what the kernel chooses, runs at home
a pod with its own CPUs
exclusive: on 2-3, asks for 2-3, has 2-3, runs at home
shared: on 0-1, asks for 1-2, has 1-2, runs at home
auto: on 0-1, asks for auto, has what the kernel chooses, runs at home
after a restart of the kubelet and the plugin
exclusive: on 2-3, asks for 2-3, has 2-3, runs at home
shared: on 0-1, asks for 1-2, has 1-2, runs at home
auto: on 0-1, asks for auto, has what the kernel chooses, runs at home
all in the pool again
shared: on 0-3, asks for 1-2, has 1-2, runs at home
auto: on 0-3, asks for auto, has what the kernel chooses, runs at home
a pod with its own CPUs and a home elsewhere
elsewhere: on 2-3, asks for 0-1, has 0-1, runs outside
shared: on 0-1, asks for 1-2, has 1-2, runs at home
`

// cosched-nri beside a kubelet's static CPU manager, whose exclusive CPUs and shared pool are cpusets.
func TestIntegrationNRIKubelet(t *testing.T) {
	kubelet := upstream(t, "kubelet", "k8s.io/kubernetes/cmd/kubelet", "",
		"-X k8s.io/component-base/version.gitVersion="+moduleOf(t, "kubelet", "k8s.io/kubernetes").Version)
	script := podsScript + kubeletScript
	out := inDebian(t, "trixie", script, withPods(t), func(c *vm.Config) {
		c.Command = []string{"sh", "-c", script, "sh", "containerd"}
		c.Programs = append(c.Programs, kubelet)
		c.Files = append(c.Files, vm.File{Path: "/nri/kubelet.yaml", Data: []byte(kubeletConfig)})
	})
	want := strings.TrimLeft(kubeletWant, "\n")
	if out != want {
		t.Errorf("the guest says\n%s\nwant\n%s", out, want)
	}
}
