package nri

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// A pod does not wait until the log is read. Lost lines are counted.
func TestLogUnread(t *testing.T) {
	read, write := io.Pipe()
	l := newLogger(write)
	// More lines than there is room for, including the one that the goroutine may already have taken.
	for i := range backlog + 2 {
		l.add("shop/x", fmt.Sprint(i))
	}
	var text strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&text, read)
	}()
	l.end()
	write.Close()
	<-done
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	kept, lost := 0, 0
	for _, line := range lines {
		var n int
		if _, err := fmt.Sscanf(line, "cosched-nri: %d lines were lost", &n); err == nil {
			lost += n
		} else {
			kept++
		}
	}
	if lost == 0 || kept+lost != backlog+2 || lines[0] != "cosched-nri: shop/x: 0" {
		t.Errorf("%d lines and %d lost; the first is %q", kept, lost, lines[0])
	}
}

// The last lines before the end are written too.
func TestLogEnd(t *testing.T) {
	var text strings.Builder
	l := newLogger(&text)
	for range 100 {
		l.add("", "x")
	}
	l.end()
	if got := text.String(); got != strings.Repeat("cosched-nri: x\n", 100) {
		t.Errorf("%q", got)
	}
}
