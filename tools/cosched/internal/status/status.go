// Package status shows how far something is: on a terminal on one line that is rewritten,
// below what has been printed.
package status

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// interval is how often the line is rewritten.
const interval = 250 * time.Millisecond

// IsTerminal tells whether lines can be rewritten there.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Line is the line that is rewritten.
type Line struct {
	w        io.Writer
	terminal bool
	text     func() string

	mu    sync.Mutex
	shown string // on the terminal
	ended bool

	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// Start shows a text, which is asked for again and again, until Stop. Where lines cannot be
// rewritten, the text is printed after each time plain, or not at all if that is 0.
func Start(w io.Writer, terminal bool, plain time.Duration, text func() string) *Line {
	l := &Line{w: w, terminal: terminal, text: text, done: make(chan struct{})}
	every := plain
	if terminal {
		every = interval
	}
	if every > 0 {
		l.wg.Go(func() { l.run(every) })
	}
	return l
}

func (l *Line) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
			if l.terminal {
				l.Draw()
			} else {
				l.Print(l.text())
			}
		}
	}
}

// erase goes to the beginning of the line and clears it.
const erase = "\r\x1b[K"

// Print prints a line above.
func (l *Line) Print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.terminal {
		fmt.Fprint(l.w, erase+line+"\n"+l.shown)
	} else {
		fmt.Fprintln(l.w, line)
	}
}

// Draw brings the text on a terminal up to date. The caller holds no lock that the function
// of the text needs.
func (l *Line) Draw() {
	if !l.terminal {
		return
	}
	text := l.text()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	// A text that wraps would be two lines.
	l.shown = fmt.Sprintf("%.*s", l.width()-1, text)
	fmt.Fprint(l.w, erase+l.shown)
}

// width returns the number of columns.
func (l *Line) width() int {
	if f, ok := l.w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 1 {
			return columns
		}
	}
	return 80
}

// Stop takes the text off the terminal.
func (l *Line) Stop() {
	l.once.Do(func() { close(l.done) })
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.terminal && !l.ended {
		fmt.Fprint(l.w, erase)
	}
	l.shown, l.ended = "", true
}
