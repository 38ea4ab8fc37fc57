package cosched

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Load is the content of cosched.load: the decayed load of a cluster. Util and
// Runnable are in units of 1024: one CPU's worth of running, one thread that is
// always runnable.
type Load struct {
	LLCs []LLCLoad `json:"llcs"`
	CPUs []CPULoad `json:"cpus"` // only those where the cluster has any load
}

// LLCLoad is the cluster's load on one LLC domain.
type LLCLoad struct {
	Index    int    `json:"llc"`
	CPUs     CPUs   `json:"cpus"` // online CPUs of the domain
	Home     int    `json:"home"` // how many of them are home
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
	LLC            bool   // of an LLC domain, else of a CPU
	Number         int    // of the domain or the CPU
	CPUs           []byte // online CPUs of the domain, a part of the text
	Home           int
	Util, Runnable uint64
}

// ScanLoad gives the lines of cosched.load, which are nested keyed: a name, then
// KEY=VALUE pairs. Names and keys that it does not know are left out, as a later
// kernel may add some.
//
// It allocates nothing: cosched top calls it a thousand times a second.
func ScanLoad(text []byte, f func(LoadLine) error) error {
	next := 0 // domains are numbered in their order
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		name, rest, _ := bytes.Cut(line, []byte(" "))
		llc := bytes.HasPrefix(name, []byte("llc"))
		if !llc && !bytes.HasPrefix(name, []byte("cpu")) {
			continue
		}
		l, err := loadLine(name, rest)
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

func loadLine(name, rest []byte) (l LoadLine, err error) {
	// Not parseCPU, whose error would keep the text.
	number, err := strconv.ParseUint(string(name[len("llc"):]), 10, 32)
	if err != nil || number > maxCPU {
		return l, fmt.Errorf("%q has no number", name)
	}
	l.Number = int(number)
	var home, util, runnable bool
	for len(rest) > 0 {
		var pair []byte
		pair, rest, _ = bytes.Cut(rest, []byte(" "))
		key, val, ok := bytes.Cut(pair, []byte("="))
		if !ok {
			return l, fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		var n uint64
		switch string(key) {
		case "cpus":
			l.CPUs = val
			continue
		case "home", "util", "runnable":
			if n, err = strconv.ParseUint(string(val), 10, 32); err != nil {
				return l, fmt.Errorf("%s=%q is not a number", key, val)
			}
		}
		switch string(key) {
		case "home":
			home, l.Home = true, int(n)
		case "util":
			util, l.Util = true, n
		case "runnable":
			runnable, l.Runnable = true, n
		}
	}
	if !home || !util || !runnable {
		return l, errors.New("want home, util and runnable")
	}
	return l, nil
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
