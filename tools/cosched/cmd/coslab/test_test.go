package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A failing part of a test, a skipped test and a package that does not compile
// are each counted once.
func TestTally(t *testing.T) {
	events := `{"Action":"run","Package":"cosched.io/cosched/tests","Test":"TestA"}
{"Action":"output","Package":"cosched.io/cosched/tests","Test":"TestA/x","Output":"    a_test.go:1: wrong\n"}
{"Action":"fail","Package":"cosched.io/cosched/tests","Test":"TestA/x","Elapsed":0.1}
{"Action":"pass","Package":"cosched.io/cosched/tests","Test":"TestA/y","Elapsed":0.1}
{"Action":"fail","Package":"cosched.io/cosched/tests","Test":"TestA","Elapsed":0.2}
{"Action":"pass","Package":"cosched.io/cosched/tests","Test":"TestB","Elapsed":0}
{"Action":"skip","Package":"cosched.io/cosched/tests","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"cosched.io/cosched/tests","Output":"FAIL\n"}
{"Action":"fail","Package":"cosched.io/cosched/tests","Elapsed":0.2}
{"Action":"build-output","ImportPath":"cosched.io/cosched/internal/vm","Output":"vm.go:1:1: syntax error\n"}
{"Action":"build-fail","ImportPath":"cosched.io/cosched/internal/vm"}
{"Action":"fail","Package":"cosched.io/cosched/internal/vm","FailedBuild":"cosched.io/cosched/internal/vm"}`
	var got tally
	said := map[string]string{}
	for _, line := range strings.Split(events, "\n") {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got.take(e, said)
	}
	if want := (tally{passed: 1, failed: 2, skipped: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got, want := got.String(), "1 passed, 2 failed"; got != want {
		t.Errorf("the last line is %q, want %q", got, want)
	}
}
