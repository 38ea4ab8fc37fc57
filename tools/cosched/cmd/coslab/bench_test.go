package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cosched.io/cosched/internal/bench"
)

const oneRow = `[
{"suite": "mine", "run": {"row": {"name": "r"}, "kernel": "test", "policy": "none", "transfer": 1, "seed": 1}, "metric": "msec", "value": 30},
{"suite": "mine", "run": {"row": {"name": "r"}, "kernel": "test", "policy": "hard", "transfer": 1, "seed": 1}, "metric": "msec", "value": 20}]
`

// With --from, tables and plots are made of results that are there, which stay as they are.
func TestBenchFrom(t *testing.T) {
	dir := t.TempDir()
	results := filepath.Join(dir, "results.json")
	if err := os.WriteFile(results, []byte(oneRow), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := runBench(t.Context(), []string{"--from", results, "--out", dir}); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{
		"table.txt": "+50.0 %", "table.rst": "+50.0 %", "means.rst": "``r``", "plot.png": "PNG", "plot.svg": "suite mine", "results.json": oneRow,
	} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data), says) {
			t.Errorf("no %q in %s (%v)", says, name, err)
		}
	}
}

// With --against, means are compared with those of a policy that the results have.
func TestBenchAgainst(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(results, []byte(oneRow), 0o644); err != nil {
		t.Fatal(err)
	}
	for against, says := range map[string]string{"hard": "", "auto": `no row has results with policy "auto"`} {
		err := runBench(t.Context(), []string{"--from", results, "--against", against})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", against, err)
		}
	}
}

func TestBenchOptions(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--from", "/nonesuch"}, "/nonesuch"},
		{[]string{"--from", "r.json", "--fresh"}, "--fresh"},
		{[]string{"--from", "r.json", "--row", "r"}, "--row"},
		{[]string{"--jobs", "0"}, "--jobs"},
		{[]string{"--from", "r.json", "--transfer", "2"}, "--transfer"},
		{[]string{"--seed", "one"}, "one"},
		{[]string{"--seed", "1", "--seed", "1"}, "seed 1 is given twice"},
		{[]string{"--transfer", "half"}, "half"},
		{[]string{"--transfer", "-1"}, "-1"},
		{[]string{"--transfer", "NaN"}, "NaN"},
		{[]string{"--kernel", "corn"}, "corn"},
		{[]string{"--suite", "talk", "--transfer", "2"}, "model"},
		{[]string{"--against", "hrad"}, "hrad"},
		{[]string{"--policy", "none", "--against", "hard"}, "hard"},
		{[]string{"stray"}, "stray"},
	} {
		if err := runBench(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}

// The help names all policies.
func TestBenchUsage(t *testing.T) {
	_, text, _ := strings.Cut(benchUsage, "Policies: ")
	for _, p := range bench.Policies {
		if !strings.Contains(" "+text, " "+string(p)+",") && !strings.Contains(text, string(p)+";") {
			t.Errorf("no policy %s in\n%s", p, text)
		}
	}
}
