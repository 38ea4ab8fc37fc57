package nri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/nri/pkg/api"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/cli"
)

// Main runs the plugin and returns its exit status.
func Main(h cosched.Host, args []string, stdout, stderr io.Writer) int {
	cmd := Command(h, stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	at, err := cmd.ExecuteC()
	if err == nil {
		return 0
	}
	return cli.Fail(at, err, stderr)
}

// fail is a problem that is not the package cosched's.
func fail(status int, err error, format string, args ...any) error {
	return &cosched.Problem{Status: status, Text: fmt.Sprintf(format, args...), Err: err}
}

// Command makes the command.
func Command(h cosched.Host, stderr io.Writer) *cobra.Command {
	var o Options
	var publish bool
	cmd := &cobra.Command{
		Use:   "cosched-nri",
		Short: "give the pods of Kubernetes homes",
		Long: `A plugin for the Node Resource Interface of containerd and CRI-O. It writes to the
cgroup of a pod what the pod's annotations ask for, and else the class that the policy
has for it, before the pod's first thread runs:

  cosched.io/cpus-preferred: llc:0      a CPU list, llc:N, node:N, auto, inherit, ...
  cosched.io/weights: "4 1000"          cost of load at home and elsewhere
  cosched.io/cluster: shop              pods of a namespace that have one home

and to that of one container:

  cpus-preferred.cosched.io/container.NAME: llc:1
  weights.cosched.io/container.NAME: "4 1000"

A value that makes no sense is logged against the pod and ignored, unless the policy says
onError: fail. Without a policy each pod has the home that the kernel chooses, auto.

It connects to the runtime again whenever the runtime is restarted, and reads the policy
again whenever that changes. It needs to be root, for the runtime's socket and the files
of cgroups, without any capability. On a kernel without the controller it says so and
waits, as what starts it would start it again and again.

Documentation/admin-guide/cosched-kubernetes.rst has the policy, and how to install it.`,
		Example: `  cosched-nri --policy /etc/cosched/policy.yaml
  cosched-nri check policy.yaml
  cosched-nri topology --json`,
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableSuggestions:    true,
		Args:                  cobra.NoArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		CompletionOptions:     cobra.CompletionOptions{DisableDefaultCmd: true},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if publish {
				if o.Publish = os.Getenv("NODE_NAME"); o.Publish == "" {
					return fail(cosched.ExitUsage, nil, "--publish: NODE_NAME is not set: set it to the node's name, by the downward API")
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			log := newLogger(stderr)
			defer log.end()
			return Serve(ctx, h, h, o, log.add)
		},
	}
	cmd.SetContext(context.Background())
	cmd.PersistentFlags().StringVar(&o.Socket, "socket", api.DefaultSocketPath, "the runtime's socket for plugins, `PATH`")
	cmd.PersistentFlags().StringVar(&o.Index, "index", "90", "`NN`, the place among the plugins that the runtime calls, 00 to 99")
	cmd.Flags().StringVar(&o.Policy, "policy", "", "the `FILE` that says which pods are of which class")
	cmd.Flags().StringVar(&o.Metrics, "metrics", "", "serve OpenMetrics over HTTP at `ADDRESS`, HOST:PORT or unix:PATH")
	cmd.Flags().BoolVar(&publish, "publish", false, "write the node's LLC domains to the API server, as NodeResourceTopology of the node NODE_NAME")
	_ = cmd.RegisterFlagCompletionFunc("index", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("metrics", cobra.FixedCompletions([]string{"localhost:9876", "unix:/run/cosched-nri.sock"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("policy", "yaml", "yml", "json")
	cmd.AddCommand(checkCmd(h), topologyCmd(h, &o), completionCmd())
	return cmd
}

func checkCmd(h cosched.Host) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "check files of policies",
		Long: `Reads files as the plugin would, and says what is wrong. Homes that only another machine
has are fine.`,
		Example:               `  cosched-nri check contrib/kubernetes/base/policy.yaml`,
		Args:                  cobra.MinimumNArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, file := range args {
				if _, err := ReadPolicy(h, file); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func topologyCmd(h cosched.Host, o *Options) *cobra.Command {
	var node string
	var asJSON, idle bool
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "print the node's LLC domains, and what is free of them",
		Long: `Prints the object NodeResourceTopology that --publish writes: each LLC domain with its
CPUs, and how many of these are free to be a home, which is all less what the pods request
whose home they are. The runtime is asked which pods run; with --idle it is not, and all
CPUs are free.`,
		Example: `  cosched-nri topology
  cosched-nri topology --json | jq '.zones[].resources[0].available'
  cosched-nri topology --idle`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := New(h, nothing{}, &Policy{}, nil)
			if !idle {
				var err error
				if p, err = Look(cmd.Context(), h, *o); err != nil {
					return err
				}
			}
			t, err := p.Topology(node)
			if err != nil {
				return fail(cosched.ExitUnavailable, err, "%v", err)
			}
			text, err := json.MarshalIndent(t, "", "  ")
			if err == nil && !asJSON {
				text, err = yaml.JSONToYAML(text)
			} else {
				text = append(text, '\n')
			}
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			if err != nil {
				return fail(cosched.ExitIO, err, "standard output: %v", err)
			}
			return nil
		},
	}
	name, _ := os.Hostname()
	if env := os.Getenv("NODE_NAME"); env != "" {
		name = env
	}
	cmd.Flags().StringVar(&node, "node", name, "the node's `NAME`")
	cmd.Flag("node").DefValue = "NODE_NAME, or the host's name"
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of YAML")
	cmd.Flags().BoolVar(&idle, "idle", false, "do not ask which pods run")
	_ = cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions)
	return cmd
}

func completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "print the completion script of a shell",
		Example:               `  source <(cosched-nri completion bash)`,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			write := map[string]func() error{
				"bash": func() error { return cmd.Root().GenBashCompletionV2(out, true) },
				"zsh":  func() error { return cmd.Root().GenZshCompletion(out) },
				"fish": func() error { return cmd.Root().GenFishCompletion(out, true) },
			}
			if err := write[args[0]](); err != nil {
				return fail(cosched.ExitIO, err, "standard output: %v", err)
			}
			return nil
		},
	}
}
