// Package qemu finds out which threads of a QEMU are vCPUs, and keeps these in a cgroup of
// their own beside that of the emulator's threads.
package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxMessage bounds a message of QMP, because a QEMU that was taken over by its guest may
// send anything. A vCPU takes some 200 bytes, and the largest machine has 4096 vCPUs.
const maxMessage = 4 << 20

// QMP is a connection to QEMU's monitor.
type QMP struct {
	rw      io.ReadWriter
	limit   *io.LimitedReader
	decoder *json.Decoder
	greeted bool
}

// NewQMP makes a QMP of a connection on which nothing was sent or received yet.
func NewQMP(rw io.ReadWriter) *QMP {
	limit := &io.LimitedReader{R: rw}
	return &QMP{rw: rw, limit: limit, decoder: json.NewDecoder(limit)}
}

type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// ErrRefused is the error of a command that QEMU refuses, either at the moment or at all.
var ErrRefused = errors.New("QEMU refuses")

func (q *QMP) receive() (m message, err error) {
	q.limit.N = maxMessage
	if err := q.decoder.Decode(&m); err != nil {
		if q.limit.N == 0 {
			err = fmt.Errorf("a message longer than %d bytes", maxMessage)
		}
		return m, fmt.Errorf("QMP: %w", err)
	}
	return m, nil
}

// execute sends a command and decodes what QEMU returns. QEMU answers once its main loop
// runs, and then all vCPUs that it starts with exist.
func (q *QMP) execute(command string, into any) error {
	if !q.greeted {
		m, err := q.receive()
		if err != nil {
			return err
		}
		if m.Greeting == nil {
			return errors.New("QMP: no greeting: the socket is not a monitor in control mode")
		}
		q.greeted = true
		if err := q.execute("qmp_capabilities", &struct{}{}); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(q.rw, "{\"execute\":%q}\r\n", command); err != nil {
		return fmt.Errorf("QMP: %w", err)
	}
	for {
		m, err := q.receive()
		switch {
		case err != nil:
			return err
		case m.Error != nil:
			return fmt.Errorf("QMP: %w %s: %s", ErrRefused, command, m.Error.Desc)
		case m.Return != nil:
			if err := json.Unmarshal(m.Return, into); err != nil {
				return fmt.Errorf("QMP: %s: %w", command, err)
			}
			return nil
		}
		// This was an event: read on.
	}
}

// Threads asks QEMU which of its threads are vCPUs and which do I/O for devices.
func (q *QMP) Threads([]int) (t Threads, err error) {
	if t.VCPU, err = q.ids("query-cpus-fast"); err == nil {
		t.IO, err = q.ids("query-iothreads")
	}
	return t, err
}

func (q *QMP) ids(command string) (ids []int, err error) {
	var list []struct {
		ID int `json:"thread-id"`
	}
	err = q.execute(command, &list)
	for _, thread := range list {
		ids = append(ids, thread.ID)
	}
	return ids, err
}

// MonitorConfig makes a file that gives a QEMU an additional monitor, on a socket that the
// QEMU inherits. It returns the file, and the arguments that make QEMU read the file. The
// option -qmp would give it that monitor too, but would take away the monitor that QEMU has
// by default.
func MonitorConfig(socket int) (config int, args []string, err error) {
	config, err = unix.MemfdCreate("cosched-qmp", 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("memfd_create", err)
	}
	text := fmt.Sprintf("[chardev \"cosched-qmp\"]\n  backend = \"socket\"\n  fd = \"%d\"\n[mon \"cosched-qmp\"]\n  chardev = \"cosched-qmp\"\n  mode = \"control\"\n", socket)
	if _, err := unix.Write(config, []byte(text)); err != nil {
		unix.Close(config)
		return -1, nil, os.NewSyscallError("write", err)
	}
	return config, []string{"-readconfig", fmt.Sprintf("/proc/self/fd/%d", config)}, nil
}
