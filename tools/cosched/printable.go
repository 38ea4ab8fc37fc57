package cosched

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable gives a text in a form that is safe to show on a terminal: names of cgroups and
// threads may contain any byte except a slash and NUL. A text with characters that are not graphic,
// such as those that move the cursor, or with bytes that are not UTF-8, is escaped as in a string
// in Go, so that ESC [2J is shown as \x1b[2J.
func Printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
