package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// Each mode of coslab cost observes the events that it measures, and not those of the other mode.
// The costs themselves are not checked, as that takes much longer.
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	coslab := filepath.Join(t.TempDir(), "coslab")
	if out, err := exec.Command("go", "build", "-o", coslab, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// Not in this process, which would hurry from then on, and with it what it starts.
	self := strconv.Itoa(os.Getpid())
	if out, err := exec.Command(coslab, "cost", "--for", "100ms", "--pid", self).CombinedOutput(); err != nil {
		if detect := exec.Command("go", "run", "../cosched", "detect", "--", "true"); detect.Run() == nil {
			t.Fatalf("cosched detect can observe here, coslab cost cannot: %v: %s", err, out)
		}
		t.Skipf("this machine cannot observe: %v: %s", err, out)
	}
	for _, test := range []struct {
		name          string
		args          []string
		locks, faults bool
	}{
		{"locks", nil, true, false},
		{"faults", []string{"--faults", "--loops", "20000"}, false, true},
		{"nothing", []string{"--nothing"}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			// On a busy machine, a low limit leaves little to observe, and the programs leave
			// little time between two looks.
			var stdout, stderr bytes.Buffer
			var err error
			for _, rest := range []string{"1s", "4s"} {
				stdout.Reset()
				stderr.Reset()
				args := append([]string{"cost", "--json", "--looks", "6", "--for", "400ms", "--rest", rest, "--limit", "25"}, test.args...)
				cmd := exec.CommandContext(t.Context(), coslab, args...)
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err = cmd.Run(); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("coslab cost: %v\n%s", err, stderr.Bytes())
			}
			var r costReport
			if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
				t.Fatalf("%v: %s", err, stdout.Bytes())
			}
			observed := test.locks || test.faults
			if r.Faults != test.faults || r.Nothing == observed || len(r.Pairs) != 6 {
				t.Errorf("faults %v, nothing %v, %d looks", r.Faults, r.Nothing, len(r.Pairs))
			}
			if (r.Watched.LockCalls > 0) != test.locks || (r.Watched.PageFaults > 0) != test.faults {
				t.Errorf("watched %+v", r.Watched)
			}
			if (r.Said.Median > 0) != observed || r.Own.Median <= 0 || r.Rate.Median <= 0 || r.Each.Median <= 0 {
				t.Errorf("said %v, own %v, rate %v, per CPU second %v", r.Said, r.Own, r.Rate, r.Each)
			}
		})
	}
}
