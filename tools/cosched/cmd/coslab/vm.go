package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"cosched.io/cosched/internal/debian"
	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/lab"
	"cosched.io/cosched/internal/vm"
)

func init() {
	register("vm", "run a program on one of the kernels in a guest of a chosen topology", runVM)
	register("models", "list machine models", runModels)
	register("presets", "list the guests' topologies", runPresets)
}

// listFlag is a flag that can be given more than once.
type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, " ") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

const vmUsage = `usage: coslab vm [OPTIONS] [--] PROGRAM [ARGUMENT...]

Boots a kernel in QEMU, runs PROGRAM in the guest as root, passes its output on
and exits with its exit status (125 if the guest itself fails). A PROGRAM with a
slash is taken from this machine, with its shared libraries. A PROGRAM without a
slash is a busybox applet or one of the programs given by --with.

  coslab vm --preset smt8 -- cat /sys/fs/cgroup/cgroup.controllers
  coslab vm --preset demo --with stress-ng -- stress-ng --cpu 16 --timeout 3s
  coslab vm --preset paper --kernel integration --disk trixie -- systemd-cgls --no-pager

options:
`

// guestFailed is the exit status for a guest that fails. timeout(1) and docker(1) use
// it in the same way, because programs seldom exit with it.
const guestFailed = 125

func runVM(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab vm", flag.ContinueOnError)
	preset := fs.String("preset", "demo", "the guest's topology, by `name` (see coslab presets)")
	kernel := fs.String("kernel", "test", "kernel `variant`, which is built if necessary, or the path of a bzImage")
	base := fs.String("base", kbuild.Base(), "Linux `version` of the variant")
	topo := fs.String("topology", "", "instead of a preset: `SOCKETS,DIES,CORES,THREADS[,NODES[,DISTANCE]]`")
	memory := fs.Int("memory", 0, "`MiB` of memory (default: 1024, plus 16 for each CPU)")
	online := fs.Int("online", 0, "bring up only this `number` of CPUs; the others can be put online later")
	cmdline := fs.String("append", "", "more kernel `parameters`")
	timeout := fs.Duration("timeout", vm.DefaultTimeout, "give up after this `time`")
	virtual := fs.Bool("virtual", false, "run in parallel virtual time: every run with the same seed is the same")
	shift := fs.Int("shift", 0, "with --virtual or --model, an instruction takes 2 to the power of this `number`, in ns; 0 to 10")
	seed := fs.Uint64("seed", 1, "with --virtual or --model, the `number` that decides between CPUs at the same time")
	quantum := fs.Duration("quantum", 0, "with --virtual or --model, how far clocks of CPUs may be apart (default 10us)")
	pause := fs.Duration("pause", 0, "with --virtual or --model, the `time` that PAUSE takes (default 50ns)")
	model := fs.String("model", "", "run on this machine `model`, with its topology, in virtual time (see coslab models)")
	modelOn := fs.Bool("model-on", false, "model the time of memory accesses from boot on, not only when the program asks for it")
	modelReport := fs.String("model-report", "", "write what the model counted to this `file`, as JSON; - is standard error")
	modelLines := fs.Int("model-lines", 0, "with --model-report, include this `number` of cache lines that took most time, with the kernel's symbols")
	modelScatter := fs.Uint("model-scatter", 0, "seed, a `number`, for choosing at random which lines share a set of L1, instead of by address (default: as the model says)")
	disk := fs.String("disk", "", "run the guest from an image of this Debian `suite` (trixie, bookworm), with systemd;\nthe image is made if necessary; PROGRAM runs as a service")
	report := fs.Bool("fail-on-report", true, "fail if the kernel reports a problem on the console")
	verbose := fs.Bool("console", false, "show the kernel's console on standard error")
	var with, files, env listFlag
	fs.Var(&with, "with", "also put this `program` of the host into the guest (repeatable)")
	fs.Var(&files, "file", "put a file into the guest: `HOST:GUEST` (repeatable)")
	fs.Var(&env, "env", "`NAME=VALUE` for the program's environment (repeatable)")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), vmUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return errors.New("no PROGRAM to run (coslab vm --help says more)")
	}
	if *modelLines < 0 || *modelLines > 1_000_000 {
		return fmt.Errorf("--model-lines %d: want 0 to 1000000", *modelLines)
	}
	if *modelLines > 0 && *modelReport == "" {
		return errors.New("--model-lines needs --model-report: add that")
	}
	if *modelScatter > math.MaxUint32 {
		return fmt.Errorf("--model-scatter %d: want 1 to %d", *modelScatter, uint32(math.MaxUint32))
	}
	if *model == "" {
		if f := firstSet(fs, "model-on", "model-report", "model-lines", "model-scatter"); f != "" {
			return fmt.Errorf("--%s needs a machine model: add --model", f)
		}
	}
	c := vm.Config{
		MemoryMB: *memory, Cmdline: strings.Fields(*cmdline), Online: *online,
		Command: fs.Args(), Programs: with, Env: env, Timeout: *timeout, FailOnReport: *report,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if *verbose {
		c.Console = os.Stderr
	}
	if *virtual || *model != "" {
		if *shift < 0 || *shift > 10 {
			return fmt.Errorf("--shift %d: want 0 to 10", *shift)
		}
		c.Virtual = &vm.VirtualTime{Shift: *shift, Seed: *seed, Pause: *pause, Quantum: *quantum}
	} else {
		if f := firstSet(fs, "shift", "seed", "quantum", "pause"); f != "" {
			return fmt.Errorf("--%s needs virtual time: add --virtual or --model", f)
		}
	}
	// A wrong name is reported before minutes are spent on building a kernel.
	machineModel, topology, err := machineFor(fs, *model, *preset, *topo)
	if err != nil {
		return err
	}
	c.Topology = topology
	for _, f := range files {
		host, guest, ok := strings.Cut(f, ":")
		if !ok || host == "" || guest == "" {
			return fmt.Errorf("--file %s: want HOST:GUEST", f)
		}
		c.Files = append(c.Files, vm.File{Host: host, Path: guest})
	}
	if *disk != "" {
		if c.Disk, err = debian.Image(ctx, *disk, os.Stderr); err != nil {
			return err
		}
	}
	vmlinux, err := setKernel(ctx, &c, *kernel, *base)
	if err != nil {
		return err
	}
	var machine *lab.Machine
	if *model != "" {
		if *modelScatter > 0 {
			machineModel.Scatter = uint32(*modelScatter)
		}
		if machine, err = lab.Attach(ctx, &c, machineModel, lab.Options{On: *modelOn, Lines: *modelLines}); err != nil {
			return err
		}
		defer machine.Close()
	}
	res, err := vm.Run(ctx, c)
	if err != nil {
		fmt.Fprintf(os.Stderr, "coslab vm: %v\n", err)
		return exitStatus(guestFailed)
	}
	if machine != nil && *modelReport != "" {
		if err := writeModelReport(machine, *modelReport, vmlinux); err != nil {
			return err
		}
	}
	if res.ExitStatus != 0 {
		return exitStatus(res.ExitStatus)
	}
	return nil
}

// machineFor finds the machine model, if one is asked for, and the topology: of the model, of a
// preset, or as given.
func machineFor(fs *flag.FlagSet, model, preset, topology string) (lab.Model, vm.Topology, error) {
	var m lab.Model
	if model != "" {
		if f := firstSet(fs, "preset", "topology"); f != "" {
			return m, vm.Topology{}, fmt.Errorf("--%s does not go with --model: machine model %s has its own topology", f, model)
		}
		var err error
		if m, err = lab.Find(model); err != nil {
			return m, vm.Topology{}, err
		}
		preset = m.Preset
	}
	if topology != "" {
		t, err := vm.ParseTopology(topology)
		return m, t, err
	}
	p, err := vm.Find(preset)
	return m, p.Topology, err
}

// setKernel gives a guest, whose topology is known, its kernel: a variant, which is built if
// necessary, or the path of a bzImage. Of the latter, vmlinux and the number of CPUs that it
// supports are not known.
func setKernel(ctx context.Context, c *vm.Config, kernel, base string) (vmlinux string, err error) {
	if strings.Contains(kernel, "/") {
		c.Kernel, c.KernelCPUs = kernel, c.Topology.CPUs()
		return "", nil
	}
	k, err := kbuild.Build(ctx, kbuild.Options{Base: base, Variant: kernel})
	if err != nil {
		return "", err
	}
	c.Kernel, c.KernelCPUs = k.Image, k.CPUs
	return k.VMLinux, nil
}

// writeModelReport writes what the model counted. With a vmlinux, it names the kernel's data.
func writeModelReport(machine *lab.Machine, file, vmlinux string) error {
	r, err := machine.Report()
	if err != nil {
		return err
	}
	if vmlinux != "" && len(r.Lines) > 0 {
		if err := r.Symbolize(vmlinux); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if file == "-" {
		_, err = os.Stderr.Write(data)
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// firstSet gives the first of these options, in the order of their names, that was given; empty if
// none was.
func firstSet(fs *flag.FlagSet, names ...string) string {
	first := ""
	fs.Visit(func(f *flag.Flag) {
		if first == "" && slices.Contains(names, f.Name) {
			first = f.Name
		}
	})
	return first
}

const modelsUsage = `usage: coslab models [--json] [--check] [MODEL...]

Lists the machine models, or some of them. With --check, measures in a guest of each
model what others have published about the machine that it imitates, and prints both
values.

options:
`

func runModels(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab models", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print them, or what was measured, as JSON")
	check := fs.Bool("check", false, "compare the models with published measurements")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), modelsUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	models, err := lab.Models()
	if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		models = nil
	}
	for _, name := range fs.Args() {
		m, err := lab.Find(name)
		if err != nil {
			return err
		}
		models = append(models, m)
	}
	if *check {
		return checkModels(ctx, models, *asJSON)
	}
	if *asJSON {
		return printJSON(os.Stdout, models)
	}
	for _, m := range models {
		fmt.Printf("%-12s %s (preset %s)\n", m.Name, m.About, m.Preset)
	}
	return nil
}

func checkModels(ctx context.Context, models []lab.Model, asJSON bool) error {
	k, err := kbuild.Build(ctx, kbuild.Options{Variant: "test"})
	if err != nil {
		return err
	}
	var all []lab.Checked
	if !asJSON {
		fmt.Printf("%-12s  %-42s %8s %9s\n", "model", "from CPU 0", "modelled", "published")
	}
	for _, m := range models {
		list, err := lab.Check(ctx, m, k.Image)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		all = append(all, list...)
		for _, c := range list {
			if !asJSON {
				fmt.Printf("%-12s  %-42s %8.2f %9g  %+.0f %%  %s\n", m.Name, c.Published, c.Modelled, c.Value, 100*c.Off(), c.Source)
			}
		}
	}
	if asJSON {
		return printJSON(os.Stdout, all)
	}
	return nil
}

const presetsUsage = `usage: coslab presets [--json] [PRESET...]

Lists the guests' topologies, for coslab vm --preset, or some of them.

options:
`

func runPresets(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("coslab presets", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print them as JSON")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), presetsUsage)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	return listPresets(os.Stdout, fs.Args(), *asJSON)
}

func listPresets(w io.Writer, names []string, asJSON bool) error {
	presets := slices.Clone(vm.Presets)
	if len(names) > 0 {
		presets = nil
	}
	for _, name := range names {
		p, err := vm.Find(name)
		if err != nil {
			return err
		}
		presets = append(presets, p)
	}
	if asJSON {
		return printJSON(w, presets)
	}
	for _, p := range presets {
		fmt.Fprintf(w, "%-13s %s\n%-13s %s\n", p.Name, p.About, "", p.Topology)
	}
	return nil
}
