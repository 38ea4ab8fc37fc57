package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("kernel", "build a kernel from the source package, overlay and patches", runKernel)
}

func runKernel(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab kernel", flag.ContinueOnError)
	base := fs.String("base", kbuild.Base(), "Linux `version` to build on")
	variant := fs.String("variant", "test", "kernel `variants`, comma-separated, or all")
	prepare := fs.Bool("prepare", false, "only bring the patched source tree up to date, and print where it is")
	asJSON := fs.Bool("json", false, "print what was built as JSON on standard output")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), "usage: coslab kernel [OPTIONS]\n\nBuilds kernels into the cache and prints the path of each image.\n\nvariants:\n")
		for _, v := range kbuild.Variants {
			fmt.Fprintf(fs.Output(), "  %-10s %s\n", v.Name, v.About)
		}
		fmt.Fprint(fs.Output(), "\noptions:\n")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *prepare {
		dir, err := kbuild.Prepare(ctx, kbuild.Options{Base: *base})
		if err == nil {
			fmt.Println(dir)
		}
		return err
	}
	names := strings.Split(*variant, ",")
	if *variant == "all" {
		names = nil
		for _, v := range kbuild.Variants {
			names = append(names, v.Name)
		}
	}
	// A misspelt name is reported before the first variant is built.
	for _, name := range names {
		if _, err := kbuild.FindVariant(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		k, err := kbuild.Build(ctx, kbuild.Options{Base: *base, Variant: name})
		if err != nil {
			return err
		}
		if *asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(k); err != nil {
				return err
			}
			continue
		}
		fmt.Println(k.Image)
	}
	return nil
}
