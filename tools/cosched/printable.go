package cosched

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable gives a text as it can be shown on a terminal: names of cgroups and threads
// may hold any byte but a slash and NUL. One with bytes that move the cursor or are no
// UTF-8 is escaped as Go writes it in a string, so "a\x1b[2J" in place of that.
func Printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
