package detect

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"cosched.io/cosched"
)

// Processes finds processes and the processes that these made. It does so once, as the
// kernel adds those to come. It calls ended when all of the first processes have ended.
func Processes(proc string, pids []int, ended func()) func() ([]int, error) {
	first := true
	return func() ([]int, error) {
		var alive []int
		for _, pid := range pids {
			if _, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid))); err == nil {
				alive = append(alive, pid)
			} else if first {
				return nil, &cosched.Problem{Status: cosched.ExitNoInput, Err: err,
					Text: fmt.Sprintf("%s/%d: no such process: it has exited", proc, pid)}
			}
		}
		if len(alive) == 0 {
			ended()
		}
		if !first {
			return nil, nil
		}
		first = false
		return descendants(proc, alive)
	}
}

// Cgroup finds the processes of a cgroup and of the cgroups below it.
func Cgroup(proc, dir string) func() ([]int, error) {
	return func() ([]int, error) {
		pids, err := inCgroup(proc, dir)
		if err != nil {
			err = &cosched.Problem{Status: cosched.ExitNoInput, Err: err,
				Text: fmt.Sprintf("%v: no such cgroup: give its path, as cosched ls or systemd-cgls show it", err)}
		}
		return pids, err
	}
}
