// Command cosched-nri gives the pods of Kubernetes homes.
package main

import (
	"os"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/nri"
)

func main() {
	os.Exit(nri.Main(cosched.ThisHost(), os.Args[1:], os.Stdout, os.Stderr))
}
