package bench

import (
	"os"
	"path/filepath"
	"testing"

	"cosched.io/cosched/internal/kbuild"
)

// made returns the key of the first run of a suite, and its versions.
func made(t *testing.T, bin string, change func(s *Suite, b *series)) (string, map[string]string) {
	t.Helper()
	s, err := parseSuite("s", []byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	b := &series{bin: bin, suite: s, kernels: map[string]*kbuild.Kernel{"vanilla": {Version: "6.12.1", Image: "/k/vanilla-1/bzImage"}},
		programs: map[string]string{}, cargoes: map[string]*cargo{}, guests: map[string]string{},
		qemu: &kbuild.QEMU{Version: "10.0", Binary: "/q/qemu-1/qemu"}, plugin: "machine-1"}
	change(&s, b)
	b.suite = s
	if err := b.collect(t.Context(), s.Rows[0], t.TempDir()); err != nil {
		t.Fatal(err)
	}
	res, _, err := b.inputs(s.Runs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return res.Key, res.Versions
}

// The key of a run changes with what the result depends on, and with nothing else.
func TestKey(t *testing.T) {
	bin := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("warehouse", "#!/bin/sh\n")
	write("stir", "#!/bin/sh\n")
	first, versions := made(t, bin, func(*Suite, *series) {})
	for _, name := range []string{"linux", "kernel", "qemu", "qemu_build", "machine", "warehouse", "guest"} {
		if versions[name] == "" {
			t.Errorf("no %s among the versions: %v", name, versions)
		}
	}
	for _, test := range []struct {
		name   string
		same   bool
		change func(s *Suite, b *series)
	}{
		{"nothing", true, func(*Suite, *series) {}},
		{"descriptions and commands", true, func(s *Suite, _ *series) {
			s.Name, s.from, s.About, s.Rows[0].About, s.Rows[0].Name = "other", "./other.json", "x", "z", "other"
		}},
		{"other runs of the row", true, func(s *Suite, _ *series) {
			s.Rows[0].Policies, s.Rows[0].Kernels, s.Seeds = s.Rows[0].Policies[:1], s.Rows[0].Kernels[:1], s.Seeds[:1]
		}},
		{"a library, busybox or the init of the guest", false, func(s *Suite, b *series) {
			_, id := b.contents(s.Rows[0])
			b.guests[id] = "another"
		}},
		{"the arguments", false, func(s *Suite, _ *series) { s.Rows[0].Args = []string{"--busy", "0"} }},
		{"the seed", false, func(s *Suite, _ *series) { s.Seeds[0]++ }},
		{"the kernel", false, func(_ *Suite, b *series) { b.kernels["vanilla"].Image = "/k/vanilla-2/bzImage" }},
		{"QEMU", false, func(_ *Suite, b *series) { b.qemu.Binary = "/q/qemu-2/qemu" }},
		{"the model", false, func(_ *Suite, b *series) { b.plugin = "machine-2" }},
	} {
		if key, _ := made(t, bin, test.change); (key == first) != test.same {
			t.Errorf("%s: the key is %s, was %s", test.name, key, first)
		}
	}
	write("warehouse", "#!/bin/dash\n")
	if key, _ := made(t, bin, func(*Suite, *series) {}); key == first {
		t.Error("the key is the same with another program")
	}
}
