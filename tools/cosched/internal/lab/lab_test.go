package lab

import (
	"debug/elf"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// Each model that comes with the project is sound and says where its figures are from.
func TestModels(t *testing.T) {
	list, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("there are no models")
	}
	for _, m := range list {
		if m.About == "" {
			t.Errorf("%s: no description", m.Name)
		}
		checkSources(t, m)
		if found, err := Find(m.Name); err != nil || found.Name != m.Name {
			t.Errorf("Find(%s): %v", m.Name, err)
		}
	}
	if _, err := Find("abacus"); err == nil || !strings.Contains(err.Error(), list[0].Name) {
		t.Errorf("an unknown model: %v", err)
	}
}

// checkSources requires one source for each size and each cost, and none for anything else.
func checkSources(t *testing.T, m Model) {
	figures := map[string]int{"l1": 0, "l2": 0, "llc": 0}
	cost := reflect.TypeFor[Cost]()
	for i := range cost.NumField() {
		figures["cost."+cost.Field(i).Tag.Get("json")] = 0
	}
	for key, source := range m.Sources {
		if source == "" {
			t.Errorf("%s: the source of %s is empty", m.Name, key)
		}
		for name := range strings.SplitSeq(key, ", ") {
			if _, ok := figures[name]; !ok {
				t.Errorf("%s: a source of %q, which is no figure", m.Name, name)
			}
			figures[name]++
		}
	}
	for name, n := range figures {
		if n != 1 {
			t.Errorf("%s: %s has %d sources, not one", m.Name, name, n)
		}
	}
}

const sound = `{"name": "x", "about": "y", "preset": "paper", "ghz": 2.5,
"l1": {"bytes": 8192, "ways": 1}, "l2": {"bytes": 32768, "ways": 8}, "llc": {"bytes": 4194304, "ways": 16},
"cost": {"l2": 2, "llc": 14, "peer": 33, "atomic": 20, "transfer_near": 250, "transfer_far": 250, "memory_near": 280, "memory_far": 280},
"sources": {}, "published": [{"what": "rate", "cpu": 1, "than": 2, "value": 6.5, "source": "z"}, {"what": "latency", "cpu": 3, "value": 50, "source": "z"}]}`

// A description that cannot be modelled is refused, with a message that says what is wrong.
func TestBadModels(t *testing.T) {
	if _, err := parse([]byte(sound)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ from, to, says string }{
		{`"name": "x"`, `"name": ""`, "name"},
		{`"preset": "paper"`, `"preset": "papyrus"`, "papyrus"},
		{`"bytes": 32768`, `"bytes": 30000`, "l2"},
		{`"bytes": 4194304, "ways": 16`, `"bytes": 4194304, "ways": 0`, "llc"},
		{`"bytes": 8192, "ways": 1`, `"bytes": 8192, "ways": 3`, "l1"},
		{`"llc": 14`, `"llc": 1`, "costs"},
		{`"memory_far": 280`, `"memory_far": 20`, "costs"},
		{`"atomic": 20`, `"atomic": -1`, "costs"},
		{`"about"`, `"abuot"`, "abuot"},
		{`"ghz": 2.5`, `"ghz": 0`, "ghz"},
		{`"rate"`, `"ratio"`, "ratio"},
		{`"than": 2`, `"than": 4`, "1 to 3"},
		{`"than": 2`, `"than": 1`, "different"},
		{`"cpu": 3`, `"cpu": 4`, "1 to 3"},
		{`"value": 50`, `"value": 0`, "value"},
		{`"value": 50, "source": "z"`, `"value": 50`, "source"},
	} {
		text := strings.Replace(sound, test.from, test.to, 1)
		if text == sound {
			t.Fatalf("%s is not in the description", test.from)
		}
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("with %s: %v", test.to, err)
		}
	}
}

// The plugin is told which CPU belongs to which core, LLC and node, and the costs between
// nodes.
func TestDescription(t *testing.T) {
	m, err := parse([]byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	m.Cost.TransferFar, m.Cost.MemoryFar, m.Scatter = 300, 400, 7
	top := vm.Topology{Sockets: 2, Dies: 2, Cores: 1, Threads: 2, Nodes: 2, Distance: 40}
	got := m.description(top, 4096)
	for _, want := range []string{
		"core 0 0 1 1 2 2 3 3\n", "llc 0 1 2 3\n", "node 0 0 1 1\n",
		"memory 4294967296 2147483648\n",
		"cost.nodes 0 0 250 280\n", "cost.nodes 0 1 600 800\n",
		"size.l2 32768 8\n", "cost.peer 33\n", "scatter.l1 7\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if small := m.description(top, 1024); !strings.Contains(small, "memory 1073741824 1073741824\n") {
		t.Errorf("1 GiB is all below the hole:\n%s", small)
	}
}

// Addresses are exact in JSON, and figures of lines are read back.
func TestReportLines(t *testing.T) {
	text := `{"region_ns":1,"total":{},"vcpus":null,"clusters":null,"cpu_data":["0xffff88803ec00001"],"lines":[{"address":"0xffffffff81a06981","line":7,"set":3,"l2_hits":5}]}`
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.CPUData[0] != 0xffff88803ec00001 || r.Lines[0].Address != 0xffffffff81a06981 || r.Lines[0].L2Hits != 5 {
		t.Errorf("%+v", r)
	}
	out, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(out), `"address":"0xffffffff81a06981"`) || !strings.Contains(string(out), `"cpu_data":["0xffff88803ec00001"]`) {
		t.Errorf("%s, %v", out, err)
	}
	if json.Unmarshal([]byte(`{"cpu_data":["here"]}`), &r) == nil {
		t.Error("an address that is none")
	}
}

// A symbol is found at each of its addresses from the first to the last byte, and at no
// other.
func TestSymbolAt(t *testing.T) {
	symbols := []elf.Symbol{{Name: "a", Value: 0x100, Size: 0x10}, {Name: "b", Value: 0x110, Size: 8}}
	for address, want := range map[uint64]string{
		0xff: "", 0x100: "a+0x0", 0x10f: "a+0xf", 0x110: "b+0x0", 0x117: "b+0x7", 0x118: "",
	} {
		if got := symbolAt(symbols, address); got != want {
			t.Errorf("at %#x is %q, not %q", address, got, want)
		}
	}
}

// The documentation has each field of a description.
func TestFieldsAreDocumented(t *testing.T) {
	root, err := kbuild.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "Documentation", "lab.rst"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "A description is a JSON file")
	table, _, _ = strings.Cut(table, "A program switches")
	for _, of := range []reflect.Type{reflect.TypeFor[Model](), reflect.TypeFor[Cost](), reflect.TypeFor[Cache](), reflect.TypeFor[Published]()} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(table, "``"+name+"``") {
				t.Errorf("%s has a field %s, and the documentation does not", of, name)
			}
		}
	}
}
