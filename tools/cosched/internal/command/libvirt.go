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
		Long: `Is called by libvirt as /etc/libvirt/hooks/qemu.d/cosched, with the domain's XML as
standard input. When the domain has started, or libvirt has, its vCPUs get what is in
<metadata>; other operations do nothing:

  <cosched:vm xmlns:cosched="` + libvirt.Namespace + `"
    home="llc:1" weights="4:1000" emulator-home="node:0" iothread-home="0-1"/>

What is wrong with it goes to the system's log, and the domain runs all the same; with
fail="yes" the exit status says so, and libvirt stops it.

  journalctl -t cosched-libvirt-hook`,
		Example: `  virsh dumpxml shop | cosched libvirt-hook shop reconnect	# once more, for vCPUs plugged in`,
		Args:    cobra.RangeArgs(2, 4),
		// libvirt completes nothing.
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
					hookSays(h, cmd, fmt.Sprintf("note: %s: %s", name, note))
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

// hookSays writes a line to standard error and to the system's log: libvirt shows the first
// only of a hook that fails.
func hookSays(h cosched.Host, cmd *cobra.Command, text string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), text)
	if h.Syslog == "" {
		return
	}
	if w, err := syslog.Dial("unixgram", h.Syslog, syslog.LOG_WARNING|syslog.LOG_DAEMON, "cosched-libvirt-hook"); err == nil {
		_ = w.Warning(text) // there is no other place to say it
		w.Close()
	}
}
