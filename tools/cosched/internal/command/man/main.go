// Command man writes the manual pages of cosched and cosched-nri, one for each verb, and of
// coschedd from their help.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/command"
	"cosched.io/cosched/internal/coschedd"
	"cosched.io/cosched/internal/nri"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := command.New(cosched.ThisHost())
	root.DisableAutoGenTag = true
	// Their date is SOURCE_DATE_EPOCH, if it is set.
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "cosched", Manual: "User Commands"}, dir); err != nil {
		return err
	}
	for _, cmd := range []*cobra.Command{coschedd.Command(nil), nri.Command(cosched.ThisHost(), nil)} {
		cmd.DisableAutoGenTag = true
		if err := doc.GenManTree(cmd, &doc.GenManHeader{Section: "8", Source: "cosched", Manual: "System Administration"}, dir); err != nil {
			return err
		}
	}
	return nil
}
