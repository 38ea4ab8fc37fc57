package acts

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// userHz is the unit of the times in /proc on every architecture that Linux
// runs on with the generic ABI: 100 per second.
const userHz = 100

// threadStat is what /proc/TID/task/TID/stat tells of a thread.
type threadStat struct {
	state byte
	cpu   int    // where it runs, or ran last
	ticks uint64 // CPU time, in 1/userHz s
}

// parseThreadStat parses a line of proc_pid_stat(5). The name in parentheses may
// hold anything, parentheses and blanks too, so fields count from the last ')'.
func parseThreadStat(b []byte) (threadStat, error) {
	_, after, ok := cutLast(b, ')')
	f := bytes.Fields(after)
	// Fields 3, 14, 15 and 39 as the manual numbers them.
	const state, utime, stime, cpu = 0, 11, 12, 36
	if !ok || len(f) <= cpu || len(f[state]) != 1 {
		return threadStat{}, fmt.Errorf("thread stat %q: too few fields", b)
	}
	var t threadStat
	t.state = f[state][0]
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseUint(string(f[i]), 10, 64)
		if err != nil {
			return threadStat{}, fmt.Errorf("thread stat %q: %w", b, err)
		}
		t.ticks += n
	}
	n, err := strconv.ParseUint(string(f[cpu]), 10, 16)
	if err != nil {
		return threadStat{}, fmt.Errorf("thread stat %q: %w", b, err)
	}
	t.cpu = int(n)
	return t, nil
}

func cutLast(b []byte, sep byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

func readThreadStat(proc string, tid int) (threadStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/task/%d/stat", proc, tid, tid))
	if err != nil {
		return threadStat{}, err
	}
	return parseThreadStat(b)
}

// parseIdle gives the idle time of every CPU in /proc/stat, in 1/userHz s, time
// spent waiting for I/O included. A CPU that is offline has no line.
func parseIdle(b []byte) (map[int]uint64, error) {
	idle := make(map[int]uint64)
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		// "cpu" alone is the sum of all.
		if len(f) < 6 || !bytes.HasPrefix(f[0], []byte("cpu")) || len(f[0]) == 3 {
			continue
		}
		cpu, err := strconv.Atoi(string(f[0][3:]))
		if err != nil {
			return nil, fmt.Errorf("/proc/stat line %q: %w", line, err)
		}
		for _, i := range []int{4, 5} { // idle, iowait
			n, err := strconv.ParseUint(string(f[i]), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("/proc/stat line %q: %w", line, err)
			}
			idle[cpu] += n
		}
	}
	if len(idle) == 0 {
		return nil, fmt.Errorf("/proc/stat names no CPU")
	}
	return idle, nil
}

func parseTIDs(b []byte) ([]int, error) {
	var tids []int
	for _, f := range bytes.Fields(b) {
		n, err := strconv.Atoi(string(f))
		if err != nil {
			return nil, fmt.Errorf("thread ID %q: %w", f, err)
		}
		tids = append(tids, n)
	}
	return tids, nil
}
