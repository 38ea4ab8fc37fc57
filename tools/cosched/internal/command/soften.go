package command

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"cosched.io/cosched"
)

// softenDir is where what is preloaded is installed. Linking for another place says
// so: -ldflags "-X cosched.io/cosched/internal/command.softenDir=DIR".
var softenDir = "/usr/local/lib/cosched"

// softenObject is what is preloaded: tools/lib/cosched makes it.
const softenObject = "libcosched-soften.so"

// soften adds to an environment what makes preferences of the affinity of a command that
// a user runs.
func soften(path string, env []string, uid int) ([]string, error) {
	object, err := findSoften()
	if err != nil {
		return nil, err
	}
	if err := softenable(path, object, uid); err != nil {
		return nil, err
	}
	const name = "LD_PRELOAD="
	for i, v := range env {
		if others, ok := strings.CutPrefix(v, name); ok && others != "" {
			env = slices.Clone(env)
			env[i] = name + object + ":" + others
			return env, nil
		}
	}
	return append(slices.Clip(env), name+object), nil
}

// findSoften finds what is preloaded: where COSCHED_LIBDIR says, beside this program,
// as make lib and installing into one place have it, or where it was installed.
func findSoften() (string, error) {
	dirs := []string{softenDir}
	if exe, err := os.Executable(); err == nil {
		dirs = slices.Insert(dirs, 0, filepath.Join(filepath.Dir(exe), "../lib/cosched"))
	}
	if dir := os.Getenv("COSCHED_LIBDIR"); dir != "" {
		dirs = []string{dir}
	}
	for _, dir := range dirs {
		object, err := filepath.Abs(filepath.Join(dir, softenObject))
		if err != nil {
			continue
		}
		// The loader takes blanks and colons for the end of a name.
		if _, err := os.Stat(object); err == nil && !strings.ContainsAny(object, " :") {
			return object, nil
		}
	}
	return "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf(
		"--soften needs %s, which is not in %s: make lib builds it, COSCHED_LIBDIR says where it is", softenObject, strings.Join(dirs, " or "))}
}

// maxInterpreters is how many scripts the kernel lets be each other's interpreter.
const maxInterpreters = 5

// softenable reports, as an error, that nothing can be preloaded into a command that a
// user runs.
func softenable(path, object string, uid int) error {
	cannot := func(why string, args ...any) error {
		return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("--soften: %s: %s", path, fmt.Sprintf(why, args...))}
	}
	ours, err := elf.Open(object)
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("--soften: %s: %v: make lib builds it anew", object, err), Err: err}
	}
	defer ours.Close()
	for range maxInterpreters {
		st, err := os.Stat(path)
		if err != nil {
			return cannotExecute(path, err)
		}
		if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			return cannot("runs with the rights of another user, for which nothing is preloaded")
		}
		// Where the real user is root, the kernel does not tell the loader to be careful.
		if uid != 0 && hasCapabilities(path) {
			return cannot("has file capabilities, with which nothing is preloaded for others than root")
		}
		f, err := os.Open(path)
		if err != nil {
			return nil // It may be executed, not read: who knows.
		}
		file, err := elf.NewFile(f)
		if err == nil {
			dynamic := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
			class, machine := file.Class, file.Machine
			f.Close()
			switch {
			case !dynamic:
				return cannot("is linked statically, so that its calls cannot be seen")
			case class != ours.Class || machine != ours.Machine:
				return cannot("is for %s, %s for %s", machine, object, ours.Machine)
			}
			return nil
		}
		path, err = interpreter(f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil // The kernel will refuse it.
}

// hasCapabilities reports whether a program gives capabilities to who runs it, as
// setcap(8) has it.
func hasCapabilities(path string) bool {
	_, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil
}

// interpreter is what runs a script: what has no #! is one of sh.
func interpreter(script *os.File) (string, error) {
	if _, err := script.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(script).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return "/bin/sh", nil
	}
	if filepath.Base(words[0]) == "env" && len(words) > 1 {
		if path, err := exec.LookPath(words[1]); err == nil {
			return path, nil
		}
	}
	return words[0], nil
}
