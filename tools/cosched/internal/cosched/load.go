package cosched

import (
	"fmt"
	"strconv"
	"strings"
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

// ParseLoad parses the content of cosched.load, whose lines are nested keyed:
// a name, then KEY=VALUE pairs. Names and keys that it does not know are left
// out, as a later kernel may add some.
func ParseLoad(text string) (Load, error) {
	var l Load
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		kv, err := pairs(f[1:])
		if err != nil {
			return Load{}, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		switch {
		case strings.HasPrefix(f[0], "llc"):
			var d LLCLoad
			d.Index, err = strconv.Atoi(f[0][len("llc"):])
			if err == nil && d.Index != len(l.LLCs) {
				err = fmt.Errorf("want llc%d here", len(l.LLCs))
			}
			if err == nil {
				d.CPUs, err = ParseCPUs(kv["cpus"])
			}
			if err == nil {
				var home uint64
				home, err = number(kv, "home")
				d.Home = int(home)
			}
			if err == nil && d.Home > len(d.CPUs) {
				err = fmt.Errorf("home is larger than the domain")
			}
			if err == nil {
				d.Util, d.Runnable, err = utilRunnable(kv)
			}
			l.LLCs = append(l.LLCs, d)
		case strings.HasPrefix(f[0], "cpu"):
			var c CPULoad
			c.CPU, err = parseCPU(f[0][len("cpu"):])
			if err == nil {
				var home uint64
				home, err = number(kv, "home")
				c.Home = home != 0
			}
			if err == nil {
				c.Util, c.Runnable, err = utilRunnable(kv)
			}
			l.CPUs = append(l.CPUs, c)
		}
		if err != nil {
			return Load{}, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
	}
	return l, nil
}

func pairs(fields []string) (map[string]string, error) {
	kv := make(map[string]string, len(fields))
	for _, f := range fields {
		k, v, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", f)
		}
		kv[k] = v
	}
	return kv, nil
}

func number(kv map[string]string, key string) (uint64, error) {
	n, err := strconv.ParseUint(kv[key], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is not a number", key, kv[key])
	}
	return n, nil
}

func utilRunnable(kv map[string]string) (util, runnable uint64, err error) {
	if util, err = number(kv, "util"); err == nil {
		runnable, err = number(kv, "runnable")
	}
	return util, runnable, err
}
