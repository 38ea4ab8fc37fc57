package tests

import (
	"testing"
	"time"
)

// The debug kernel (lockdep, KASAN, checks of RCU, lists and sleeping) runs the
// tests of the files and the churn without a report. It is several times slower,
// so tests that compare figures with time run only on the kernel without the checks.
func TestDebugKernel(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Minute
	var list []selftest
	for _, s := range []selftest{
		{program: "files"},
		{program: "tree"},
		{program: "hotplug", maySkip: []string{"absent_cpu_named"}},
		{program: "delegation"},
		{program: "modes", args: []string{"-t", "ordinary_"}},
		{name: "implicit", program: "modes", args: []string{"-t", "implicit_"}, cmdline: []string{"cgroup.cosched=implicit"}},
		{name: "figures", program: "figures", args: []string{"-t", "stat_"}},
		{name: "auto", program: "auto", preset: "uma8", args: []string{"-t", "hotplug"}},
		// On emulated CPUs, this kernel would take minutes to make a thousand clusters.
		{program: "churn", args: []string{"-t", "churn_", "--clusters", "200", "--seconds", churnSeconds()}, shift: 3},
	} {
		s.variant, s.timeout = "debug", limit
		list = append(list, s)
	}
	if long() {
		list = append(list, selftest{name: "churn in parallel", program: "churn", parallel: true,
			args: []string{"-t", "churn_", "--seconds", "60"}, variant: "debug", timeout: limit})
	}
	runSelftests(t, list)
}
