package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
)

// Exit statuses of run, as env(1) has them.
const (
	notRun        = 125
	notExecutable = 126
	notFound      = 127
)

// settings are the options that give a cluster its home and weights.
type settings struct {
	home, weights string
	force         bool
}

func (s *settings) flags(h cosched.Host, cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.home, "home", "", "the CPUs to prefer: `SPEC` is "+cosched.HomeForms)
	cmd.Flags().StringVar(&s.weights, "weights", "", "cost of load at home and elsewhere, `P:A`, each 1 to 10000; or inherit")
	cmd.Flags().BoolVar(&s.force, "force", false, "ask for a home even if none of its CPUs can be used now")
	_ = cmd.RegisterFlagCompletionFunc("home", homes(h))
	_ = cmd.RegisterFlagCompletionFunc("weights", cobra.FixedCompletions([]string{"100:150", "100:100", "4:1000", "inherit"}, cobra.ShellCompDirectiveNoFileComp))
}

const homeHelp = `
SPEC of a home:
  0-3,8      CPUs
  llc:N      the CPUs of LLC domain N; N can be a list, here and below
  node:N     the CPUs of NUMA node N
  socket:N   the CPUs of socket N
  near:CPU   the LLC domain of a CPU
  dev:NAME   the CPUs local to a network card or block device
  auto       the kernel chooses
  inherit    the home of the cgroup above, the default`

// parsed is what settings contain, after the check that they are well-formed.
type parsed struct {
	home       cosched.Home
	weights    *cosched.Weights
	setHome    bool
	setWeights bool
	force      bool
}

// parse checks the settings before anything is changed.
func (s settings) parse(h cosched.Host, cmd *cobra.Command) (p parsed, err error) {
	p.setHome, p.setWeights = cmd.Flags().Changed("home"), cmd.Flags().Changed("weights")
	p.force = s.force
	if p.setHome {
		if p.home, err = h.ParseHome(s.home); err != nil {
			return p, err
		}
	}
	if p.setWeights && s.weights != "" && s.weights != "inherit" {
		w, err := cosched.ParseWeights(strings.Replace(s.weights, ":", " ", 1))
		if err != nil {
			return p, usage("--weights %s: want P:A, two integers from 1 to 10000, as 100:150", s.weights)
		}
		p.weights = &w
	}
	return p, nil
}

func (p parsed) apply(h cosched.Host, g cosched.Group, cmd *cobra.Command) error {
	if p.setHome {
		note, err := h.SetHome(g, p.home, p.force)
		if err != nil {
			return err
		}
		if note != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), cosched.Printable(note))
		}
	}
	if p.setWeights {
		return h.SetWeights(g, p.weights)
	}
	return nil
}

func createCmd(h cosched.Host) *cobra.Command {
	var s settings
	var threaded bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "make a cluster",
		Long: `Makes the cgroup NAME and those above it that do not exist, enables the controller for
it, and gives it a home and weights.
` + homeHelp,
		Example: `  cosched create shop --home llc:0
  cosched create shop/till --home 0-1 --threaded`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: run(func(cmd *cobra.Command, args []string) error {
			g, err := h.Find(args[0])
			if err != nil {
				return err
			}
			p, err := s.parse(h, cmd)
			if err != nil {
				return err
			}
			made, err := h.Create(g, threaded)
			if err != nil {
				return err
			}
			if err := p.apply(h, g, cmd); err != nil {
				return h.Undo(made, err)
			}
			return nil
		}),
	}
	s.flags(h, cmd)
	cmd.Flags().BoolVar(&threaded, "threaded", false, "make it for single threads of processes that are in the cluster above it")
	return cmd
}

func setCmd(h cosched.Host) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "give a cluster another home or other weights",
		Long: `Gives a cluster another home or other weights. Its threads follow within milliseconds.
` + homeHelp,
		Example: `  cosched set shop --home node:1
  cosched set shop --home inherit --weights 4:1000`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			p, err := s.parse(h, cmd)
			if err != nil {
				return err
			}
			if !p.setHome && !p.setWeights {
				return usage("nothing to set: give --home, --weights or both")
			}
			g, err := h.Existing(args[0], true)
			if err != nil {
				return err
			}
			return p.apply(h, g, cmd)
		}),
	}
	s.flags(h, cmd)
	return cmd
}

func moveCmd(h cosched.Host) *cobra.Command {
	var threads, vm bool
	var socket string
	cmd := &cobra.Command{
		Use:   "move NAME PID...",
		Short: "put running processes or threads into a cluster",
		Long: `Puts processes with all of their threads into a cluster, or single threads with
--threads. A cluster for single threads is a part of another one, CLUSTER/PART, because
the kernel keeps all threads of a process below one cgroup. So move --threads makes PART
threaded, and first puts a process that is elsewhere into CLUSTER, as a whole.

With --vm, the process is a QEMU. Its threads are put into NAME/vcpu and NAME/emulator,
once: give NAME/vcpu a home. vCPU threads are recognized by the names that QEMU gives
them with -name debug-threads=on or, with --qmp, by asking a monitor.

If a process or thread cannot be moved, the others still are. The exit status is that of
the first failure.`,
		Example: `  cosched move shop 4711 4712
  cosched create shop/till --home 0-1
  cosched move --threads shop/till 4715
  cosched create vm1 && cosched move --vm vm1 4720 && cosched set vm1/vcpu --home llc:1`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var ids []int
			for _, a := range args[1:] {
				id, err := strconv.Atoi(a)
				if err != nil || id < 1 {
					return usage("%q is not the number of a process or thread", a)
				}
				ids = append(ids, id)
			}
			switch {
			case vm && threads:
				return usage("--vm and --threads: give one of them")
			case vm && len(ids) > 1:
				return usage("--vm: one process at a time, as each machine needs a cluster of its own")
			case !vm && socket != "":
				return usage("--qmp is for a process that is QEMU: give --vm too")
			}
			g, err := h.Existing(args[0], true)
			if err != nil {
				return err
			}
			if vm {
				return moveMachine(h, g, ids[0], socket)
			}
			move := h.MoveProcess
			if threads {
				move = h.MoveThread
			}
			return each(cmd, ids, func(id int) error { return move(g, id) })
		}),
	}
	cmd.Flags().BoolVar(&threads, "threads", false, "the numbers are threads (TIDs), moved one by one")
	cmd.Flags().BoolVar(&vm, "vm", false, "the process is QEMU: put its vCPUs and its other threads into separate parts")
	cmd.Flags().StringVar(&socket, "qmp", "", "with --vm, the `SOCKET` of a QMP monitor that no other program uses")
	return cmd
}

// each does something for each of a verb's arguments, also after a failure. It returns the first
// failure, and prints the others.
func each[T any](cmd *cobra.Command, args []T, f func(T) error) error {
	var first error
	for _, a := range args {
		err := f(a)
		if err != nil && first != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), cosched.Printable(err.Error()))
		} else if err != nil {
			first = err
		}
	}
	return first
}

func rmCmd(h cosched.Host) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "remove clusters that have no processes",
		Long: `Removes clusters that have no processes.

If a cluster cannot be removed, the others still are. The exit status is that of the first
failure.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: names(h, true),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			return each(cmd, args, func(name string) error {
				g, err := h.Find(name)
				if err != nil {
					return err
				}
				return h.Remove(g, all)
			})
		}),
	}
	cmd.Flags().BoolVarP(&all, "recursive", "r", false, "remove the clusters below as well")
	return cmd
}

func runCmd(h cosched.Host) *cobra.Command {
	var s settings
	var name string
	var soft bool
	var vm machineFlags
	cmd := &cobra.Command{
		Use:   "run [--home SPEC] [--weights P:A] [--cluster NAME] [--soften | --vm] [--] COMMAND [ARGUMENT...]",
		Short: "run a command in a cluster",
		Long: `Puts itself into a cluster and then becomes COMMAND, so that no process is left in
between. The cluster is NAME, which is made if it does not exist, or a new one, run-PID,
which a later cosched run removes once it is empty.

With --soften, the CPUs that COMMAND passes to sched_setaffinity and
pthread_setaffinity_np become the home of a cluster for that thread, soft-CPUS below the
cluster of COMMAND: they are a preference and no longer bind the thread. COMMAND must be
linked with shared libraries and must run with no more rights than its caller: it must not
be set-user-ID or set-group-ID nor, unless root runs it, have file capabilities. If the
kernel has no controller, COMMAND runs unchanged.

With --vm, COMMAND is QEMU, or a script that becomes QEMU. Its threads are put into parts
of the cluster: vCPUs into vcpu, which has the home and weights, and all others into
emulator, which has no home or that of --emulator-home. A small process beside QEMU does
this, also for vCPUs that are plugged in later, and ends when QEMU ends. For its queries,
QEMU gets one more monitor, with -readconfig; the other monitors are not changed.

The exit status is the command's; 127 if it is not found, 126 if it cannot be executed,
125 if cosched fails.
` + homeHelp,
		Example: `  cosched run --home llc:1 -- make -j8
  cosched run --cluster shop --weights 4:1000 shopd --port 80
  cosched run --soften -- taskset -c 0-3 make -j8
  cosched run --vm --home llc:1 -- qemu-system-x86_64 -accel kvm -smp 4 -m 4G disk.img`,
		Args:                  cobra.MinimumNArgs(1),
		DisableFlagsInUseLine: true,
		Annotations:           runsCommand,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			p, err := s.parse(h, cmd)
			if err != nil {
				return err
			}
			m, err := vm.parse(h, cmd, p, soft)
			if err != nil {
				return err
			}
			if !p.setHome && name == "" && !soft {
				return usage("neither a home nor a cluster to run in: give --home, --cluster or both, or --soften")
			}
			path, err := lookPath(args[0])
			if err != nil {
				return err
			}
			if vm.vm {
				return runMachine(h, cmd, m, name, path, args)
			}
			env := os.Environ()
			if soft {
				missing := h.HasController()
				if errors.Is(missing, errors.ErrUnsupported) && !p.setHome && !p.setWeights && name == "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %v; %s runs as it is\n", cmd.CommandPath(), missing, args[0])
					return execute(path, args, env)
				}
				if env, err = soften(path, env, os.Getuid()); err != nil {
					return err
				}
			}
			g, made, err := runGroup(h, name)
			if err != nil {
				return err
			}
			from, _ := h.CgroupOf(os.Getpid())
			// An existing cluster is changed only after the process has been put into it: if that
			// fails, nothing has changed. A cluster that was made here gets its settings first: if
			// that fails, no process is in it yet and it can be removed.
			first := func() error { return h.MoveProcess(g, os.Getpid()) }
			then := func() error { return p.apply(h, g, cmd) }
			if len(made) > 0 {
				first, then = then, first
			}
			if err = first(); err == nil {
				err = then()
			}
			if err == nil {
				err = execute(path, args, env)
			}
			return goBack(h, from, made, err)
		}),
	}
	// The arguments after COMMAND belong to COMMAND.
	cmd.Flags().SetInterspersed(false)
	s.flags(h, cmd)
	cmd.Flags().StringVar(&name, "cluster", "", "run in the cluster `NAME`, which is made if it does not exist")
	_ = cmd.RegisterFlagCompletionFunc("cluster", names(h, true))
	vm.flags(h, cmd)
	cmd.Flags().BoolVar(&soft, "soften", false, "turn the CPU affinity that the command sets into a preference")
	return cmd
}

// goBack undoes what was made for a command that could not be run. This process may be in there: it
// first returns to the cgroup that it came from, if that is known.
func goBack(h cosched.Host, from cosched.Group, made []cosched.Group, err error) error {
	if len(made) > 0 && from != "" {
		_ = h.MoveProcess(from, os.Getpid()) // if this fails, Undo says what is left
	}
	return h.Undo(made, err)
}

func runGroup(h cosched.Host, name string) (g cosched.Group, made []cosched.Group, err error) {
	if name == "" {
		return h.RunCluster(os.Getpid())
	}
	return h.Ensure(name, false)
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		where := " in PATH"
		if strings.Contains(name, "/") {
			where = ""
		}
		return "", &cosched.Problem{Status: notFound, Text: fmt.Sprintf("%s: no such command%s", name, where), Err: err}
	}
	return "", cannotExecute(name, err)
}

func cannotExecute(name string, err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		err = e
	}
	return &cosched.Problem{Status: notExecutable, Text: fmt.Sprintf("%s: cannot be executed: %v", name, err), Err: err}
}

// execute replaces this process with the command. A file without #! that the kernel does not
// know how to execute is run as a script of sh, as execvp(3) does.
func execute(path string, args, env []string) error {
	err := syscall.Exec(path, args, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, args[1:]...), env)
	}
	return cannotExecute(path, err)
}
