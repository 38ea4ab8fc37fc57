// Command coslab builds the kernels of this repository and runs programs on
// them in virtual machines of a chosen topology.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// command is one subcommand. Each file of this package registers its own.
type command struct {
	name  string
	about string
	run   func(ctx context.Context, args []string) error
}

var commands []command

func register(name, about string, run func(ctx context.Context, args []string) error) {
	commands = append(commands, command{name, about, run})
}

// exitStatus ends coslab with this exit status, without printing an error.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: coslab COMMAND [ARGUMENTS]    (coslab COMMAND --help says more)\n\n")
	slices.SortFunc(commands, func(a, b command) int { return strings.Compare(a.name, b.name) })
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.about)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return 2
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		usage(os.Stdout)
		return 0
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:])
		var status exitStatus
		switch {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.As(err, &status):
			return int(status)
		}
		fmt.Fprintf(os.Stderr, "coslab %s: %v\n", c.name, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "coslab: no command %q\n", args[0])
	usage(os.Stderr)
	return 2
}
