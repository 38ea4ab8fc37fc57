package coschedtest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must come at once.
const Patience = 30 * time.Second

// Log is what a service logs in a test, and waits for what it does.
type Log struct {
	T       testing.TB
	Without []string // directories that lines are to be without

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

// Lines are those since the beginning, or Forget.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Forget begins anew.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// Count is how many lines have a text.
func (l *Log) Count(text string) (n int) {
	for _, line := range l.Lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Logged waits for a line with a text.
func (l *Log) Logged(text string) {
	l.T.Helper()
	l.Wait("log: "+text, func() bool { return l.Count(text) > 0 })
}

// Wait waits for a state.
func (l *Log) Wait(what string, ok func() bool) {
	l.T.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.T.Fatalf("%s: not within %v; logged: %q", what, Patience, l.Lines())
		}
	}
}
