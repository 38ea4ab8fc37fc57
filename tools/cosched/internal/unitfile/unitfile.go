// Package unitfile reads and edits systemd's unit files and drop-ins, gives the line
// that each setting is in, and finds the files of a unit.
//
// The rules are those of systemd's config_parse(), as observed with systemd 252: a
// file must not be read differently here than by systemd.
package unitfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxLine is the length of a line from which on systemd stops reading a file (LONG_LINE_MAX).
const MaxLine = 1 << 20

const (
	whitespace = " \t\n\r"
	bom        = "\uFEFF"
)

// Assignment is KEY=VALUE in a section. An empty value resets what came before.
type Assignment struct {
	Key, Value string
	Line       int // the first line of the assignment

	start, end int // where the assignment is in the text
}

// Issue is a line that systemd ignores, or at which it stops reading.
type Issue struct {
	Line int
	Text string
}

// File is one section of a unit file. The section can consist of several parts.
type File struct {
	Assignments []Assignment
	Issues      []Issue // issues in the section, and any that makes systemd stop reading the file
	// Stopped is the line at which systemd stops reading the file; 0 if it reads the whole file.
	Stopped int

	tail int  // the end of the last line of the section; 0 if there is none
	open bool // the last line ends in a backslash, so that the next line would continue it
}

// Parse reads a section of a file. Issues in other sections are not reported, unless systemd stops
// reading there.
func Parse(text []byte, section string) *File {
	f := &File{}
	var (
		in         bool
		joined     string // lines that end in a backslash
		continued  bool
		start      int // of the assignment, which may span several lines
		first      int
		bomAllowed = true
	)
	for at, number := 0, 1; at < len(text) && f.Stopped == 0; number++ {
		raw, next := readLine(text, at)
		if len(raw) >= MaxLine {
			f.stop(number, "the line is too long")
			break
		}
		if l := strings.TrimLeft(raw, whitespace); l != "" && (l[0] == '#' || l[0] == ';') {
			if in && !continued {
				f.tail = next
			}
			at = next
			continue // also between continued lines
		}
		l := raw
		if bomAllowed && strings.HasPrefix(l, bom) {
			l, bomAllowed = l[len(bom):], false
		}
		if !continued {
			start, first = at, number
		} else {
			l = joined + l
		}
		at = next
		if len(l) >= MaxLine {
			f.stop(number, "the line is too long")
			break
		}
		// A backslash that is not escaped by one before it.
		if (len(l)-len(strings.TrimRight(l, `\`)))%2 == 1 {
			joined, continued = l[:len(l)-1]+" ", true
			if at < len(text) {
				continue
			}
			l, f.open = joined, true
		}
		continued = false
		in = f.line(l, section, in, first, start, at)
	}
	// The last line that was not a comment ends in a backslash.
	if continued && f.Stopped == 0 {
		f.open = true
		f.line(joined, section, in, first, start, len(text))
	}
	return f
}

// line handles a line from which comments, byte order mark and continuation have been removed. It
// reports whether the text after the line is in the section.
func (f *File) line(l, section string, in bool, number, start, end int) bool {
	l = strings.Trim(l, whitespace)
	switch {
	case l == "":
	case !utf8.ValidString(l):
		f.stop(number, "not UTF-8")
	case l[0] == '[':
		if l[len(l)-1] != ']' {
			f.stop(number, fmt.Sprintf("%q is not a section header", l))
			return in
		}
		name := l[1 : len(l)-1]
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune("\"'\\\x7f", r) }) {
			f.stop(number, fmt.Sprintf("bad characters in the section header %q", l))
			return in
		}
		if in = name == section; in {
			f.tail = end
		}
		return in
	case in:
		f.tail = end
		key, value, ok := strings.Cut(l, "=")
		key = strings.Trim(key, whitespace)
		switch {
		case !ok:
			f.Issues = append(f.Issues, Issue{number, fmt.Sprintf("no = in %q, ignored", l)})
		case key == "":
			f.Issues = append(f.Issues, Issue{number, fmt.Sprintf("nothing before the = in %q, ignored", l)})
		default:
			f.Assignments = append(f.Assignments, Assignment{key, strings.Trim(value, whitespace), number, start, end})
		}
	}
	return in
}

func (f *File) stop(number int, why string) {
	f.Stopped = number
	f.Issues = append(f.Issues, Issue{number, why + ": systemd reads no further"})
}

// readLine gives the line that begins at an offset, and the offset of the next line. A line ends
// with a newline, a carriage return or a NUL, or with several of these in any order, each at most
// once. The byte after a NUL always begins the next line.
func readLine(text []byte, at int) (string, int) {
	n := bytes.IndexAny(text[at:], "\n\r\x00")
	if n < 0 {
		return string(text[at:]), len(text)
	}
	end := at + n
	next := end
	var seen []byte
	for next < len(text) && strings.IndexByte("\n\r\x00", text[next]) >= 0 && !slices.Contains(seen, text[next]) {
		seen = append(seen, text[next])
		next++
		if text[next-1] == 0 {
			break
		}
	}
	return string(text[at:end]), next
}

// Set sets a key of a section to a value, in place of the last assignment to the key or at the end
// of the section, and leaves the rest of the text as it is. Earlier assignments to the key are
// removed. An empty value resets what files before this one have set.
func Set(text []byte, section, key, value string) ([]byte, error) {
	f := Parse(text, section)
	if f.Stopped > 0 {
		return nil, fmt.Errorf("line %d: %s", f.Stopped, f.Issues[len(f.Issues)-1].Text)
	}
	assignment := key + "=" + value + "\n"
	at := f.tail
	var out []byte
	done := 0
	for _, a := range f.Assignments {
		if a.Key == key {
			out = append(out, text[done:a.start]...)
			done, at = a.end, a.end
		}
	}
	if f.tail == 0 {
		at = len(text)
		assignment = "[" + section + "]\n" + assignment
		if len(bytes.TrimLeft(text, whitespace+bom)) > 0 {
			assignment = "\n" + assignment
		}
	}
	// The new assignment goes where the last of the removed ones was.
	out = append(out, text[done:at]...)
	if n := len(out); n > 0 && out[n-1] != '\n' && string(out) != bom {
		out = append(out, '\n')
	}
	if f.open && at == len(text) {
		out = append(out, '\n')
	}
	out = append(out, assignment...)
	return append(out, text[at:]...), nil
}
