// Package command is the cosched command: its verbs, their help and completion.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/cli"
)

// Main runs the command and returns its exit status.
func Main(h cosched.Host, args []string, stdout, stderr io.Writer) int {
	return mainOf(New(h), args, stdout, stderr)
}

func mainOf(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	at, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var done exited
	if errors.As(err, &done) {
		return int(done)
	}
	status := cli.Fail(at, err, stderr)
	// As with env(1): a status below 125 is that of the command that was run.
	if _, runs := at.Annotations[ofCommand]; runs && status != notFound && status != notExecutable {
		status = notRun
	}
	return status
}

// runsCommand marks verbs whose exit status is that of a command that they run.
var runsCommand = map[string]string{ofCommand: ""}

const ofCommand = "exit status"

// exited is the exit status of a command that ran. It is not a failure of cosched itself.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// New makes the command with all of its verbs.
func New(h cosched.Host) *cobra.Command {
	root := &cobra.Command{
		Use:   "cosched",
		Short: "make and show clusters of threads with a home",
		Long: `The threads of a cluster prefer the CPUs of its home, and leave them rather than let a
CPU idle. A cluster is a cgroup. NAME is a cluster in the base, or a path below
` + h.Cgroup + `. The base is ` + h.Cgroup + `/cosched for root; for other users it is
cosched in the cgroup that is delegated to them.`,
		Example: `  cosched run --home llc:1 -- make -j8
  cosched create shop --home 0-3
  cosched move shop $(pidof shopd)
  cosched top`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // one line
		Args:               cobra.NoArgs,
		// Without a verb, the only thing to do is to print the help.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// completionCmd takes its place. It leaves out PowerShell, which hosts with these kernels do
		// not have by default.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(
		runCmd(h), createCmd(h), setCmd(h), moveCmd(h), rmCmd(h),
		lsCmd(h), treeCmd(h), statCmd(h), topCmd(h), recordCmd(h), replayCmd(h), plotCmd(h), dumpCmd(h), topologyCmd(h), completionCmd(),
		schedstatCmd(h), detectCmd(h), unitCmd(h), watchCmd(h), libvirtCmd(h),
	)
	return root
}

// usage is a problem of wrong usage, which does not come from the package cosched.
func usage(format string, args ...any) error {
	return &cosched.Problem{Status: cosched.ExitUsage, Text: fmt.Sprintf(format, args...)}
}

// run wraps a verb so that an error that is not a Problem yet becomes one with ExitFailure.
// Without that it would be reported as wrong usage.
func run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		var p *cosched.Problem
		var done exited
		if err != nil && !errors.As(err, &p) && !errors.As(err, &done) {
			err = &cosched.Problem{Status: cosched.ExitFailure, Text: err.Error(), Err: err}
		}
		return err
	}
}

// print prints what a function writes, in a single write.
func print(cmd *cobra.Command, f func(w io.Writer)) error {
	var b bytes.Buffer
	f(&b)
	if _, err := cmd.OutOrStdout().Write(b.Bytes()); err != nil {
		return &cosched.Problem{Status: cosched.ExitIO, Text: "standard output: " + err.Error(), Err: err}
	}
	return nil
}

func printJSON(cmd *cobra.Command, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return print(cmd, func(w io.Writer) { _, _ = w.Write(b.Bytes()) })
}

// names completes the names of clusters, for the first argument or for all.
func names(h cosched.Host, all bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		base, err := h.Base()
		if err != nil || len(args) > 0 && !all {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		tree, _ := h.Tree(base)
		var list []string
		for _, c := range cosched.Flat(tree) {
			list = append(list, c.Name)
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// homes completes home specifications.
func homes(h cosched.Host) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list := []string{"auto", "inherit", "dev:", "near:"}
		if m, err := h.Machine(); err == nil {
			for i := range m.LLCs {
				list = append(list, fmt.Sprintf("llc:%d", i))
			}
			for _, n := range m.Nodes {
				list = append(list, fmt.Sprintf("node:%d", n.ID))
			}
			for id := range m.Sockets {
				list = append(list, fmt.Sprintf("socket:%d", id))
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print the completion script of a shell",
		Example: `  source <(cosched completion bash)
  cosched completion bash > /etc/bash_completion.d/cosched
  cosched completion zsh > "${fpath[1]}/_cosched"
  cosched completion fish > ~/.config/fish/completions/cosched.fish`,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var b bytes.Buffer
			var err error
			switch args[0] {
			case "bash":
				err = cmd.Root().GenBashCompletionV2(&b, true)
			case "zsh":
				err = cmd.Root().GenZshCompletion(&b)
			case "fish":
				err = cmd.Root().GenFishCompletion(&b, true)
			}
			if err != nil {
				return err
			}
			return print(cmd, func(w io.Writer) { _, _ = w.Write(b.Bytes()) })
		}),
	}
}
