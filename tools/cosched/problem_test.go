package cosched

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Each error of the kernel becomes one line with the file, the value and the remedy.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	h := Host{Cgroup: dir, Sys: filepath.Join(dir, "sys"), Proc: filepath.Join(dir, "proc")}
	g := Group(dir).child("a")
	for file, text := range map[string]string{
		"sys/devices/system/cpu/possible": "0-15\n", "proc/7/cgroup": "0::/b\n",
		"a/cgroup.type": "threaded\n", "a/cgroup.subtree_control": "", "cgroup.subtree_control": "cpu\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755), os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, value string) func(error) error {
		return func(err error) error { return h.writeProblem(g, file, value, err) }
	}
	move := func(err error) error { return h.moveProblem(g, fileProcs, 7, err) }
	read := func(g Group) func(error) error {
		return func(err error) error {
			return h.ReadProblem(g, &fs.PathError{Op: "open", Path: g.Path(FileStat), Err: err})
		}
	}
	enable := func(err error) error { return h.notEnabled(g.child("c"), err) }
	for _, tc := range []struct {
		name   string
		of     func(error) error
		err    error
		status int
		says   []string
	}{
		{"auto", write(FilePreferred, "auto"), syscall.EOPNOTSUPP, ExitUnavailable, []string{"a/cosched.cpus_preferred", `"auto"`, "llc:0"}},
		{"impossible", write(FilePreferred, "99"), syscall.ERANGE, ExitData, []string{`"99"`, "0-15"}},
		{"no list", write(FilePreferred, "0-"), syscall.EINVAL, ExitData, []string{`"0-"`, "write it as 0-3,8"}},
		{"no permission", write(FilePreferred, "0"), syscall.EACCES, ExitNoPerm, []string{"a/cosched.cpus_preferred", `"0"`, "be root"}},
		{"weights", write(FileWeights, "0 1"), syscall.ERANGE, ExitData, []string{"a/cosched.weights", `"0 1"`, "1 to 10000"}},
		{"removed", write(FileWeights, "1 1"), syscall.ENODEV, ExitNoInput, []string{"a/cosched.weights", "removed"}},
		{"removed before", write(FileWeights, "1 1"), fs.ErrNotExist, ExitNoInput, []string{"removed"}},
		{"out of memory", write(FileWeights, "1 1"), syscall.ENOMEM, ExitFailure, []string{"cannot allocate"}},
		{"exited", move, syscall.ESRCH, ExitNoInput, []string{"a/cgroup.procs", "7", "exited before it was moved"}},
		{"target removed", move, syscall.ENODEV, ExitNoInput, []string{"the cgroup was removed"}},
		{"move, no permission", move, syscall.EACCES, ExitNoPerm, []string{"/b)", "be root"}},
		{"processes below", move, syscall.EBUSY, ExitUnavailable, []string{"below"}},
		{"other domain", move, syscall.EOPNOTSUPP, ExitUnavailable, []string{"/b,", "in " + dir + " only"}},
		{"kernel thread", move, syscall.EINVAL, ExitData, []string{"kernel thread"}},
		{"read, removed", read(g.child("x")), syscall.ENOENT, ExitNoInput, []string{"a/x was removed while it was shown"}},
		{"read, not enabled", read(g), syscall.ENOENT, ExitUnavailable, []string{"as root, echo +cosched | tee " + dir + "/cgroup.subtree_control"}},
		{"read, no permission", read(g), syscall.EACCES, ExitNoPerm, []string{"a/cosched.stat", "be root"}},
		{"enable, no permission", enable, syscall.EACCES, ExitNoPerm,
			[]string{"you may not enable it", "as root, echo +cosched | tee " + dir + "/cgroup.subtree_control " + dir + "/a/cgroup.subtree_control"}},
		{"enable, internal processes", enable, syscall.EBUSY, ExitUnavailable, []string{"move its processes into a child"}},
		{"enable, not offered", enable, syscall.ENOENT, ExitUnavailable, []string{"no such file", "as root"}},
	} {
		err := tc.of(tc.err)
		var p *Problem
		if !errors.As(err, &p) || p.Status != tc.status || strings.Contains(p.Text, "\n") || !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, want status %d", tc.name, err, tc.status)
			continue
		}
		for _, s := range tc.says {
			if !strings.Contains(p.Text, s) {
				t.Errorf("%s: %q does not say %q", tc.name, p.Text, s)
			}
		}
	}
	for _, f := range []func(error) error{write(FileWeights, ""), move} {
		if err := f(nil); err != nil {
			t.Errorf("no error became %v", err)
		}
	}
}
