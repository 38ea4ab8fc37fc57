package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
)

func TestFail(t *testing.T) {
	root, verb := &cobra.Command{Use: "tool"}, &cobra.Command{Use: "verb"}
	root.AddCommand(verb)
	problem := &cosched.Problem{Status: cosched.ExitData, Text: "odd\n\x1b[31mname: rename it"}
	for _, tc := range []struct {
		at     *cobra.Command
		err    error
		status int
		says   string
	}{
		{verb, problem, cosched.ExitData, "tool verb: odd \\x1b[31mname: rename it\n"},
		{root, fmt.Errorf("first: %w", problem), cosched.ExitData, "tool: first: odd \\x1b[31mname: rename it\n"},
		{verb, errors.New("unknown flag"), cosched.ExitUsage, "tool verb: unknown flag (tool verb --help says more)\n"},
	} {
		var out bytes.Buffer
		if status := Fail(tc.at, tc.err, &out); status != tc.status || out.String() != tc.says {
			t.Errorf("%v: status %d, %q; want %d, %q", tc.err, status, &out, tc.status, tc.says)
		}
	}
}
