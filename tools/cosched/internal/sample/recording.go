package sample

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cosched.io/cosched"
)

// A recording consists of lines of JSON: a Header, samples, and, if another recording was
// appended, its header and samples. If it is compressed, each line is a gzip member of its
// own, so that a crash costs no more than the last line, and more lines can be appended.
// The format is documented in Documentation/admin-guide/cosched-command.rst.

// version is the version of the format.
const version = 1

// Header says which machine the samples after it are from.
type Header struct {
	Version int       `json:"cosched_recording"`
	Time    time.Time `json:"time"`
	Host    string    `json:"host"`
	Kernel  string    `json:"kernel"`
	Top     string    `json:"top"` // the cgroup whose clusters are recorded
}

// NewHeader returns a header of this machine, with the current time.
func NewHeader(top string) Header {
	var u unix.Utsname
	_ = unix.Uname(&u) // what it fails to fill in stays empty
	return Header{version, time.Now(), unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Release[:]), top}
}

// Writer writes lines of a recording.
type Writer struct {
	w  io.Writer
	gz *gzip.Writer
	b  bytes.Buffer
}

// NewWriter writes to w, compressed or not.
func NewWriter(w io.Writer, compressed bool) *Writer {
	r := &Writer{w: w}
	if compressed {
		// For the 400 KB of a sample of 1,000 clusters, speed is worth more than a smaller
		// size.
		r.gz, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	return r
}

// Line writes a Header or a *Sample, in one write.
func (r *Writer) Line(v any) error {
	r.b.Reset()
	var to io.Writer = &r.b
	if r.gz != nil {
		r.gz.Reset(&r.b)
		to = r.gz
	}
	if err := json.NewEncoder(to).Encode(v); err != nil {
		return err
	}
	if r.gz != nil {
		if err := r.gz.Close(); err != nil {
			return err
		}
	}
	_, err := r.w.Write(r.b.Bytes())
	return err
}

// headerPrefix is the beginning of a header's line, and of no other line.
var headerPrefix = []byte(`{"cosched_recording":`)

// maxLine bounds a line, so that a file of something else is not read into memory. A sample
// of 100,000 clusters takes 40 MB.
const maxLine = 64 << 20

// lines reads lines, and reports what is wrong with a line.
type lines struct {
	name   string
	r      *bufio.Reader
	number int
	offset int64 // in the uncompressed text, of the end of the last line
	torn   bool  // the text ends within a line
}

// newLines reads text, or text that was compressed with gzip.
func newLines(r io.Reader, name string) (*lines, error) {
	l := &lines{name: name, r: bufio.NewReaderSize(r, 1<<16)}
	magic, err := l.r.Peek(2)
	if err != nil && err != io.EOF {
		return nil, l.failed(err)
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		gz, err := gzip.NewReader(l.r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			l.r, l.torn = bufio.NewReader(strings.NewReader("")), true
			return l, nil
		}
		if err != nil {
			return nil, l.bad("%v", err)
		}
		l.r = bufio.NewReaderSize(gz, 1<<16)
	}
	return l, nil
}

// next returns the next line, and io.EOF at the end. A last line that is not complete is
// left out: the machine, or the recording, was stopped while the line was written.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			l.number++
			l.offset += int64(len(line))
			return line, nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			l.torn = l.torn || len(line) > 0 || errors.Is(err, io.ErrUnexpectedEOF)
			return nil, io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			if !errors.Is(err, gzip.ErrChecksum) { // a checksum is that of the line before
				l.number++
			}
			if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || strings.HasPrefix(err.Error(), "flate:") {
				return nil, l.bad("damaged: %v", err)
			}
			return nil, l.failed(err)
		case len(line) > maxLine:
			l.number++
			return nil, l.bad("longer than any line of a recording")
		}
	}
}

func (l *lines) bad(format string, args ...any) error {
	return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("%s:%d: %s: cut the recording there, or make it again", l.name, l.number, fmt.Sprintf(format, args...))}
}

func (l *lines) failed(err error) error {
	return &cosched.Problem{Status: cosched.ExitIO, Text: fmt.Sprintf("%s: %v", l.name, bare(err)), Err: err}
}

// bare returns an error without the name of the file, which the message has already.
func bare(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// header parses and checks the line of a header.
func (l *lines) header(line []byte) (h Header, err error) {
	if err := json.Unmarshal(line, &h); err != nil {
		return h, l.bad("%v", err)
	}
	if h.Version != version {
		return h, l.bad("a recording of version %d, this cosched reads %d", h.Version, version)
	}
	return h, nil
}

// sample parses and checks the line of a sample.
func (l *lines) sample(line []byte) (*Sample, error) {
	var s Sample
	if err := json.Unmarshal(line, &s); err != nil {
		return nil, l.bad("not a sample: %v", err)
	}
	if s.Time.IsZero() || s.Monotonic == 0 {
		return nil, l.bad("not a sample: it has no time")
	}
	figures := []Figures{s.Total}
	for _, c := range s.Clusters {
		figures = append(figures, c.Figures)
	}
	for _, f := range figures {
		for _, d := range f.LLCs {
			if d.LLC < 0 || d.LLC >= len(s.LLCs) {
				return nil, l.bad("not a sample: there is no LLC domain %d", d.LLC)
			}
		}
	}
	return &s, nil
}

// Reader reads a recording from its beginning to its end.
type Reader struct {
	*lines
	// Header is the header of the samples that are being read.
	Header Header
	begins bool
}

// NewReader returns a Reader of a recording; name is for messages.
func NewReader(r io.Reader, name string) (*Reader, error) {
	l, err := newLines(r, name)
	return &Reader{lines: l}, err
}

// Torn reports, at the end, that the last line was not complete.
func (r *Reader) Torn() bool { return r.torn }

// Next returns the next sample, and io.EOF at the end. begins is true if it is the first
// sample after a header: it must not be compared with the sample before.
func (r *Reader) Next() (s *Sample, begins bool, err error) {
	for {
		line, err := r.next()
		if err == io.EOF && r.number == 0 && !r.torn {
			r.number = 1
			return nil, false, r.bad("not a recording of cosched: it is empty")
		}
		if err != nil {
			return nil, false, err
		}
		if bytes.HasPrefix(line, headerPrefix) {
			if r.Header, err = r.header(line); err != nil {
				return nil, false, err
			}
			r.begins = true
			continue
		}
		if r.number == 1 {
			return nil, false, r.bad("not a recording of cosched: its first line is none of one")
		}
		s, err := r.sample(line)
		begins, r.begins = r.begins, false
		return s, begins, err
	}
}

// Create makes the file of a recording, and keeps others from writing to it until it is
// closed.
func Create(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := hold(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// hold keeps others from writing to a recording: what they see as a torn line may be a line
// that is being written. Not all file systems have locks; where there are none, this is up
// to the user.
func hold(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &cosched.Problem{Status: cosched.ExitCantCreate, Text: f.Name() + " is being written by another cosched record: wait for it, or name another file", Err: err}
	}
	return nil
}

// Append opens a recording to write more to it, compressed or not as it is already, and
// keeps others from writing to it until it is closed. A line at the end that is not
// complete is cut off first, in which case torn is true.
func Append(name string) (_ *os.File, compressed, torn bool, err error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, false, false, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := hold(f); err != nil {
		return nil, false, false, err
	}
	end, compressed, err := complete(f, name)
	if err != nil {
		return nil, false, false, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size > end {
		torn, err = true, f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	return f, compressed, torn, err
}

// complete returns the length of the part of a recording that consists of complete lines.
func complete(f *os.File, name string) (end int64, compressed bool, err error) {
	counted := &counter64{r: bufio.NewReaderSize(f, 1<<16)}
	magic, _ := counted.r.Peek(2)
	if compressed = bytes.Equal(magic, []byte{0x1f, 0x8b}); !compressed {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return 0, false, err
		}
		r, err := NewReader(f, name)
		if err != nil {
			return 0, false, err
		}
		// Check the first line only: the others are checked when they are shown.
		first, err := r.next()
		if err == nil {
			if !bytes.HasPrefix(first, headerPrefix) {
				return 0, false, r.bad("not a recording of cosched: nothing was appended")
			}
			if _, err = r.header(first); err != nil {
				return 0, false, err
			}
		}
		for err == nil {
			_, err = r.next()
		}
		if err != io.EOF {
			return 0, false, err
		}
		if r.number == 0 {
			r.number = 1
			return 0, false, r.bad("not a recording of cosched: nothing was appended")
		}
		return r.offset, false, nil
	}
	// Read member by member. The first one has to be a header.
	at := &lines{name: name}
	for {
		gz, err := gzip.NewReader(counted)
		if err == nil {
			gz.Multistream(false)
			var text []byte
			if text, err = io.ReadAll(io.LimitReader(gz, maxLine)); err == nil {
				at.number++
				if at.number == 1 {
					if !bytes.HasPrefix(text, headerPrefix) {
						return 0, false, at.bad("not a recording of cosched: nothing was appended")
					}
				}
				if !bytes.HasSuffix(text, []byte("\n")) {
					return 0, false, at.bad("ends within a line: gunzip it, and append to that")
				}
				end = counted.n
				continue
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return end, true, nil
		}
		at.number++
		return 0, false, at.bad("damaged: %v", err)
	}
}

// counter64 counts bytes. It has ReadByte, so that gzip reads nothing of what follows a
// member.
type counter64 struct {
	r *bufio.Reader
	n int64
}

func (c *counter64) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func (c *counter64) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
