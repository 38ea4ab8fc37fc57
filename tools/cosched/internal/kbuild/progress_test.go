package kbuild

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A build shows its steps, on lines of their own where lines cannot be rewritten, and keeps
// warnings and what is said beside the steps.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, log bytes.Buffer
		p := newProgress(&out, &log, "kernel: test", 7)
		const made = "  CC      kernel/fork.o\n  CC [M]  drivers/a.o\nmade\n"
		io.WriteString(p, made[:30])
		io.WriteString(p, made[30:])
		io.WriteString(p.stderr(), "a.c:1: warning\n")
		time.Sleep(plainInterval + time.Second)
		p.stop()
		if got, want := out.String(), "kernel: test: 2 steps of at most 7, 0:20  drivers/a.o\n"; got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
		if p.steps() != 2 || p.warnings() != "a.c:1: warning\n" || p.tail() != "made\na.c:1: warning" || !strings.HasPrefix(log.String(), made) {
			t.Errorf("%d steps, warnings %q, tail %q, log %q", p.steps(), p.warnings(), p.tail(), &log)
		}
	})
}
