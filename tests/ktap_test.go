package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// outcome is what a KTAP line says of a test.
type outcome int

const (
	passed outcome = iota
	failed
	skipped
)

func (o outcome) String() string { return [...]string{"pass", "fail", "skip"}[o] }

// ktapResult is one result line of KTAP output.
type ktapResult struct {
	Name    string // of a nested test, with the names of the tests around it: suite/test
	Outcome outcome
	Why     string   // of a skipped test
	Notes   []string // the comments printed since the previous result
}

// ktapReport is what a program or the kernel printed.
type ktapReport struct {
	Results []ktapResult
	Planned int      // number of tests announced; -1 without a plan
	Bailed  string   // the reason of "Bail out!"
	Notes   []string // comments after the last result
}

var (
	// A console line may start with a time stamp and, on a debug kernel, the
	// task or CPU that printed it.
	printkPrefix = regexp.MustCompile(`^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?`)
	ktapPlan     = regexp.MustCompile(`^( *)1\.\.(\d+)(?: *# *SKIP *(.*))?$`)
	ktapLine     = regexp.MustCompile(`^( *)(not ok|ok) (\d+)(?: +-)?(?: +([^#]*[^# ]))? *(?:# *(.*))?$`)
	ktapSkip     = regexp.MustCompile(`^(?i:skip)\S*\s*(.*)$`)
)

// parseKTAP reads KTAP or TAP 13: from a program's output, or from a console that
// has other messages in between. A test whose lines were printed more than once,
// as happens when a program forks with text in its buffer, is one result.
func parseKTAP(text string) ktapReport {
	report := ktapReport{Planned: -1}
	var nested [][]ktapResult // for each depth, the results that wait for the line of the test around them
	var notes []string

	for line := range strings.Lines(text) {
		line = strings.TrimRight(printkPrefix.ReplaceAllString(line, ""), "\r\n")
		if rest, ok := strings.CutPrefix(line, "Bail out!"); ok {
			report.Bailed = strings.TrimSpace(rest)
			if report.Bailed == "" {
				report.Bailed = "no reason given"
			}
			continue
		}
		if m := ktapPlan.FindStringSubmatch(line); m != nil {
			if m[1] == "" {
				report.Planned, _ = strconv.Atoi(m[2])
			}
			continue
		}
		m := ktapLine.FindStringSubmatch(line)
		if m == nil {
			if s := strings.TrimSpace(line); strings.HasPrefix(s, "#") {
				notes = append(notes, strings.TrimSpace(strings.TrimPrefix(s, "#")))
			}
			continue
		}
		r := ktapResult{Name: m[4], Notes: notes}
		notes = nil
		if m[2] == "not ok" {
			r.Outcome = failed
		}
		if skip := ktapSkip.FindStringSubmatch(m[5]); skip != nil {
			r.Why = skip[1]
			if r.Outcome == passed {
				r.Outcome = skipped
			}
			if r.Name == "" { // the kernel's cgroup tests put the name after SKIP
				r.Name, r.Why, _ = strings.Cut(r.Why, " ")
			}
		}
		if r.Name == "" {
			r.Name = m[3]
		}

		depth := len(m[1]) / 4
		for len(nested) <= depth+1 {
			nested = append(nested, nil)
		}
		for _, inner := range nested[depth+1] {
			inner.Name = r.Name + "/" + inner.Name
			nested[depth] = append(nested[depth], inner)
		}
		nested[depth+1] = nil
		nested[depth] = append(nested[depth], r)
	}
	if len(nested) > 0 {
		for _, r := range nested[0] {
			report.add(r)
		}
	}
	report.Notes = notes
	return report
}

// add keeps one result for each name: the last one, but a failure is never replaced.
func (r *ktapReport) add(result ktapResult) {
	i := slices.IndexFunc(r.Results, func(have ktapResult) bool { return have.Name == result.Name })
	if i < 0 {
		r.Results = append(r.Results, result)
	} else if r.Results[i].Outcome != failed {
		r.Results[i] = result
	}
}

// top returns the results that are not nested.
func (r *ktapReport) top() []ktapResult {
	return slices.DeleteFunc(slices.Clone(r.Results), func(t ktapResult) bool { return strings.Contains(t.Name, "/") })
}

// find returns the result of a test.
func (r *ktapReport) find(name string) (ktapResult, bool) {
	for _, t := range r.Results {
		if t.Name == name {
			return t, true
		}
	}
	return ktapResult{}, false
}

// problem says what is wrong with the report as a whole; it is empty if nothing is.
func (r *ktapReport) problem() string {
	switch {
	case r.Bailed != "":
		return "bailed out: " + r.Bailed
	case r.Planned < 0:
		return "announced no tests: no KTAP output"
	case len(r.top()) != r.Planned:
		return fmt.Sprintf("announced %d tests and gave the results of %d", r.Planned, len(r.top()))
	}
	return ""
}

// each reports every result as a subtest, so that a failure has the test's name. A
// skipped test counts as failed unless the caller lists it in maySkip: what is not
// tested must not look as if it were.
func (r *ktapReport) each(t *testing.T, maySkip ...string) {
	t.Helper()
	if p := r.problem(); p != "" {
		t.Error(p)
	}
	for _, result := range r.Results {
		t.Run(result.Name, func(t *testing.T) {
			for _, note := range result.Notes {
				t.Log(note)
			}
			switch {
			case result.Outcome == failed:
				t.Error("not ok")
			case result.Outcome == skipped && slices.Contains(maySkip, result.Name):
				t.Skip(result.Why)
			case result.Outcome == skipped:
				t.Errorf("skipped, and must not be here: %s", result.Why)
			}
		})
	}
	for _, note := range r.Notes {
		t.Log(note)
	}
}

func TestParseKTAP(t *testing.T) {
	tests := []struct {
		name, text string
		results    string // name=outcome, separated by blanks
		problem    string
	}{
		{"plain", "TAP version 13\n1..2\nok 1 a\nok 2 b\n", "a=pass b=pass", ""},
		{"failure", "1..2\n# x.c:3: why\nnot ok 1 a\nok 2 - b\n", "a=fail b=pass", ""},
		{"skip", "1..1\nok 1 a # SKIP no CPUs\n", "a=skip", ""},
		{"skip with the name behind", "1..1\nok 1 # SKIP a\n", "a=skip", ""},
		{"printed twice", "1..2\nok 1 a\nok 1 a\nok 2 b\n", "a=pass b=pass", ""},
		{"failure among doubles", "1..1\nnot ok 1 a\nok 1 a\n", "a=fail", ""},
		{"ends early", "1..2\nok 1 a\n", "a=pass", "announced 2 tests and gave the results of 1"},
		{"bails out", "1..2\nBail out! no controller\n", "", "bailed out: no controller"},
		{"nothing", "Segmentation fault\n", "", "announced no tests: no KTAP output"},
		{"console", `[    0.1] KTAP version 1
[    0.1] 1..2
[    0.1]     KTAP version 1
[    0.1]     # Subtest: one
[    0.1]     1..2
[    0.1] random: crng init done
[    0.1]     ok 1 x
[    0.1]         KTAP version 1
[    0.1]         # Subtest: y
[    0.1]         ok 1 p1
[    0.1]         not ok 2 p2
[    0.1]     not ok 2 y
[    0.1] # one: pass:1 fail:1 skip:0 total:2
[    0.1] not ok 1 one
[    0.1][    T1]     ok 1 z # SKIP later
[    0.1] ok 2 two
`, "one/x=pass one/y/p1=pass one/y/p2=fail one/y=fail one=fail two/z=skip two=pass", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			report := parseKTAP(test.text)
			var got []string
			for _, r := range report.Results {
				got = append(got, fmt.Sprintf("%s=%v", r.Name, r.Outcome))
			}
			if s := strings.Join(got, " "); s != test.results {
				t.Errorf("results %q, expected %q", s, test.results)
			}
			if p := report.problem(); p != test.problem {
				t.Errorf("problem %q, expected %q", p, test.problem)
			}
		})
	}
}
