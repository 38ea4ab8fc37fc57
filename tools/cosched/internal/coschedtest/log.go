package coschedtest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for something that should come at once.
const Patience = 30 * time.Second

// Log collects what a service logs in a test, and waits for what the service does.
type Log struct {
	T       testing.TB
	Without []string // directories that are cut out of the lines

	mu    sync.Mutex
	lines []string
}

// Add is called for each line.
func (l *Log) Add(line string) {
	for _, dir := range l.Without {
		line = strings.ReplaceAll(line, dir, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// Lines returns the lines since the beginning, or since Forget.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Forget drops all lines so far.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// Count returns how many lines contain a text.
func (l *Log) Count(text string) (n int) {
	for _, line := range l.Lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Logged waits for a line that contains a text.
func (l *Log) Logged(text string) {
	l.T.Helper()
	l.Wait("log: "+text, func() bool { return l.Count(text) > 0 })
}

// Wait waits until ok returns true.
func (l *Log) Wait(what string, ok func() bool) {
	l.T.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.T.Fatalf("%s: not within %v; logged: %q", what, Patience, l.Lines())
		}
	}
}
