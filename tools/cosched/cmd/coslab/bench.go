package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"cosched.io/cosched/internal/bench"
	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("bench", "compare placement policies by measurement, in the lab", runBench)
}

const benchUsage = `usage: coslab bench [OPTIONS]

Runs a suite of workloads, on machine models or on topologies alone, each workload with each
placement policy and each seed, and prints a table. Results of earlier runs are taken from the cache,
so a series that was interrupted continues where it stopped.

Policies: none; hard, which binds each cluster to an LLC domain with its cpuset; cosched, which does
the same with cosched.cpus_preferred ("cosched 1 100" with other weights); hard+cosched, which does
both, to measure what the controller costs; auto, in which the kernel chooses the homes.

  coslab bench --suite quick --out /tmp/quick
  coslab bench --suite standard --row 2x8 --policy none --policy "cosched 4 1000" --seed 7
  coslab bench --list

options:
`

func runBench(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab bench", flag.ContinueOnError)
	name := fs.String("suite", "quick", "suite, by `name` or the path of a file")
	list := fs.Bool("list", false, "list the suites and their rows, and run nothing")
	out := fs.String("out", "", "write results.json, table.txt, table.rst, means.rst, plot.png and plot.svg into this `folder`")
	asJSON := fs.Bool("json", false, "print the sums of all seeds as JSON instead of a table")
	base := fs.String("base", "", "Linux `version` of the kernels (default is the version that the suite asks for, or "+kbuild.Base()+")")
	jobs := fs.Int("jobs", 2, "`guests` at a time")
	fresh := fs.Bool("fresh", false, "run everything, also what is in the cache")
	var rows, policies, seedTexts listFlag
	fs.Var(&rows, "row", "run only the row of this `name` (repeatable)")
	fs.Var(&policies, "policy", "use this `policy` instead of the suite's policies (repeatable)")
	fs.Var(&seedTexts, "seed", "use this `number` instead of the suite's seeds (repeatable)")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), benchUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *jobs < 1 {
		return fmt.Errorf("--jobs %d: want at least 1", *jobs)
	}
	if *list {
		return listSuites(os.Stdout, *asJSON)
	}
	var seeds []uint64
	for _, s := range seedTexts {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("--seed %s: not a number", s)
		}
		seeds = append(seeds, n)
	}
	suite, err := bench.FindSuite(*name)
	if err != nil {
		return err
	}
	if suite, err = suite.Only(rows, policies, seeds); err != nil {
		return err
	}
	results, err := bench.Do(ctx, suite, bench.Options{Base: *base, Jobs: *jobs, Fresh: *fresh, Progress: os.Stderr})
	if err != nil {
		return err
	}
	cells := bench.Cells(results)
	if *out != "" {
		if err := writeBench(*out, suite, results, cells); err != nil {
			return err
		}
	}
	if *asJSON {
		return printJSON(os.Stdout, cells)
	}
	return bench.WriteTable(os.Stdout, cells)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func listSuites(w io.Writer, asJSON bool) error {
	suites, err := bench.Suites()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, suites)
	}
	for _, s := range suites {
		fmt.Fprintf(w, "%s: %s; %d runs\n", s.Name, s.About, len(s.Runs()))
		for _, r := range s.Rows {
			fmt.Fprintf(w, "  %-17s %s (%s)\n", r.Name, r.About, r.Machine())
		}
	}
	return nil
}

func writeBench(dir string, suite bench.Suite, results []bench.Result, cells []bench.Cell) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(name string, print func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return errors.Join(print(f), f.Close())
	}
	if err := errors.Join(
		write("results.json", func(w io.Writer) error { return printJSON(w, results) }),
		write("table.txt", func(w io.Writer) error { return bench.WriteTable(w, cells) }),
		write("table.rst", func(w io.Writer) error { return bench.WriteRST(w, cells) }),
		write("means.rst", func(w io.Writer) error { return bench.WriteMeansRST(w, cells) }),
	); err != nil {
		return err
	}
	err := bench.Plot("suite "+suite.Name, cells, filepath.Join(dir, "plot.png"), filepath.Join(dir, "plot.svg"))
	if errors.Is(err, bench.ErrNothingToCompare) {
		return nil
	}
	return err
}
