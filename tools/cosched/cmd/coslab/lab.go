package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("lab", "build QEMU with parallel virtual time", runLab)
}

const labUsage = `usage: coslab lab [OPTIONS]

Fetches the source package of QEMU, applies patches/qemu-10.0 and builds the
system emulator into the cache. Prints its path.

options:
`

func runLab(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab lab", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print what was built as JSON on standard output")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), labUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	q, err := kbuild.BuildQEMU(ctx, kbuild.Options{})
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(q)
	}
	fmt.Println(q.Binary)
	return nil
}
