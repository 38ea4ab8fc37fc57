//go:build integration

package tests

import (
	"testing"

	"cosched.io/cosched/internal/vm"
)

// The CPUs that are local to a disk and to a network card are those of the node to which their
// bus belongs, according to the firmware.
func TestIntegrationHomeOfDevice(t *testing.T) {
	c := vm.Config{
		Topology: topology(t, "smt8"), // node 0 has CPUs 0-3, node 1 4-7
		Kernel:   kernel(t, "integration").Image,
		QEMUArgs: []string{
			"-device", "pxb-pcie,id=far,bus=pcie.0,bus_nr=64,numa_node=1",
			"-device", "pcie-root-port,id=port1,bus=far,chassis=1",
			"-device", "pcie-root-port,id=port2,bus=far,chassis=2",
			"-blockdev", "driver=null-co,node-name=nothing,size=1048576,read-zeroes=on",
			"-device", "virtio-blk-pci,drive=nothing,bus=port1",
			"-netdev", "hubport,id=nowhere,hubid=0",
			"-device", "virtio-net-pci,netdev=nowhere,bus=port2,romfile=",
			// A card on the machine's first bus, which belongs to no node.
			"-netdev", "hubport,id=elsewhere,hubid=1",
			"-device", "virtio-net-pci,netdev=elsewhere,bus=pcie.0,romfile=",
		},
	}
	const far = `$(basename $(ls -d /sys/devices/pci*:40/*/*/virtio*/net/*))`
	play(t, c, []step{
		{sh: "cat /sys/devices/pci*:40/*/numa_node | sort -u; ls /sys/class/net | grep -c ^eth", out: "1\n2"},
		{sh: "cosched run --home dev:vda -- sh -c 'cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/cosched.cpus_preferred.effective'", out: "4-7"},
		{sh: "cosched run --home dev:/dev/vda -- true"},
		{sh: "cosched create card --home dev:" + far + "; " + home("card"), out: "4-7"},
		{sh: "for n in $(ls /sys/class/net | grep ^eth); do [ $n = " + far + " ] || cosched create near --home dev:$n || exit; done", status: 65,
			err: `cosched create: home "dev:eth\d": neither /sys/class/net/eth\d nor its bus says which CPUs are local to it: name CPUs`},
		{sh: "cosched run --home dev:lo true", status: 125, err: `[^\n]*neither[^\n]*`},
	})
}
