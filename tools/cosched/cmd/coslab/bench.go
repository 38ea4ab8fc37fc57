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
	"slices"
	"strconv"

	"cosched.io/cosched/internal/bench"
	"cosched.io/cosched/internal/kbuild"
)

func init() {
	register("bench", "compare placement policies by measurement, in the lab", runBench)
}

const benchUsage = `usage: coslab bench [OPTIONS]

Runs a suite of workloads, on machine models or on topologies alone, each workload with each
placement policy and each seed, and prints a table, and below it a command for each row that runs it
again. Results of earlier runs are taken from the cache, so a series that was interrupted continues
where it stopped. With --from, runs nothing, and makes the tables and plots of results that are there.

Policies: none; hard, which binds each cluster to an LLC domain with its cpuset; pinned, which binds
its memory to the domain's node, too; cosched, which does as hard with cosched.cpus_preferred ("cosched
1 100" with other weights); hard+cosched, which does both, to measure what the controller costs; auto,
in which the kernel chooses the homes.

  coslab bench --suite quick --out /tmp/quick
  coslab bench --suite standard --row 2x8 --policy none --policy "cosched 4 1000" --seed 7
  coslab bench --list
  coslab bench --from /tmp/quick/results.json --out /tmp/quick
  coslab bench --from /tmp/quick/results.json --against hard

options:
`

func runBench(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab bench", flag.ContinueOnError)
	name := fs.String("suite", "quick", "suite, by `name` or the path of a file")
	list := fs.Bool("list", false, "list the suites and their rows, and run nothing")
	from := fs.String("from", "", "run nothing, and take the results from this `file`, a results.json")
	out := fs.String("out", "", "write results.json, table.txt, table.rst, means.rst, plot.png and plot.svg into this `folder`")
	asJSON := fs.Bool("json", false, "print the sums of all seeds as JSON instead of a table")
	against := fs.String("against", "", "instead of the table, print how the mean of each policy compares with that of this `policy`")
	base := fs.String("base", "", "Linux `version` of the kernels (default is the version that the suite asks for, or "+kbuild.Base()+")")
	jobs := fs.Int("jobs", 2, "`guests` at a time")
	fresh := fs.Bool("fresh", false, "run everything, also what is in the cache")
	var rows, policies, kernels, factors, seeds listFlag
	fs.Var(&rows, "row", "run only the row of this `name` (repeatable)")
	fs.Var(&policies, "policy", "use this `policy` instead of the suite's policies (repeatable)")
	fs.Var(&kernels, "kernel", "use this `variant` of the kernel instead of the suite's kernels (repeatable)")
	fs.Var(&factors, "transfer", "multiply the cost of a model's transfers between LLCs by this `factor`, instead of the suite's (repeatable)")
	fs.Var(&seeds, "seed", "use this `number` instead of the suite's seeds (repeatable)")
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
	if *from != "" {
		if f := firstSet(fs, "suite", "base", "jobs", "fresh", "row", "policy", "kernel", "transfer", "seed"); f != "" {
			return fmt.Errorf("--%s is for runs, and with --from there are none", f)
		}
		results, err := readResults(*from)
		if err != nil {
			return err
		}
		return showBench(*out, results, *asJSON, bench.Policy(*against))
	}
	only := bench.Selection{Rows: rows, Policies: policies, Kernels: kernels}
	for _, s := range seeds {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("--seed %s: not a number", s)
		}
		only.Seeds = append(only.Seeds, n)
	}
	for _, s := range factors {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("--transfer %s: not a number", s)
		}
		only.Transfer = append(only.Transfer, f)
	}
	suite, err := bench.FindSuite(*name)
	if err != nil {
		return err
	}
	if suite, err = suite.Only(only); err != nil {
		return err
	}
	if *against != "" && !slices.ContainsFunc(suite.Runs(), func(r bench.Run) bool { return string(r.Policy) == *against }) {
		return fmt.Errorf("--against %s: no row is to be run with this policy", *against)
	}
	results, err := bench.Do(ctx, suite, bench.Options{Base: *base, Jobs: *jobs, Fresh: *fresh, Progress: os.Stderr})
	if err != nil {
		return err
	}
	if *out != "" {
		if err := os.MkdirAll(*out, 0o755); err != nil {
			return err
		}
		// First, so that whatever fails afterwards can be done again with --from.
		if err := writeFile(*out, "results.json", func(w io.Writer) error { return printJSON(w, results) }); err != nil {
			return err
		}
	}
	return showBench(*out, results, *asJSON, bench.Policy(*against))
}

func readResults(name string) ([]bench.Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	defer f.Close()
	results, err := bench.Read(f)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", name, err)
	}
	return results, nil
}

// showBench prints results, as a table or as JSON, or how they compare with those of a policy
// unless its name is empty. It writes tables and plots of them into a folder unless its name is
// empty.
func showBench(dir string, results []bench.Result, asJSON bool, against bench.Policy) error {
	cells := bench.Cells(results)
	if dir != "" {
		if err := writeBench(dir, results[0].Suite, cells); err != nil {
			return err
		}
	}
	if against != "" {
		ratios, err := bench.Ratios(cells, against)
		if err != nil {
			return fmt.Errorf("--against: %w", err)
		}
		if asJSON {
			return printJSON(os.Stdout, ratios)
		}
		return bench.WriteRatios(os.Stdout, ratios)
	}
	if asJSON {
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

func writeFile(dir, name string, print func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return errors.Join(print(f), f.Close())
}

func writeBench(dir, suite string, cells []bench.Cell) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := errors.Join(
		writeFile(dir, "table.txt", func(w io.Writer) error { return bench.WriteTable(w, cells) }),
		writeFile(dir, "table.rst", func(w io.Writer) error { return bench.WriteRST(w, cells) }),
		writeFile(dir, "means.rst", func(w io.Writer) error { return bench.WriteMeansRST(w, cells) }),
	); err != nil {
		return err
	}
	err := bench.Plot("suite "+suite, cells, filepath.Join(dir, "plot.png"), filepath.Join(dir, "plot.svg"))
	if errors.Is(err, bench.ErrNothingToCompare) {
		return nil
	}
	return err
}
