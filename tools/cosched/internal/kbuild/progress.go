package kbuild

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"cosched.io/cosched/internal/status"
)

// progress watches make's output and shows how far it is: on a terminal on one line that is
// rewritten, otherwise with a new line every 20 seconds.
type progress struct {
	log    io.Writer
	name   string
	expect int            // steps of the last full build; 0 when unknown
	step   *regexp.Regexp // matches the line of a step; the last group is what the step works on
	start  time.Time
	shown  *status.Line

	mu    sync.Mutex
	part  map[bool][]byte // the incomplete line of stdout (false) and stderr (true)
	n     int
	what  string
	last  []string // the last lines, for an error
	warns []string
}

const (
	plainInterval = 20 * time.Second
	tailLines     = 40
)

func newProgress(out, log io.Writer, name string, expect int) *progress {
	p := &progress{log: log, name: name, expect: expect, step: makeStep, start: time.Now(), part: map[bool][]byte{}}
	p.shown = status.Start(out, status.IsTerminal(out), plainInterval, p.line)
	return p
}

func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := ""
	if p.expect > p.n {
		of = fmt.Sprintf(" of at most %d", p.expect)
	}
	t := time.Since(p.start).Round(time.Second)
	return fmt.Sprintf("%s: %d steps%s, %d:%02d  %s", p.name, p.n, of, int(t.Minutes()), int(t.Seconds())%60, p.what)
}

// makeStep matches the line of a step of the kernel's make.
var makeStep = regexp.MustCompile(`^  [A-Z]{2,10} +(?:\[M\] +)?(\S+)`)

// Write takes make's standard output.
func (p *progress) Write(b []byte) (int, error) { return p.take(b, false) }

// stderr takes make's standard error, where warnings are.
func (p *progress) stderr() io.Writer {
	return writerFunc(func(b []byte) (int, error) { return p.take(b, true) })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *progress) take(b []byte, stderr bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.log.Write(b); err != nil {
		return 0, err
	}
	data := append(p.part[stderr], b...)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		line := string(data[:i])
		data = data[i+1:]
		if m := p.step.FindStringSubmatch(line); m != nil {
			p.n++
			p.what = m[len(m)-1]
			continue // the error below is what matters, not the steps around it
		}
		if stderr {
			p.warns = append(p.warns, line)
		}
		p.last = append(p.last, line)
		if len(p.last) > tailLines {
			p.last = p.last[1:]
		}
	}
	p.part[stderr] = append([]byte(nil), data...)
	return len(b), nil
}

func (p *progress) stop() { p.shown.Stop() }

func (p *progress) steps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *progress) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.last, "\n")
}

func (p *progress) warnings() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.warns) == 0 {
		return ""
	}
	return strings.Join(p.warns, "\n") + "\n"
}
