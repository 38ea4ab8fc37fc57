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

// fail makes a problem that does not come from the package cosched.
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
		Long: `A plugin for the Node Resource Interface (NRI) of containerd and CRI-O. Before the first
thread of a pod runs, it writes to the pod's cgroup the values that the pod's annotations
ask for or, without annotations, those of the class that the policy gives the pod:

  cosched.io/cpus-preferred: llc:0      a CPU list, llc:N, node:N, auto, inherit, ...
  cosched.io/weights: "4 1000"          cost of load at home and elsewhere
  cosched.io/cluster: shop              pods of a namespace that share one home

and to the cgroup of one container:

  cpus-preferred.cosched.io/container.NAME: llc:1
  weights.cosched.io/container.NAME: "4 1000"

An invalid value is logged for the pod and ignored, unless the policy says onError: fail.
Without a policy, each pod has the home that the kernel chooses, auto.

The plugin connects again when the runtime is restarted, and reads the policy again when
it changes. It must run as root, for the runtime's socket and the files of cgroups, but
needs no capability. On a kernel without the controller it logs that and waits: if it
ended, it would be started again and again.

Documentation/admin-guide/cosched-kubernetes.rst describes the policy and the installation.`,
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
	cmd.PersistentFlags().StringVar(&o.Index, "index", "90", "`NN`, the position among the plugins that the runtime calls in order, 00 to 99")
	cmd.Flags().StringVar(&o.Policy, "policy", "", "the `FILE` that says which pods belong to which class")
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
		Short: "check policy files",
		Long: `Reads files as the plugin does, and reports the first error. Homes that this machine lacks
are not an error.`,
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
		Short: "print the node's LLC domains and their free CPUs",
		Long: `Prints the object NodeResourceTopology that --publish writes: each LLC domain with its
CPUs, and how many of them are free to be a home. These are all CPUs minus the requests of
the pods whose home they are. The runtime is asked which pods run. With --idle it is not
asked, and all CPUs are free.`,
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
