// Package cli prints the errors of the commands that users call.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
)

// Fail prints the error that a command ended with, in one line, and gives the exit status for it.
func Fail(at *cobra.Command, err error, stderr io.Writer) int {
	status := cosched.ExitUsage // an error that cobra itself finds is wrong usage
	var p *cosched.Problem
	if errors.As(err, &p) {
		status = p.Status
	} else {
		err = fmt.Errorf("%w (%s --help says more)", err, at.CommandPath())
	}
	fmt.Fprintf(stderr, "%s: %s\n", at.CommandPath(), cosched.Printable(strings.ReplaceAll(err.Error(), "\n", " ")))
	return status
}
