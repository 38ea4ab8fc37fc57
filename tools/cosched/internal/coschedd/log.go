package coschedd

import (
	"fmt"
	"io"
	"strconv"

	"github.com/coreos/go-systemd/v22/journal"
)

// Log takes a message about a unit or, if the unit is "", about the service itself.
type Log func(priority journal.Priority, unit string, c Complaint)

// Journal logs to systemd's journal if standard error goes there, and otherwise to standard error.
func Journal(stderr io.Writer) Log {
	native, _ := journal.StderrIsJournalStream()
	return func(priority journal.Priority, unit string, c Complaint) {
		text := c.String()
		if unit != "" {
			text = unit + ": " + text
		}
		if native && journal.Send(text, priority, fields(unit, c.At)) == nil {
			return
		}
		if native {
			fmt.Fprintf(stderr, "<%d>", priority)
		}
		fmt.Fprintf(stderr, "coschedd: %s\n", text)
	}
}

// fields gives the journal fields that systemd uses for errors in a unit file, and the field by
// which journalctl --unit finds messages about a unit from another process of root.
func fields(unit string, at At) map[string]string {
	m := map[string]string{"SYSLOG_IDENTIFIER": "coschedd"}
	if unit != "" {
		m["UNIT"], m["OBJECT_SYSTEMD_UNIT"] = unit, unit
	}
	if at.File != "" {
		m["CONFIG_FILE"] = at.File
	}
	if at.Line != 0 {
		m["CONFIG_LINE"] = strconv.Itoa(at.Line)
	}
	return m
}
