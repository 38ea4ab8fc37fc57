package nri

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// backlog is how many lines can wait to be written: more than the pods of a node cause at the same
// time.
const backlog = 1000

// lastLines is how long the plugin waits at its end until its last lines are written.
const lastLines = time.Second

// logger writes lines in a goroutine of its own. If the program that reads standard error stops
// reading, the pipe becomes full, and no pod may wait for that.
type logger struct {
	w           io.Writer
	lines       chan string
	lost        atomic.Int64
	stop, ended chan struct{}
}

func newLogger(w io.Writer) *logger {
	l := &logger{w: w, lines: make(chan string, backlog), stop: make(chan struct{}), ended: make(chan struct{})}
	go l.write()
	return l
}

// add is the Log of the plugin.
func (l *logger) add(object, text string) {
	if object != "" {
		text = object + ": " + text
	}
	select {
	case l.lines <- text:
	default:
		l.lost.Add(1)
	}
}

func (l *logger) write() {
	defer close(l.ended)
	for {
		// Lines that were added before the end are still written.
		select {
		case text := <-l.lines:
			l.line(text)
			continue
		default:
		}
		select {
		case text := <-l.lines:
			l.line(text)
		case <-l.stop:
			return
		}
	}
}

func (l *logger) line(text string) {
	fmt.Fprintf(l.w, "cosched-nri: %s\n", text)
	if n := l.lost.Swap(0); n > 0 {
		fmt.Fprintf(l.w, "cosched-nri: %d lines were lost, because they were not read in time\n", n)
	}
}

// end waits until all lines are written, but no longer than lastLines.
func (l *logger) end() {
	close(l.stop)
	select {
	case <-l.ended:
	case <-time.After(lastLines):
	}
}
