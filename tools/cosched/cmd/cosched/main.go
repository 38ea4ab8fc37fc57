// Command cosched makes clusters, shows them and runs programs in them.
package main

import (
	"os"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/command"
)

func main() {
	os.Exit(command.Main(cosched.ThisHost(), os.Args[1:], os.Stdout, os.Stderr))
}
