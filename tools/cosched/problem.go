package cosched

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

// Exit statuses, as in sysexits.h.
const (
	ExitFailure     = 1
	ExitUsage       = 64
	ExitData        = 65 // a value that the machine or the cgroup refuses
	ExitNoInput     = 66 // no such cgroup, process or thread
	ExitUnavailable = 69 // no controller, or not enabled
	ExitCantCreate  = 73
	ExitIO          = 74
	ExitNoPerm      = 77
)

// Problem is an error for people: one line with the file, the value and the remedy.
type Problem struct {
	Status int
	Text   string
	Err    error // the cause, if there is one
}

func (p *Problem) Error() string { return p.Text }
func (p *Problem) Unwrap() error { return p.Err }

func problem(status int, err error, format string, args ...any) *Problem {
	text := fmt.Sprintf(format, args...)
	return &Problem{status, strings.Join(strings.Fields(text), " "), err}
}

// Gone reports whether an error says that a cgroup was removed while it was in use: its files
// cannot be opened any more, or an open file has lost its cgroup.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// writeProblem says why the kernel refused a value that was written to one of the controller's
// files.
func (h Host) writeProblem(g Group, file, value string, err error) error {
	path := g.Path(file)
	refused := fmt.Sprintf("%s: %q", path, value)
	switch {
	case err == nil:
		return nil
	case Gone(err):
		return problem(ExitNoInput, err, "%s is gone: the cgroup was removed meanwhile", path)
	case errors.Is(err, fs.ErrPermission):
		return problem(ExitNoPerm, err, "%s: permission denied: be root, or use a cgroup that was delegated to you", refused)
	case file == FilePreferred && errors.Is(err, syscall.EOPNOTSUPP):
		return problem(ExitUnavailable, err, "%s: this kernel does not choose homes itself: name CPUs, or a domain such as llc:0", refused)
	case file == FilePreferred && errors.Is(err, syscall.ERANGE):
		possible, _ := readCPUs(filepath.Join(h.Sys, "devices/system/cpu/possible"))
		return problem(ExitData, err, "%s: names a CPU that this machine cannot have: it can have %s", refused, or(possible.String(), "fewer"))
	case file == FilePreferred && errors.Is(err, syscall.EINVAL):
		return problem(ExitData, err, "%s: the kernel does not accept this as a list of CPUs: write it as 0-3,8", refused)
	case file == FileWeights && (errors.Is(err, syscall.ERANGE) || errors.Is(err, syscall.EINVAL)):
		return problem(ExitData, err, "%s: refused: weights are two integers from 1 to 10000", refused)
	}
	return problem(ExitFailure, err, "%v", err)
}

// ReadProblem says why a file of the controller cannot be read.
func (h Host) ReadProblem(g Group, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return problem(ExitNoPerm, err, "%v: be root, or its owner", err)
	case Gone(err) && !g.exists():
		return problem(ExitNoInput, err, "%s was removed while it was shown", g)
	case Gone(err):
		p := h.notEnabled(g, nil)
		p.Err = err
		return p
	}
	return problem(ExitFailure, err, "%v", err)
}

// moveProblem says why a process or thread could not be put into a cgroup.
func (h Host) moveProblem(g Group, file string, id int, err error) error {
	what := fmt.Sprintf("%s: %d", g.Path(file), id)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ESRCH):
		return problem(ExitNoInput, err, "%s: exited before it was moved", what)
	case Gone(err):
		return problem(ExitNoInput, err, "%s: the cgroup was removed meanwhile", what)
	case errors.Is(err, fs.ErrPermission):
		return problem(ExitNoPerm, err, "%s: permission denied: this needs the right to write to cgroup.procs of the nearest common ancestor of "+
			"%s and its present cgroup (%s): be root", what, g, h.where(id))
	case errors.Is(err, syscall.EBUSY):
		return problem(ExitUnavailable, err, "%s: refused, because there are processes in clusters below %s: move it to one of these clusters, or to a new one", what, g)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return problem(ExitUnavailable, err, "%s: refused: it is in %s, and %s takes threads of processes in %s only: move the process there first",
			what, h.where(id), g, h.domain(g))
	case errors.Is(err, syscall.EINVAL):
		return problem(ExitData, err, "%s: refused: a kernel thread stays where it is", what)
	}
	return problem(ExitFailure, err, "%v", err)
}

// notEnabled says that a cgroup lacks the controller's files, and how to enable the controller.
func (h Host) notEnabled(g Group, err error) *Problem {
	status := ExitUnavailable
	why := ""
	if errors.Is(err, fs.ErrPermission) {
		status, why = ExitNoPerm, " and you may not enable it"
	} else if errors.Is(err, syscall.EBUSY) {
		return problem(status, err, "%s: not enabled, as a cgroup above has both processes and domain controllers for its children: "+
			"move its processes into a child, then repeat this", g.Path(FilePreferred))
	} else if err != nil {
		why = fmt.Sprintf(" (%v)", err)
	}
	var files []string
	for _, d := range h.above(g) {
		if !d.passesOn() {
			files = append(files, d.Path(fileControl))
		}
	}
	if len(files) == 0 { // Only if the controller was enabled meanwhile.
		files = []string{h.parent(g).Path(fileControl)}
	}
	return problem(status, err, "%s: cosched is not enabled on this path%s: as root, echo +cosched | tee %s",
		g.Path(FilePreferred), why, strings.Join(files, " "))
}
