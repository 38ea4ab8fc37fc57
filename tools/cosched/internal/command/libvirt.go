package command

import (
	"fmt"
	"log/syslog"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/libvirt"
)

func libvirtCmd(h cosched.Host) *cobra.Command {
	return &cobra.Command{
		Use:   "libvirt-hook NAME OPERATION [SUBOPERATION [EXTRA]]",
		Short: "give the vCPUs of a libvirt domain the home that its XML asks for",
		Long: `libvirt calls this as /etc/libvirt/hooks/qemu.d/cosched, with the domain's XML on
standard input. When the domain or libvirt itself has started, the domain's vCPUs get the
home and weights in <metadata>. For other operations the hook does nothing.

  <cosched:vm xmlns:cosched="` + libvirt.Namespace + `"
    home="llc:1" weights="4:1000" emulator-home="node:0" iothread-home="0-1"/>

Errors go to the system log, and the domain runs anyway. With fail="yes", the exit status
reports the error, and libvirt stops the domain.

  journalctl -t cosched-libvirt-hook`,
		Example: `  virsh dumpxml shop | cosched libvirt-hook shop reconnect	# again, for vCPUs that were plugged in`,
		Args:    cobra.RangeArgs(2, 4),
		// Only libvirt calls this, so there is nothing to complete.
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		RunE: run(func(cmd *cobra.Command, args []string) error {
			name, operation := args[0], args[1]
			if operation != "started" && operation != "reconnect" {
				return nil
			}
			w, err := libvirt.Parse(h, cmd.InOrStdin())
			if err == nil && w != nil {
				var notes []string
				notes, err = libvirt.Apply(h, name, w)
				for _, note := range notes {
					hookSays(h, cmd, fmt.Sprintf("note: %s: %s", name, cosched.Printable(note)))
				}
			}
			if err != nil && (w == nil || !w.Fail) {
				hookSays(h, cmd, fmt.Sprintf("%s: %s", name, cosched.Printable(err.Error())))
				return nil
			}
			return err
		}),
	}
}

// hookSays writes a line to standard error and to the system log. libvirt shows the standard
// error only of a hook that fails.
func hookSays(h cosched.Host, cmd *cobra.Command, text string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), text)
	if h.Syslog == "" {
		return
	}
	if w, err := syslog.Dial("unixgram", h.Syslog, syslog.LOG_WARNING|syslog.LOG_DAEMON, "cosched-libvirt-hook"); err == nil {
		_ = w.Warning(text) // if this fails too, there is no other place to report it
		w.Close()
	}
}
