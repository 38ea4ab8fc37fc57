package status

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// On a terminal the text is below what is printed, is cut where it would wrap, and is taken
// off in the end.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		text := "first"
		l := Start(&out, true, time.Hour, func() string { return text })
		l.Print("one")
		l.Draw()
		l.Print("two")
		text = strings.Repeat("×", 100)
		l.Draw()
		l.Stop()
		l.Stop()
		l.Draw()
		l.Print("three")
		const e = "\r\x1b[K"
		want := e + "one\n" + e + "first" + e + "two\nfirst" + e + strings.Repeat("×", 79) + e + e + "three\n"
		if got := out.String(); got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
	})
}

// The text is shown without anything being printed.
func TestRedraw(t *testing.T) {
	for _, test := range []struct {
		terminal bool
		every    time.Duration
		shown    string
	}{{true, interval, "\r\x1b[Ktext\r\x1b[Ktext\r\x1b[K"}, {false, time.Minute, "text\ntext\n"}} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			l := Start(&out, test.terminal, time.Minute, func() string { return "text" })
			time.Sleep(test.every * 5 / 2)
			l.Stop()
			if out.String() != test.shown {
				t.Errorf("terminal %v: %q", test.terminal, &out)
			}
		})
	}
}

// Elsewhere there are lines only.
func TestPlain(t *testing.T) {
	var out bytes.Buffer
	l := Start(&out, false, 0, func() string { t.Error("the text is asked for"); return "" })
	l.Print("one")
	l.Draw()
	l.Print("two")
	l.Stop()
	if got := out.String(); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

func TestIsTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if IsTerminal(&bytes.Buffer{}) || IsTerminal(null) {
		t.Error("no terminal is one")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	for name, want := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", name)
		if IsTerminal(terminal) != want {
			t.Errorf("TERM=%s: %v", name, !want)
		}
	}
}
