package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
)

// table aligns in columns the lines that f writes, whose cells are separated by tabs.
func table(w io.Writer, f func(w io.Writer)) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	f(t)
	_ = t.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n")) // without the blanks of empty cells
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func percent(s cosched.Stat) string {
	if p, ok := s.HomeShare(); ok {
		return fmt.Sprintf("%.1f", p)
	}
	return "-"
}

// below gives the tree of clusters below a cgroup, given by name or path. Without an argument the
// cgroup is the base.
func below(h cosched.Host, args []string) ([]*cosched.Cluster, error) {
	var g cosched.Group
	var err error
	if len(args) == 0 {
		g, err = h.Base()
	} else {
		g, err = h.Find(args[0])
	}
	if err != nil {
		return nil, err
	}
	if err := h.HasController(); err != nil {
		return nil, err
	}
	if len(args) == 0 || g == cosched.Group(h.Cgroup) {
		return h.Tree(g)
	}
	if g, err = h.Existing(args[0], false); err != nil {
		return nil, err
	}
	c, err := h.Read(g)
	if err != nil {
		return nil, err
	}
	c.Children, err = h.Tree(g)
	return []*cosched.Cluster{c}, err
}

const listHeader = "NAME\tHOME\tASKED FOR\tWEIGHTS\tTHREADS\tCPU TIME\tAT HOME %\n"

func listLine(w io.Writer, name string, c *cosched.Cluster) {
	spent := time.Duration(c.Stat.PreferredUsec+c.Stat.OutsideUsec) * time.Microsecond
	fmt.Fprintf(w, "%s\t%s\t%s\t%d:%d\t%d\t%s\t%s\n", cosched.Printable(name), dash(c.Home), dash(c.Asked),
		c.Weights[0], c.Weights[1], c.Threads, spent.Round(time.Millisecond), percent(c.Stat))
}

func lsCmd(h cosched.Host) *cobra.Command {
	return listCmd(h, "ls [NAME]", "list clusters", `  cosched ls
  cosched ls --json /sys/fs/cgroup`, func(w io.Writer, tree []*cosched.Cluster) {
		for _, c := range cosched.Flat(tree) {
			listLine(w, c.Name, c)
		}
	}, func(tree []*cosched.Cluster) []*cosched.Cluster {
		list := cosched.Flat(tree)
		for _, c := range list {
			c.Children = nil
		}
		return list
	})
}

func treeCmd(h cosched.Host) *cobra.Command {
	return listCmd(h, "tree [NAME]", "show clusters as a tree", `  cosched tree
  cosched tree shop`, func(w io.Writer, tree []*cosched.Cluster) { treeLines(w, tree, "", true) },
		func(tree []*cosched.Cluster) []*cosched.Cluster { return tree })
}

func treeLines(w io.Writer, tree []*cosched.Cluster, indent string, top bool) {
	for i, c := range tree {
		branch, under := "├─ ", "│  "
		if i == len(tree)-1 {
			branch, under = "└─ ", "   "
		}
		name := c.Name
		if top {
			branch, under = "", ""
		} else {
			name = name[strings.LastIndexByte(name, '/')+1:]
		}
		listLine(w, indent+branch+name, c)
		treeLines(w, c.Children, indent+under, false)
	}
}

func listCmd(h cosched.Host, use, short, example string, lines func(io.Writer, []*cosched.Cluster), shape func([]*cosched.Cluster) []*cosched.Cluster) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: strings.ToUpper(short[:1]) + short[1:] + `: those of the base, or NAME and those below it. Prints the home in
force and the home that was asked for, the weights in force, the number of threads in the
cgroup itself, the CPU time since the preference was set, and the share of it at home.`,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			tree, err := below(h, args)
			if err != nil {
				return err
			}
			if asJSON {
				// An empty list is [], not null.
				return printJSON(cmd, append([]*cosched.Cluster{}, shape(tree)...), "  ")
			}
			return print(cmd, func(w io.Writer) {
				table(w, func(w io.Writer) {
					fmt.Fprint(w, listHeader)
					lines(w, tree)
				})
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shown is what stat shows for one cluster.
type shown struct {
	*cosched.Cluster
	// Seconds is the time in which the counters of Since were counted.
	Seconds float64       `json:"seconds,omitempty"`
	Since   *cosched.Stat `json:"since,omitempty"`
}

func statCmd(h cosched.Host) *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	var count int
	cmd := &cobra.Command{
		Use:   "stat [NAME]",
		Short: "show where clusters ran and what moved them",
		Long: `Shows the counters of a cluster and its load on each LLC domain, or the counters of all
clusters. With --watch, shows what was counted in each interval, per second, until
interrupted.

  CPUS      CPU time per second
  AT HOME   percent of it spent at home
  WAKEUPS   wakeups placed at home
  SPILLED   wakeups placed on an idle CPU outside
  OVERFLOW  wakeups queued outside, where that was cheaper
  RETURNED  strays moved home
  SWAPPED   running strays that exchanged places
  PUSHED    running tasks moved to a CPU outside that was durably idle
  PULLED    tasks that the balancer took out of home
  HOMES     changes of the home

With --watch --json, each line is a list of clusters.`,
		Example: `  cosched stat shop
  cosched stat --watch --interval 5s
  cosched stat --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: names(h, false),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if interval < time.Millisecond || count < 0 {
				return usage("--interval must be at least 1ms, --count at least 0")
			}
			if !watch && (cmd.Flags().Changed("interval") || cmd.Flags().Changed("count")) {
				return usage("--interval and --count are of --watch: add --watch")
			}
			now, err := samples(h, args)
			if err != nil {
				return err
			}
			if !watch {
				if asJSON {
					return printJSON(cmd, now, "  ")
				}
				return print(cmd, func(w io.Writer) { statTable(w, now) })
			}
			before, at := now, time.Now()
			for i := 0; count == 0 || i < count; i++ {
				time.Sleep(interval)
				now, err := samples(h, args)
				if len(args) > 0 && errors.Is(err, fs.ErrNotExist) {
					err = &cosched.Problem{Status: cosched.ExitNoInput, Text: before[0].Path + " was removed while it was shown", Err: err}
				}
				if err != nil {
					return err
				}
				t := time.Now()
				since(now, before, t.Sub(at).Seconds())
				before, at = now, t
				if asJSON {
					err = printJSON(cmd, now, "")
				} else {
					err = print(cmd, func(w io.Writer) {
						if i > 0 {
							fmt.Fprintln(w)
						}
						statTable(w, now)
					})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show what is counted in each interval")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "with --watch, the `time` between tables, such as 500ms or 5s")
	cmd.Flags().IntVar(&count, "count", 0, "with --watch, end after this `number` of intervals")
	return cmd
}

// samples reads one cluster with its load, or all clusters of the base without their load.
func samples(h cosched.Host, args []string) ([]*shown, error) {
	if len(args) == 0 {
		tree, err := below(h, nil)
		all := []*shown{}
		for _, c := range cosched.Flat(tree) {
			c.Children = nil
			all = append(all, &shown{Cluster: c})
		}
		return all, err
	}
	g, err := h.Existing(args[0], false)
	if err != nil {
		return nil, err
	}
	c, err := h.Read(g)
	if err != nil {
		return nil, err
	}
	c.Load, err = h.ReadLoad(g)
	return []*shown{{Cluster: c}}, err
}

// since fills in what was counted since earlier samples.
func since(now, before []*shown, seconds float64) {
	was := map[string]cosched.Reading{}
	for _, s := range before {
		was[s.Path] = s.reading()
	}
	for _, s := range now {
		old, ok := cosched.Earlier(s.Path, s.reading().Own, func(path string) (cosched.Reading, bool) {
			r, ok := was[path]
			return r, ok
		})
		if !ok {
			old = s.Stat
		}
		d := s.Stat.Since(old)
		s.Since, s.Seconds = &d, seconds
	}
}

func (s *shown) reading() cosched.Reading {
	return cosched.Reading{Stat: s.Stat, Own: s.Asked != "" || s.Home == ""}
}

func statTable(w io.Writer, list []*shown) {
	table(w, func(w io.Writer) {
		time := "CPUS"
		if len(list) > 0 && list[0].Since == nil {
			time = "CPU s"
		}
		fmt.Fprintf(w, "NAME\tHOME\tTHREADS\t%s\tAT HOME %%\tWAKEUPS\tSPILLED\tOVERFLOW\tRETURNED\tSWAPPED\tPUSHED\tPULLED\tHOMES\n", time)
		for _, s := range list {
			d, per := s.Stat, 1.0
			if s.Since != nil {
				d, per = *s.Since, s.Seconds
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%s", cosched.Printable(s.Name), dash(s.Home), s.Threads, float64(d.PreferredUsec+d.OutsideUsec)/1e6/per, percent(d))
			for _, n := range []uint64{d.WakeupsHome, d.WakeupsSpilled, d.WakeupsOverflowed, d.StraysReturned, d.StraysSwapped, d.TasksPushed, d.TasksPulled, d.HomeChanges} {
				fmt.Fprintf(w, "\t%.0f", float64(n)/per)
			}
			fmt.Fprintln(w)
		}
	})
	for _, s := range list {
		if s.Load == nil {
			continue
		}
		fmt.Fprintln(w)
		table(w, func(w io.Writer) {
			fmt.Fprint(w, "LLC\tCPUS\tHOME\tRUNNING\tRUNNABLE\n")
			for _, d := range s.Load.LLCs {
				fmt.Fprintf(w, "%d\t%s\t%d\t%.2f\t%.2f\n", d.Index, d.CPUs, d.Home, float64(d.Util)/1024, float64(d.Runnable)/1024)
			}
		})
	}
}

func topologyCmd(h cosched.Host) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "show LLC domains, nodes, sockets and SMT siblings",
		Long: `Shows the CPUs that a home can consist of: LLC domains with their socket, nodes and SMT
siblings, and the distances between nodes. The numbers are those that --home takes.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			m, err := h.Machine()
			if err != nil {
				return &cosched.Problem{Status: cosched.ExitUnavailable, Text: err.Error() + ": the topology cannot be read from sysfs", Err: err}
			}
			t := topologyOf(m)
			if asJSON {
				return printJSON(cmd, t, "  ")
			}
			return print(cmd, t.print)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type llc struct {
	LLC     int            `json:"llc"`
	CPUs    cosched.CPUs   `json:"cpus"`
	Sockets []int          `json:"sockets"`
	Nodes   []int          `json:"nodes"`
	Cores   []cosched.CPUs `json:"cores"` // SMT siblings of each core
}

type node struct {
	Node      int          `json:"node"`
	CPUs      cosched.CPUs `json:"cpus"`
	Distances map[int]int  `json:"distances"`
}

// topology is what the verb topology shows of a machine.
type topology struct {
	Online   cosched.CPUs         `json:"online"`
	Possible cosched.CPUs         `json:"possible"`
	LLCs     []llc                `json:"llcs"`
	Sockets  map[int]cosched.CPUs `json:"sockets"`
	Nodes    []node               `json:"nodes"`
}

func topologyOf(m *cosched.Machine) topology {
	t := topology{Online: m.Online, Possible: m.Possible, Sockets: m.Sockets, Nodes: []node{}}
	for i, cpus := range m.LLCs {
		l := llc{LLC: i, CPUs: cpus, Sockets: []int{}, Nodes: []int{}}
		for _, id := range slices.Sorted(maps.Keys(m.Sockets)) {
			if m.Sockets[id].And(cpus) != nil {
				l.Sockets = append(l.Sockets, id)
			}
		}
		for _, n := range m.Nodes {
			if n.CPUs.And(cpus) != nil {
				l.Nodes = append(l.Nodes, n.ID)
			}
		}
		for _, core := range m.Cores {
			if core.And(cpus) != nil {
				l.Cores = append(l.Cores, core)
			}
		}
		t.LLCs = append(t.LLCs, l)
	}
	for _, n := range m.Nodes {
		t.Nodes = append(t.Nodes, node{n.ID, n.CPUs, n.Distance})
	}
	return t
}

func (t topology) print(w io.Writer) {
	fmt.Fprintf(w, "CPUs online: %s, possible: %s\n\n", t.Online, t.Possible)
	join := func(ids []int) string { return dash(strings.Trim(fmt.Sprint(ids), "[]")) }
	table(w, func(w io.Writer) {
		fmt.Fprint(w, "LLC\tCPUS\tSOCKET\tNODE\tSMT SIBLINGS\n")
		for _, l := range t.LLCs {
			smt := ""
			for _, core := range l.Cores {
				if len(core) > 1 {
					smt += core.String() + " "
				}
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", l.LLC, l.CPUs, join(l.Sockets), join(l.Nodes), dash(strings.TrimSpace(smt)))
		}
	})
	if len(t.Nodes) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, func(w io.Writer) {
		fmt.Fprint(w, "NODE\tCPUS\tDISTANCE TO")
		for _, n := range t.Nodes {
			fmt.Fprintf(w, "\t%d", n.Node)
		}
		fmt.Fprintln(w)
		for _, n := range t.Nodes {
			fmt.Fprintf(w, "%d\t%s\t", n.Node, dash(n.CPUs.String()))
			for _, o := range t.Nodes {
				fmt.Fprintf(w, "\t%d", n.Distances[o.Node])
			}
			fmt.Fprintln(w)
		}
	})
}
