package cosched

import "testing"

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"shop":           "shop",
		"größe 1 \"a\\b": "größe 1 \"a\\b",
		"":               "",
		"a\x1b[2Jb":      `a\x1b[2Jb`,
		"a\tb\nc\x7f":    `a\tb\nc\x7f`,
		"\"\r":           `"\r`,
		"\xff":           `\xff`,
		"\u009b2J":       `\u009b2J`,
		"a\u202eb":       `a\u202eb`, // from right to left
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}
