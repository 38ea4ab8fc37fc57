// Package qemu finds the threads of a QEMU that are vCPUs, and keeps them in a cgroup of
// their own beside those of the emulator.
package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxMessage bounds a message of QMP, as a QEMU that its guest has taken over may send
// anything. A vCPU takes some 200 bytes, and the largest machine has 4096.
const maxMessage = 4 << 20

// QMP is a connection to QEMU's monitor.
type QMP struct {
	rw      io.ReadWriter
	limit   *io.LimitedReader
	decoder *json.Decoder
	greeted bool
}

// NewQMP speaks QMP on a connection that is fresh.
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

// ErrRefused is that of a command which QEMU does not do, now or ever.
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

// execute gives a command and decodes what it returns. It answers when QEMU's main loop
// runs, which is when all of the vCPUs that it starts with are there.
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
		// An event.
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

// MonitorConfig makes a file that gives a QEMU one more monitor, on a socket which it
// inherits, and returns the file and the argument for it. A -qmp on the command line
// would do, but takes away the monitor that QEMU has by default.
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
