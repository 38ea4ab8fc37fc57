package command

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	svgo "github.com/ajstarks/svgo"
)

// colour matches an escape sequence that sets a colour.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[0-9;]*m`)

// sgr matches any escape sequence that changes how the following text looks.
var sgr = regexp.MustCompile(`\x1b\[([0-9;]*)m|\x0e|\x0f`)

// The colours of a terminal: foreground, background and the eight of ANSI.
const (
	foreground = "#d0d0d0"
	background = "#101418"
)

var ansi = []string{"#3b4048", "#e06c60", "#7fc46a", "#e0b85a", "#62a8ea", "#c88ae0", "#5ac0c0", foreground}

// look is how a piece of a line looks.
type look struct {
	fg, bg                         string
	bold, dim, underline, reversed bool
}

func (l *look) set(codes string) {
	list := strings.Split(codes, ";")
	for i := 0; i < len(list); i++ {
		n, _ := strconv.Atoi(list[i])
		switch {
		case n == 0:
			*l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.dim = true
		case n == 4:
			l.underline = true
		case n == 7:
			l.reversed = true
		case n >= 30 && n <= 37:
			l.fg = ansi[n-30]
		case n >= 90 && n <= 97:
			l.fg = ansi[n-90]
		case n == 39:
			l.fg = ""
		case n >= 40 && n <= 47:
			l.bg = ansi[n-40]
		case n == 49:
			l.bg = ""
		case (n == 38 || n == 48) && i+2 < len(list):
			// Of the 256 colours the view uses only the first 16.
			if c, _ := strconv.Atoi(list[i+2]); c < 16 && n == 38 {
				l.fg = ansi[c%8]
			}
			i += 2
		}
	}
}

// attribute is an attribute of an SVG element, as package svgo takes them.
func attribute(name string, value any) string {
	return fmt.Sprintf("%s=%q", name, fmt.Sprint(value))
}

// svg draws a screen that tmux captured, with its escape sequences. Each piece of text has a fixed
// place and length, so that it does not depend on the font.
func svg(text string) string {
	const width, height = 8, 17
	var b strings.Builder
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(sgr.ReplaceAllString(line, "")))
	}
	w, h := columns*width+16, len(lines)*height+16
	canvas := svgo.New(&b)
	canvas.Start(w, h, attribute("font-family", "DejaVu Sans Mono, Menlo, Consolas, monospace"), attribute("font-size", 13))
	canvas.Rect(0, 0, w, h, attribute("rx", 6), attribute("fill", background))
	var l look
	for y, line := range lines {
		x := 0
		piece := func(s string) {
			n := utf8.RuneCountInString(s)
			if n == 0 {
				return
			}
			fg, bg := l.fg, l.bg
			if fg == "" {
				fg = foreground
			}
			if l.reversed {
				if bg == "" {
					bg = background
				}
				fg, bg = bg, fg
			}
			left, top := 8+x*width, 8+y*height
			if bg != "" {
				canvas.Rect(left, top, n*width, height, attribute("fill", bg))
			}
			if strings.TrimSpace(s) != "" {
				style := []string{attribute("textLength", n*width), attribute("fill", fg), attribute("xml:space", "preserve")}
				if l.bold {
					style = append(style, attribute("font-weight", "bold"))
				}
				if l.dim {
					style = append(style, attribute("opacity", 0.6))
				}
				if l.underline {
					style = append(style, attribute("text-decoration", "underline"))
				}
				canvas.Text(left, top+13, s, style...)
			}
			x += n
		}
		for line != "" {
			at := sgr.FindStringSubmatchIndex(line)
			if at == nil {
				piece(line)
				break
			}
			piece(line[:at[0]])
			if at[2] >= 0 {
				l.set(line[at[2]:at[3]])
			}
			line = line[at[1]:]
		}
	}
	canvas.End()
	return b.String()
}

func TestSVG(t *testing.T) {
	got := svg("a\x1b[1;32mb<\x1b[0m\x1b[7mc\x1b[0m\n\x1b[38;5;3md\x1b[39m \n")
	for _, want := range []string{
		`<text x="8" y="21" textLength="8" fill="#d0d0d0" xml:space="preserve" >a</text>`,
		`<text x="16" y="21" textLength="16" fill="#7fc46a" xml:space="preserve" font-weight="bold" >b&lt;</text>`,
		`<rect x="32" y="8" width="8" height="17" fill="#d0d0d0" />` + "\n" + `<text x="32" y="21" textLength="8" fill="#101418"`,
		`<text x="8" y="38" textLength="8" fill="#e0b85a" xml:space="preserve" >d</text>`, `<svg width="48" height="50"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
