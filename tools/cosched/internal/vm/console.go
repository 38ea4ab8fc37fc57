package vm

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
)

// console keeps the kernel's messages and looks for signs of trouble in them.
type console struct {
	live     io.Writer
	realTime bool // the guest's time passes while the host runs something else
	onReport func(line string)

	mu    sync.Mutex
	buf   bytes.Buffer
	part  []byte
	found []string
	panic string
}

// reportLine matches the first line of everything that the kernel's own checks print: the
// words are those of lib/bug.c, kernel/panic.c, kernel/locking/lockdep.c,
// mm/kasan/report.c, kernel/rcu, kernel/hung_task.c, lib/list_debug.c, lib/debugobjects.c
// and mm/slub.c; lib/kunit has none.
var reportLine = regexp.MustCompile(`(?:^|\] )(?:` + strings.Join([]string{
	`BUG: `, `BUG [a-z0-9_-]+ \(`, `WARNING: `, `Oops: `, `Kernel panic - not syncing`, `Internal error: `,
	`general protection fault`, `kernel BUG at `, `divide error: `, `invalid opcode: `, `int3: `, `stack segment: `,
	`INFO: task .* blocked for more than`, `INFO: rcu_.* (?:detected|self-detected)`, `rcu: INFO: `,
	`INFO: possible recursive locking`, `INFO: possible irq lock inversion`, `INFO: inconsistent lock state`,
	`INFO: trying to register non-static key`, `INFO: lockdep is turned off`, `INFO: suspicious RCU usage`,
	`watchdog: BUG: `, `list_(?:add|del) corruption`, `ODEBUG: `, `unreferenced object 0x`,
	`DEBUG_LOCKS_WARN_ON`, `UBSAN: `, `refcount_t: `, `Unable to handle kernel`, `Out of memory: Killed process`,
	`corrupted stack end detected`, lateLine,
}, "|") + `)`)

// lateLine matches a message that a CPU did not get to something in time, by a second or
// more. In real time that is caused by the host, which ran something else than this vCPU.
const lateLine = `sched: (?:RT throttling|DL replenish lagged)`

var late = regexp.MustCompile(lateLine)

var panicLine = regexp.MustCompile(`Kernel panic - not syncing: (.*)`)

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		// A listener that fails must not stop the guest.
		_, _ = c.live.Write(b)
	}
	c.buf.Write(b)
	c.part = append(c.part, b...)
	for {
		line, rest, ok := bytes.Cut(c.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		c.line(strings.TrimRight(string(line), "\r"))
		c.part = rest
	}
}

func (c *console) line(line string) {
	if m := panicLine.FindStringSubmatch(line); m != nil && c.panic == "" {
		c.panic = m[1]
	}
	if reportLine.MatchString(line) && !(c.realTime && late.MatchString(line)) {
		c.found = append(c.found, strings.TrimSpace(timeStamp.ReplaceAllString(line, "")))
		if c.onReport != nil && len(c.found) == 1 {
			c.onReport(line)
		}
	}
}

var timeStamp = regexp.MustCompile(`^\[ *[0-9.]+\]\s*`)

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.buf.String(), "\r", "")
}

func (c *console) reports() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

func (c *console) panicked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic != ""
}
