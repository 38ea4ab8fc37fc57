package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"strings"
	"testing"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// The topology is that of the model, and a kernel by path is taken to support as many CPUs.
func TestMachineFor(t *testing.T) {
	for _, test := range []struct {
		model, preset, topology string
		cpus                    int
	}{
		{"", "demo", "", 16},
		{"", "smt8", "", 8},
		{"", "demo", "1,1,3,1", 3},
		{"rome", "demo", "", 32},
		{"cascade-lake", "demo", "", 8},
		{"../../internal/lab/models/rome.json", "demo", "", 32},
	} {
		m, topology, err := machineFor(flag.NewFlagSet("", flag.ContinueOnError), test.model, test.preset, test.topology)
		if err != nil || topology.CPUs() != test.cpus || (m.Name != "") != (test.model != "") {
			t.Errorf("%+v: model %q, %v: %v", test, m.Name, topology, err)
		}
		c := vm.Config{Topology: topology}
		if vmlinux, err := setKernel(t.Context(), &c, "./bzImage", kbuild.DefaultBase); err != nil || vmlinux != "" || c.Kernel != "./bzImage" || c.KernelCPUs != test.cpus {
			t.Errorf("%+v: kernel %q for %d CPUs, %q: %v", test, c.Kernel, c.KernelCPUs, vmlinux, err)
		}
	}
}

// What cannot be is refused before a kernel is looked for.
func TestVMOptions(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"--model foo", `no machine model "foo"`},
		{"--model ./foo.json", "foo.json"},
		{"--model rome --preset epyc", "--preset does not go with --model"},
		{"--model rome --topology 1,8,4,1", "--topology does not go with --model"},
		{"--preset foo", "foo"},
		{"--topology 1,2", "1,2"},
		{"--model-on", "--model"},
		{"--seed 3", "--virtual"},
	} {
		args := append(strings.Fields(test.args), "--kernel", "nonesuch", "--", "true")
		if err := runVM(t.Context(), args); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}

func TestPresets(t *testing.T) {
	var all, one, asJSON bytes.Buffer
	if err := errors.Join(listPresets(&all, nil, false), listPresets(&one, []string{"smt8"}, false), listPresets(&asJSON, []string{"demo", "smt8"}, true)); err != nil {
		t.Fatal(err)
	}
	for _, p := range vm.Presets {
		if !strings.Contains(all.String(), p.Name+" ") {
			t.Errorf("no %s in\n%s", p.Name, &all)
		}
	}
	if !strings.HasPrefix(one.String(), "smt8 ") || strings.Count(one.String(), "\n") != 2 {
		t.Errorf("of smt8:\n%s", &one)
	}
	var list []vm.Preset
	if err := json.Unmarshal(asJSON.Bytes(), &list); err != nil || len(list) != 2 || list[1].Name != "smt8" {
		t.Errorf("%v: %+v", err, list)
	}
	if err := runPresets(t.Context(), []string{"nonesuch"}); err == nil || !strings.Contains(err.Error(), "nonesuch") {
		t.Errorf("a preset that is not there: %v", err)
	}
}
