package sample

import (
	"bytes"
	"errors"
	"io"
	"os"

	"cosched.io/cosched"
)

// Index gives access to the intervals of a recording in any order.
type Index struct {
	name   string
	file   *os.File // has the text; a compressed recording is copied into a file that has no name
	begin  []entry  // an entry for each sample
	pairs  [][2]int // the two samples of each interval; the first is -1 if there is none
	Header Header   // the last header
	Torn   bool

	cached map[int]*Sample // the last two samples that were read
}

type entry struct {
	at     int64
	size   int
	line   int
	begins bool
}

// NewIndex reads a recording to its end. Samples are not checked before they are shown.
func NewIndex(f *os.File, name string) (x *Index, err error) {
	x = &Index{name: name, file: f, cached: map[int]*Sample{}}
	var magic [2]byte
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(magic[:], 0); !st.Mode().IsRegular() || err == nil && magic == [2]byte{0x1f, 0x8b} {
		if x.file, err = os.CreateTemp("", "cosched-replay-"); err != nil {
			return nil, err
		}
		if err := os.Remove(x.file.Name()); err != nil {
			return nil, err
		}
	}
	r, err := NewReader(f, name)
	if err != nil {
		return nil, err
	}
	begins := false
	for {
		before := r.offset
		line, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if x.file != f {
			if _, err := x.file.Write(line); err != nil {
				return nil, &cosched.Problem{Status: cosched.ExitIO, Text: "copying " + name + ": " + err.Error(), Err: err}
			}
		}
		switch {
		case bytes.HasPrefix(line, headerPrefix):
			if x.Header, err = r.header(line); err != nil {
				return nil, err
			}
			begins = true
		case r.number == 1:
			return nil, r.bad("not a recording of cosched: its first line is none of one")
		default:
			x.begin = append(x.begin, entry{before, len(line), r.number, begins})
			begins = false
		}
	}
	if r.number == 0 && !r.torn {
		r.number = 1
		return nil, r.bad("not a recording of cosched: it is empty")
	}
	x.Torn = r.torn
	for i, e := range x.begin {
		alone := e.begins && (i+1 == len(x.begin) || x.begin[i+1].begins)
		if alone {
			x.pairs = append(x.pairs, [2]int{-1, i})
		} else if !e.begins {
			x.pairs = append(x.pairs, [2]int{i - 1, i})
		}
	}
	if len(x.pairs) == 0 {
		return nil, &cosched.Problem{Status: cosched.ExitData, Text: name + ": a recording without samples: it was stopped before the first"}
	}
	return x, nil
}

// Close closes the file of the Index. That is also the file that was given to NewIndex,
// unless its content was copied.
func (x *Index) Close() error { return x.file.Close() }

// Len returns the number of intervals.
func (x *Index) Len() int { return len(x.pairs) }

// Interval returns the i-th interval.
func (x *Index) Interval(i int) (*Interval, error) {
	pair := x.pairs[i]
	var two [2]*Sample
	for n, s := range pair {
		if s < 0 {
			continue
		}
		var err error
		if two[n], err = x.sample(s); err != nil {
			return nil, err
		}
	}
	x.cached = map[int]*Sample{pair[1]: two[1]}
	if pair[0] >= 0 {
		x.cached[pair[0]] = two[0]
	}
	return Between(two[0], two[1]), nil
}

func (x *Index) sample(i int) (*Sample, error) {
	if s := x.cached[i]; s != nil {
		return s, nil
	}
	e := x.begin[i]
	line := make([]byte, e.size)
	l := &lines{name: x.name, number: e.line}
	if _, err := x.file.ReadAt(line, e.at); errors.Is(err, io.EOF) {
		return nil, l.bad("the file became shorter while it was shown")
	} else if err != nil {
		return nil, l.failed(err)
	}
	return l.sample(line)
}
