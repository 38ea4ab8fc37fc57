// Command coschedd gives systemd's units the homes that their unit files ask for.
package main

import (
	"os"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedd"
)

func main() {
	os.Exit(coschedd.Main(cosched.ThisHost(), os.Args[1:], os.Stdout, os.Stderr))
}
