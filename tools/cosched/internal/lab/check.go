package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cosched.io/cosched/internal/kbuild"
	"cosched.io/cosched/internal/vm"
)

// Published is a figure that somebody measured on a machine that a model imitates. It is
// about data that CPU 0 sends to another CPU.
type Published struct {
	// What is either "rate", how many times as fast 256 KiB reach CPU as they reach Than,
	// or "latency", the time in ns of a message by compare-and-exchange.
	What   string  `json:"what"`
	CPU    int     `json:"cpu"`
	Than   int     `json:"than,omitempty"`
	Value  float64 `json:"value"`
	Source string  `json:"source"`
}

func (p Published) check(cpus int) error {
	switch {
	case p.What != "rate" && p.What != "latency":
		return fmt.Errorf("published %q: rate or latency", p.What)
	case p.CPU < 1 || p.CPU >= cpus, p.What == "rate" && (p.Than < 1 || p.Than >= cpus || p.Than == p.CPU):
		return fmt.Errorf("published %s from CPU 0 to %d and %d: two different ones of 1 to %d", p.What, p.CPU, p.Than, cpus-1)
	case p.Value <= 0 || p.Source == "":
		return fmt.Errorf("published %s to CPU %d: a value over 0 and a source are needed", p.What, p.CPU)
	}
	return nil
}

func (p Published) String() string {
	if p.What == "rate" {
		return fmt.Sprintf("256 KiB to CPU %d, times as fast as to CPU %d", p.CPU, p.Than)
	}
	return fmt.Sprintf("a message to CPU %d, ns", p.CPU)
}

// Checked is a published figure with that of the model.
type Checked struct {
	Published
	Model    string  `json:"model"`
	Modelled float64 `json:"modelled"`
}

// Off is by how much the model differs from what was published: 0.1 is 10 % above.
func (c Checked) Off() float64 { return c.Modelled/c.Value - 1 }

// checkQuantum is less than the shortest transfer, so that two CPUs that take turns through
// memory see each other's writes in order.
const checkQuantum = 20 * time.Nanosecond

// Check measures in a guest, with the workload c2c, what was published about the machine.
func Check(ctx context.Context, m Model, kernel string) ([]Checked, error) {
	root, err := kbuild.FindRoot()
	if err != nil {
		return nil, err
	}
	bin, err := os.MkdirTemp("", "coslab-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(bin)
	if err := Workloads(ctx, root, bin); err != nil {
		return nil, err
	}
	var script strings.Builder
	for _, p := range m.Published {
		if p.What == "latency" {
			fmt.Fprintf(&script, "c2c --latency --consumer %d\n", p.CPU)
		} else {
			fmt.Fprintf(&script, "c2c --consumer %d\nc2c --consumer %d\n", p.CPU, p.Than)
		}
	}
	c := vm.Config{
		Name: "check of " + m.Name, Kernel: kernel, Cmdline: []string{"quiet"},
		Virtual:  &vm.VirtualTime{Seed: 1, Quantum: checkQuantum},
		Programs: []string{filepath.Join(bin, "c2c")}, Command: []string{"sh", "-euc", script.String()},
	}
	machine, err := Attach(ctx, &c, m, Options{})
	if err != nil {
		return nil, err
	}
	defer machine.Close()
	out, err := vm.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if out.ExitStatus != 0 {
		return nil, fmt.Errorf("c2c exits with %d: %s", out.ExitStatus, out.Stderr)
	}
	values, err := lastNumbers(string(out.Stdout))
	if err != nil {
		return nil, err
	}
	var list []Checked
	for _, p := range m.Published {
		n := 1
		if p.What == "rate" {
			n = 2
		}
		if len(values) < n {
			return nil, fmt.Errorf("c2c prints:\n%s", out.Stdout)
		}
		v := values[0] / m.GHz
		if p.What == "rate" {
			v = values[0] / values[1]
		}
		list = append(list, Checked{Published: p, Model: m.Name, Modelled: v})
		values = values[n:]
	}
	return list, nil
}

// lastNumbers returns the numbers that the lines of c2c end with.
func lastNumbers(out string) ([]float64, error) {
	var list []float64
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		var v float64
		if len(f) == 0 || f[0] != "c2c" {
			return nil, fmt.Errorf("c2c prints %q", line)
		}
		if _, err := fmt.Sscan(f[len(f)-1], &v); err != nil || v <= 0 {
			return nil, fmt.Errorf("c2c prints %q", line)
		}
		list = append(list, v)
	}
	return list, nil
}

// Workloads compiles tests/workloads into a directory.
func Workloads(ctx context.Context, root, out string) error {
	text, err := exec.CommandContext(ctx, "make", "-s", "-C", filepath.Join(root, "tests", "workloads"), "OUT="+out).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling the workloads: %w\n%s", err, text)
	}
	return nil
}
