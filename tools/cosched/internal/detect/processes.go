package detect

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of a process, including that of its threads that have ended.
func cpuTime(pid int) (time.Duration, error) {
	// The clock of a process: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of
	// include/linux/posix-timers.h, as clock_getcpuclockid(3) makes it.
	const sched = 2
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|sched), &t)
	return time.Duration(t.Nano()), err
}

// threadTime returns the CPU time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

// descendants lists processes and the processes that these made, directly or not.
func descendants(proc string, pids []int) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // ended
		}
		// PID (NAME) STATE PARENT; a name can contain anything.
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(after) < 2 {
			return nil, fmt.Errorf("%s/%d/stat: no parent in %q", proc, pid, text)
		}
		parent, err := strconv.Atoi(after[1])
		if err != nil {
			return nil, fmt.Errorf("%s/%d/stat: %w", proc, pid, err)
		}
		children[parent] = append(children[parent], pid)
	}
	list := slices.Clone(pids)
	for i := 0; i < len(list); i++ {
		for _, child := range children[list[i]] {
			if !slices.Contains(list, child) {
				list = append(list, child)
			}
		}
	}
	return list, nil
}

// inCgroup lists the processes that have threads in a cgroup or below it.
func inCgroup(proc, dir string) ([]int, error) {
	seen := map[int]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil // removed meanwhile
		case !d.IsDir():
			return nil
		}
		// The list of processes of a threaded cgroup cannot be read.
		for _, name := range []string{"cgroup.procs", "cgroup.threads"} {
			f, err := os.Open(filepath.Join(path, name))
			if err != nil {
				continue
			}
			lines := bufio.NewScanner(f)
			for lines.Scan() {
				if id, err := strconv.Atoi(lines.Text()); err == nil {
					seen[processOf(proc, id)] = true
				}
			}
			f.Close()
			if lines.Err() == nil {
				break
			}
		}
		return nil
	})
	delete(seen, 0)
	var list []int
	for pid := range seen {
		list = append(list, pid)
	}
	slices.Sort(list)
	return list, err
}

// processOf returns the process of a thread, or 0.
func processOf(proc string, tid int) int {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(tid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(id))
			return pid
		}
	}
	return 0
}
