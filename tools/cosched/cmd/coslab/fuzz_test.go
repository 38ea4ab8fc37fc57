package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each fuzz test of the module is run. A fuzz test that finds something fails.
func TestFuzz(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the tests of many packages")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	fuzzers := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		// This file contains the text of two fuzz tests that do not belong to this module.
		if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "fuzz_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range fuzzers.FindAllSubmatch(text, -1) {
			want = append(want, filepath.Base(filepath.Dir(path))+"/"+string(m[1]))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	checks, err := fuzzChecks(t.Context(), root, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		got = append(got, c.name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("fuzzed are\n%v, want\n%v", got, want)
	}

	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n",
		"a_test.go": `package a

import "testing"

func FuzzWrong(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, i int) { t.Error("always") })
}

func FuzzRight(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, i int) {})
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	checks, err = fuzzChecks(t.Context(), dir, time.Second)
	if err != nil || len(checks) != 2 {
		t.Fatalf("%v, %v", checks, err)
	}
	for _, c := range checks {
		if err := c.run(t.Context()); (err == nil) != (c.name == "example/FuzzRight") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTimeWasUp(t *testing.T) {
	const start = "fuzz: elapsed: 0s, gathering baseline coverage: 1/1 completed, now fuzzing with 2 workers\n"
	for out, want := range map[string]bool{
		start + "--- FAIL: FuzzA (1.02s)\n    context deadline exceeded\nexit status 1\nFAIL\texample\t1.023s\n":       true,
		start + "--- FAIL: FuzzA (1.02s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\texample\t1.023s\n": true,
		start + "--- FAIL: FuzzA (0.03s)\n    --- FAIL: FuzzA (0.00s)\n        a_test.go:7: context deadline exceeded\n    \n" +
			"    Failing input written to testdata/fuzz/FuzzA/1\nFAIL\nexit status 1\nFAIL\texample\t0.03s\n": false,
		start + "--- FAIL: FuzzA (1.02s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzA/1\nFAIL\n": false,
		start + "--- FAIL: FuzzA (1.02s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                false,
		"FAIL\texample [build failed]\nFAIL\n": false,
	} {
		if got := timeWasUp([]byte(out)); got != want {
			t.Errorf("%t for\n%s", got, out)
		}
	}
}
