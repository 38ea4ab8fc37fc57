package cosched

import (
	"bytes"
	"errors"
	"fmt"
)

// Load is the content of cosched.load: the decayed load of a cluster. A Util of
// 1024 is one CPU that always runs the cluster, a Runnable of 1024 is one thread
// that is always runnable.
type Load struct {
	LLCs []LLCLoad `json:"llcs"`
	CPUs []CPULoad `json:"cpus"` // only CPUs on which the cluster has load
}

// LLCLoad is the cluster's load on one LLC domain.
type LLCLoad struct {
	Index    int    `json:"llc"`
	CPUs     CPUs   `json:"cpus"` // online CPUs of the domain
	Home     int    `json:"home"` // how many of them belong to the home
	Util     uint64 `json:"util"`
	Runnable uint64 `json:"runnable"`
}

// CPULoad is the cluster's load on one CPU.
type CPULoad struct {
	CPU      int    `json:"cpu"`
	Home     bool   `json:"home"`
	Util     uint64 `json:"util"`
	Runnable uint64 `json:"runnable"`
}

// LoadLine is one line of cosched.load.
type LoadLine struct {
	LLC            bool   // the line is about an LLC domain, else about a CPU
	Number         int    // of the domain or the CPU
	CPUs           []byte // online CPUs of the domain, as a slice of the text
	Home           int
	Util, Runnable uint64
}

// ScanLoad calls f for the lines of cosched.load, which are nested keyed: a name, then
// KEY=VALUE pairs. Unknown names and keys are ignored, as a later kernel may add some.
//
// It allocates nothing, because cosched top calls it a thousand times a second.
func ScanLoad(text []byte, f func(LoadLine) error) error {
	next := 0 // domains are numbered in the order of their lines
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		llc := bytes.HasPrefix(line, []byte("llc"))
		if !llc && !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		l, err := loadLine(line)
		if err == nil && llc {
			if l.LLC = true; l.Number != next {
				err = fmt.Errorf("want llc%d here", next)
			}
			next++
		}
		if err == nil {
			err = f(l)
		}
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
	}
	return nil
}

// loadLine parses a line that begins with llc or cpu. It does so byte by byte, because cosched
// top spends most of its time here.
func loadLine(line []byte) (l LoadLine, err error) {
	// word gives the text up to the next a or b, and advances past that byte.
	i := len("llc")
	word := func(a, b byte) []byte {
		from := i
		for i < len(line) && line[i] != a && line[i] != b {
			i++
		}
		w := line[from:i]
		i++
		return w
	}
	name := word(' ', ' ')
	number, ok := decimal(name)
	if !ok || number > maxCPU {
		return l, fmt.Errorf("%q is not the number of a domain or CPU", name)
	}
	l.Number = int(number)
	const home, util, runnable = 1, 2, 4
	seen := 0
	for i < len(line) {
		key := word('=', ' ')
		if i > len(line) || line[i-1] != '=' {
			return l, fmt.Errorf("%q is not KEY=VALUE", key)
		}
		val := word(' ', ' ')
		if string(key) == "cpus" {
			l.CPUs = val
			continue
		}
		n, ok := decimal(val)
		switch string(key) {
		case "home":
			seen, l.Home = seen|home, int(n)
		case "util":
			seen, l.Util = seen|util, n
		case "runnable":
			seen, l.Runnable = seen|runnable, n
		default:
			continue
		}
		if !ok {
			return l, fmt.Errorf("%s=%q is not a number", key, val)
		}
	}
	if seen != home|util|runnable {
		return l, errors.New("want home, util and runnable")
	}
	return l, nil
}

// decimal parses a number of at most nine digits. No load and no CPU number has more.
func decimal(text []byte) (n uint64, ok bool) {
	if len(text) == 0 || len(text) > 9 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
	}
	return n, true
}

// ParseLoad parses the content of cosched.load.
func ParseLoad(text []byte) (Load, error) {
	var l Load
	err := ScanLoad(text, func(line LoadLine) error {
		if !line.LLC {
			l.CPUs = append(l.CPUs, CPULoad{line.Number, line.Home != 0, line.Util, line.Runnable})
			return nil
		}
		cpus, err := ParseCPUs(string(line.CPUs))
		if err == nil && line.Home > len(cpus) {
			err = errors.New("home is larger than the domain")
		}
		l.LLCs = append(l.LLCs, LLCLoad{line.Number, cpus, line.Home, line.Util, line.Runnable})
		return err
	})
	if err != nil {
		return Load{}, err
	}
	return l, nil
}
