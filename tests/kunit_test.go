package tests

import (
	"slices"
	"strings"
	"testing"

	"cosched.io/cosched/internal/vm"
)

// The KUnit suites, run by the kernel while it boots, pass.
func TestKUnit(t *testing.T) {
	t.Parallel()
	c := vm.Config{
		Topology: topology(t, "demo"), // some of them need eight CPUs
		Cmdline:  []string{"kunit.enable=1", "kunit.filter_glob=cosched*"},
		Command:  []string{"true"},
	}
	exact(&c)
	c.Cmdline = append(c.Cmdline, "loglevel=7") // the results are on the console
	res := guest(t, c)
	report := parseKTAP(res.Console)
	report.each(t)
	for _, suite := range []string{"cosched", "cosched_cgroup", "cosched_auto"} {
		if _, ok := report.find(suite); !ok {
			t.Errorf("the suite %s did not run", suite)
		}
		if !slices.ContainsFunc(report.Results, func(r ktapResult) bool { return strings.HasPrefix(r.Name, suite+"/") }) {
			t.Errorf("the suite %s has no test", suite)
		}
	}
	if t.Failed() {
		t.Logf("the console:\n%s", res.Console)
	}
}
