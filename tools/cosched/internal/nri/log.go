package nri

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// backlog is how many lines wait to be written: more than the pods of a node have to say at
// once.
const backlog = 1000

// lastLines is how long the plugin's end waits for who reads its last lines.
const lastLines = time.Second

// logger writes lines by a goroutine of its own: who reads standard error may have stopped
// to, and the pipe be full, and no pod is to wait for that.
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

// add is the plugin's Log.
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
		// What was added before the end is written at the end too.
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
		fmt.Fprintf(l.w, "cosched-nri: %d lines were lost, as nobody read these\n", n)
	}
}

// end waits until all is written, if somebody reads it.
func (l *logger) end() {
	close(l.stop)
	select {
	case <-l.ended:
	case <-time.After(lastLines):
	}
}
