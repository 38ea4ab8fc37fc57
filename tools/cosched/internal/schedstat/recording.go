package schedstat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cosched.io/cosched"
)

// Recording is a file that cosched schedstat record makes: the snapshots as they were read,
// so that a later version can find more in them, and what the snapshots are about.
type Recording struct {
	// Format is the version of this format. A reader refuses other versions.
	Format int `json:"schedstat_recording"`
	Recorded
	Before []string `json:"before"` // the lines of /proc/schedstat
	After  []string `json:"after"`

	name          string // for messages
	before, after *Snapshot
}

const recordingFormat = 1

// Recorded says what snapshots are about. A snapshot itself says nothing about that.
type Recorded struct {
	Kernel     string    `json:"kernel,omitempty"`  // the kernel's release
	Command    []string  `json:"command,omitempty"` // none with --for
	ExitStatus *int      `json:"exit_status,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	Seconds    float64   `json:"seconds,omitempty"`
	Hostname   string    `json:"hostname,omitempty"` // only if it was asked for
}

const switchOn = "as root, sysctl kernel.sched_schedstats=1, or boot with schedstats=enable"

// Source is the /proc directory of a machine.
type Source string

func (s Source) stat() string   { return filepath.Join(string(s), "schedstat") }
func (s Source) sysctl() string { return filepath.Join(string(s), "sys/kernel/sched_schedstats") }

// counts returns an error if the kernel does not count.
func (s Source) counts() error {
	if _, err := os.Stat(s.stat()); errors.Is(err, fs.ErrNotExist) {
		return problem(cosched.ExitUnavailable, err, "%s: not there: boot a kernel with CONFIG_SCHEDSTATS=y", s.stat())
	}
	if text, err := os.ReadFile(s.sysctl()); err == nil && strings.TrimSpace(string(text)) == "0" {
		return problem(cosched.ExitUnavailable, nil, "%s: 0: the kernel does not count: %s", s.sysctl(), switchOn)
	}
	return nil
}

// Start takes the first snapshot.
func (s Source) Start(hostname bool) (*Recording, error) {
	if err := s.counts(); err != nil {
		return nil, err
	}
	r := &Recording{Format: recordingFormat}
	r.Kernel = s.kernel("osrelease")
	if hostname {
		r.Hostname = s.kernel("hostname")
	}
	var err error
	r.Before, r.before, err = s.snapshot()
	r.Started = time.Now()
	return r, err
}

// Stop takes the last snapshot.
func (r *Recording) Stop(s Source) error {
	r.Seconds = time.Since(r.Started).Seconds()
	// Round down to a microsecond: reading the counters of one CPU takes longer.
	r.Seconds = float64(int64(r.Seconds*1e6)) / 1e6
	r.Started = r.Started.UTC().Truncate(time.Millisecond)
	var err error
	r.After, r.after, err = s.snapshot()
	return err
}

// SinceBoot returns what the machine has counted until now.
func (s Source) SinceBoot() (*Recording, error) {
	if err := s.counts(); err != nil {
		return nil, err
	}
	r := &Recording{name: s.stat(), Recorded: Recorded{Kernel: s.kernel("osrelease")}}
	var err error
	r.After, r.after, err = s.snapshot()
	return r, err
}

func (s Source) kernel(file string) string {
	text, _ := os.ReadFile(filepath.Join(string(s), "sys/kernel", file))
	return strings.TrimSpace(string(text))
}

func (s Source) snapshot() ([]string, *Snapshot, error) {
	text, err := os.ReadFile(s.stat())
	if err != nil {
		return nil, nil, ioProblem(err)
	}
	lines := split(string(text))
	snapshot, err := Parse(lines)
	if err != nil {
		return nil, nil, problem(cosched.ExitUnavailable, err, "%s: %v", s.stat(), err)
	}
	return lines, snapshot, nil
}

func split(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// Write writes the recording.
func (r *Recording) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// maxSize bounds what is read as a recording. Two snapshots of 8192 CPUs, the most that
// Linux has, with 8 domains each, take 80 MB.
const maxSize = 128 << 20

// Read reads a recording, or a copy of /proc/schedstat, which has what was counted since
// boot.
func Read(name string) (*Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, ioProblem(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, ioProblem(err)
	}
	r := &Recording{}
	switch {
	case len(text) > maxSize:
		err = errors.New("larger than any recording")
	case len(text) == 0:
		err = errors.New("empty: the recording did not come to its end")
	case strings.HasPrefix(string(text), "version "):
		r.After = split(string(text))
		if text[len(text)-1] != '\n' {
			err = errors.New("its last line has no end: truncated")
		}
	default:
		if err = json.Unmarshal(text, r); err != nil {
			err = fmt.Errorf("neither a recording of cosched schedstat nor a copy of /proc/schedstat, or damaged: %w", err)
		} else if r.Format != recordingFormat {
			err = fmt.Errorf("schedstat_recording is %d, not %d: no recording of cosched schedstat, or one of a later cosched", r.Format, recordingFormat)
		}
	}
	if err == nil && r.Format == recordingFormat {
		if r.before, err = Parse(r.Before); err != nil {
			err = fmt.Errorf("before: %w", err)
		}
	}
	if err == nil {
		if r.after, err = Parse(r.After); err != nil && r.Format == recordingFormat {
			err = fmt.Errorf("after: %w", err)
		}
	}
	if err != nil {
		return nil, problem(cosched.ExitData, err, "%s: %v", name, err)
	}
	r.name = name
	return r, nil
}

// ReadPair reads two copies of /proc/schedstat, one from before and one from after.
func ReadPair(before, after string) (*Recording, error) {
	a, err := Read(before)
	if err != nil {
		return nil, err
	}
	b, err := Read(after)
	if err != nil {
		return nil, err
	}
	for _, r := range []*Recording{a, b} {
		if r.before != nil {
			return nil, problem(cosched.ExitUsage, nil, "%s is a recording, which has its two snapshots: report it alone, or compare two with diff", r.name)
		}
	}
	return &Recording{name: before + ", " + after, before: a.after, after: b.after}, nil
}

func problem(status int, err error, format string, args ...any) error {
	return &cosched.Problem{Status: status, Text: fmt.Sprintf(format, args...), Err: err}
}

func ioProblem(err error) error {
	status := cosched.ExitIO
	switch {
	case errors.Is(err, fs.ErrNotExist):
		status = cosched.ExitNoInput
	case errors.Is(err, fs.ErrPermission):
		status = cosched.ExitNoPerm
	}
	return problem(status, err, "%v", err)
}
