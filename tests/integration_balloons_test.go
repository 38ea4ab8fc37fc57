//go:build integration

package tests

import (
	_ "embed"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

//go:embed balloons.sh
var balloonsScript string

// balloonsConfig gives CPU 0 to Kubernetes's own pods and CPU 1 to no pod, so that the balloon
// of all other pods has one or both CPUs of the second LLC domain.
const balloonsConfig = `
apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata:
  name: default
spec:
  availableResources:
    cpu: cpuset:0,2-3
  reservedResources:
    cpu: cpuset:0
  pinCPU: true
  pinMemory: false
  balloonTypes:
  - name: shop
    namespaces:
    - shop
    minCPUs: 1
    maxCPUs: 2
    maxBalloons: 1
`

// balloonsWant is the expected output for a home that shares no CPU with the balloon, for a home
// that shares one, and for a home that the kernel chooses.
const balloonsWant = `
one CPU
one: on 2, asks for 0-1, has 0-1, runs outside
inflated, for another pod
one: on 2-3, asks for 0-1, has 0-1, runs outside
two: on 2-3, asks for 1-2, has 1-2, runs at home
with a third pod, that requests nothing
three: on 2-3, asks for auto, has what the kernel chooses, runs at home
deflated, as it has ended
one: on 2, asks for 0-1, has 0-1, runs outside
three: on 2, asks for auto, has what the kernel chooses, runs at home
with another policy of cosched
one: on 2, asks for 0-1, has 0-1, runs outside
three: on 2, asks for 2-3, has 2-3, runs at home
with another configuration of balloons
one: on 2-3, asks for 0-1, has 0-1, runs outside
three: on 2-3, asks for 2-3, has 2-3, runs at home
with both started again
one: on 2-3, asks for 0-1, has 0-1, runs outside
three: on 2-3, asks for 2-3, has 2-3, runs at home
`

// cosched-nri beside NRI's balloons policy, whose balloons are cpusets: pods run on the CPUs of
// their balloon, whatever its size, and keep asking for the same home. Neither plugin undoes what
// the other did.
func TestIntegrationNRIBalloons(t *testing.T) {
	balloons := upstream(t, "balloons", "github.com/containers/nri-plugins/cmd/plugins/balloons", "", "")
	script := podsScript + balloonsScript
	out := inDebian(t, "trixie", script, withPods(t), func(c *vm.Config) {
		c.Command = []string{"sh", "-c", script, "sh", "containerd"}
		c.Programs = append(c.Programs, balloons)
		c.Files = append(c.Files, vm.File{Path: "/nri/balloons.yaml", Data: []byte(balloonsConfig)})
	})
	want := strings.TrimLeft(balloonsWant, "\n")
	if out != want {
		t.Errorf("the guest says\n%s\nwant\n%s", out, want)
	}
}
