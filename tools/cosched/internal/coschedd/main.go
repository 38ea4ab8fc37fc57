package coschedd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/coreos/go-systemd/v22/journal"
	"github.com/godbus/dbus/v5"
	"github.com/spf13/cobra"

	"cosched.io/cosched"
)

// Main runs the service and returns its exit status.
func Main(h cosched.Host, args []string, stdout, stderr io.Writer) int {
	log := Journal(stderr)
	cmd := Command(func(*cobra.Command, []string) error { return serve(h, log) })
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	status := cosched.ExitUsage
	var p *cosched.Problem
	if errors.As(err, &p) {
		status = p.Status
	}
	log(journal.PriErr, "", Complaint{Text: strings.ReplaceAll(err.Error(), "\n", " ")})
	return status
}

// Command describes the service, for its help and its manual page.
func Command(run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{
		Use:   "coschedd",
		Short: "give systemd's units the homes that their unit files ask for",
		Long: `A unit file or a drop-in of a service, scope, slice, socket, mount or swap can have

  [X-Cosched]
  CPUsPreferred=llc:0
  Weights=4 1000

The service enables the controller cosched down to the unit's cgroup and writes both
values there when the unit starts, when systemd reloads its configuration, and when the
service itself starts. It runs as root without any capability, needs to write only to the
files of cgroups, and takes no options. An error in a setting is logged for the unit, with
file and line:

  journalctl -u UNIT

It logs to the journal, or to standard error if that is not connected to the journal. On
SIGHUP it looks at all units again. On a kernel without the controller it logs that and
exits with status 0.

Documentation/admin-guide/cosched-systemd.rst describes the settings and when they take
effect. cosched unit writes drop-ins with them.`,
		Example: `  systemctl enable --now coschedd
  cosched unit set nginx.service CPUsPreferred=auto`,
		SilenceErrors:         true,
		SilenceUsage:          true,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		CompletionOptions:     cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:                  run,
	}
}

// fail makes a problem that does not come from the package cosched.
func fail(status int, err error, format string, args ...any) error {
	return &cosched.Problem{Status: status, Text: fmt.Sprintf(format, args...), Err: err}
}

func serve(h cosched.Host, log Log) error {
	if !h.Root {
		return fail(cosched.ExitNoPerm, nil, "only root can write to the cgroups of units: be root")
	}
	if err := h.HasController(); err != nil {
		log(journal.PriNotice, "", Complaint{Text: err.Error() + ": nothing to do"})
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS=This kernel has no controller cosched.")
		return nil
	}
	bus, err := Connect(func() (*dbus.Conn, error) { return dbus.ConnectSystemBus() })
	if err != nil {
		return fail(cosched.ExitUnavailable, err, "the system bus: %v: start dbus.service", err)
	}
	// systemd makes this directory, and keeps it while the service is restarted.
	dir := os.Getenv("RUNTIME_DIRECTORY")
	if dir != "" {
		dir = filepath.Join(dir, "units")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fail(cosched.ExitCantCreate, err, "%v", err)
		}
	}
	record, err := OpenRecord(dir)
	if err != nil {
		return fail(cosched.ExitIO, err, "%v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	events := make(chan Event)
	go bus.Follow(ctx, events, func(err error) {
		log(journal.PriWarning, "", Complaint{Text: fmt.Sprintf("the system bus: %v: connecting again", err)})
	})
	err = NewService(h, h, bus, record, log).Run(ctx, events, reload, func() {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	})
	if err != nil {
		return fail(cosched.ExitFailure, err, "%v", err)
	}
	return nil
}
