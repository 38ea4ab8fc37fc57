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

// softenDir is where the library that --soften preloads is installed. Another place is set when
// linking: -ldflags "-X cosched.io/cosched/internal/command.softenDir=DIR".
var softenDir = "/usr/local/lib/cosched"

// softenObject is the library that is preloaded. It is built in tools/lib/cosched.
const softenObject = "libcosched-soften.so"

// soften adds the library to LD_PRELOAD in an environment, so that the affinity that the command
// sets becomes a preference. It fails if nothing can be preloaded into the command for that user.
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

// findSoften finds the library that is preloaded: in COSCHED_LIBDIR if that is set, otherwise
// beside this program, where make lib or an installation into the same prefix puts it, and then in
// softenDir.
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
		// For the loader, a blank or a colon ends the name.
		if _, err := os.Stat(object); err == nil && !strings.ContainsAny(object, " :") {
			return object, nil
		}
	}
	return "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf(
		"--soften needs %s, which is not in %s: make lib builds it, or set COSCHED_LIBDIR to its directory", softenObject, strings.Join(dirs, " or "))}
}

// maxInterpreters is the maximum depth of scripts whose interpreters are scripts, as in the kernel.
const maxInterpreters = 5

// softenable returns an error if nothing can be preloaded into a command that the user runs.
func softenable(path, object string, uid int) error {
	cannot := func(why string, args ...any) error {
		return &cosched.Problem{Status: cosched.ExitData, Text: fmt.Sprintf("--soften: %s: %s", path, fmt.Sprintf(why, args...))}
	}
	ours, err := elf.Open(object)
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("--soften: %s: %v: rebuild it with make lib", object, err), Err: err}
	}
	defer ours.Close()
	for range maxInterpreters {
		st, err := os.Stat(path)
		if err != nil {
			return cannotExecute(path, err)
		}
		if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			return cannot("runs with the rights of another user or group, so that nothing is preloaded")
		}
		// If the real user is root, the kernel does not put the loader into its secure mode.
		if uid != 0 && hasCapabilities(path) {
			return cannot("has file capabilities, so that nothing is preloaded unless root runs it")
		}
		f, err := os.Open(path)
		if err != nil {
			return nil // The file can be executed but not read, so nothing is known about it.
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
	return nil // The kernel will refuse so many interpreters.
}

// hasCapabilities reports whether a program has file capabilities, which setcap(8) sets.
func hasCapabilities(path string) bool {
	_, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil
}

// interpreter gives the program that runs a script. A script without #! is run by sh.
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
