// Package lint has the checks of the source that need no running kernel.
package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"cosched.io/cosched/internal/kbuild"
)

// Check is one check. Run returns an error that says what it found.
type Check struct {
	Name string
	Run  func(ctx context.Context, o kbuild.Options) error
}

// Checks lists what `make lint` does, the quick ones first.
func Checks() []Check {
	return []Check{
		{"gofmt", gofmt},
		{"vet", vet},
		{"staticcheck", staticcheck},
		{"shellcheck", shellcheck},
		{"docutils", docutils},
		{"checkpatch-overlay", checkpatchOverlay},
		{"checkpatch-patches", CheckPatches},
		{"checkpatch-programs", checkpatchPrograms},
		{"sparse", kbuild.CheckSparse},
	}
}

// modules are the directories of the repository's Go modules.
var modules = []string{"tools/cosched", "tests"}

// run runs a program and returns its output, which is also part of the error if the program
// fails.
func run(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out.String())
	}
	return out.String(), err
}

func gofmt(ctx context.Context, o kbuild.Options) error {
	// Use the gofmt of the toolchain that the modules select, not the one on the PATH.
	goroot, err := run(ctx, filepath.Join(o.Root, modules[0]), "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	tool := filepath.Join(strings.TrimSpace(goroot), "bin", "gofmt")
	out, err := run(ctx, o.Root, append([]string{tool, "-l"}, modules...)...)
	if err == nil && out != "" {
		err = fmt.Errorf("not formatted as gofmt does:\n%s", out)
	}
	return err
}

// allTags includes the tests of make test-integration in the checks.
const allTags = "-tags=integration"

func vet(ctx context.Context, o kbuild.Options) error {
	var errs []error
	for _, m := range modules {
		_, err := run(ctx, filepath.Join(o.Root, m), "go", "vet", allTags, "./...")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// staticcheck runs staticcheck, which is a tool of the first module and whose version is
// pinned there.
func staticcheck(ctx context.Context, o kbuild.Options) error {
	tool, err := run(ctx, filepath.Join(o.Root, modules[0]), "go", "tool", "-n", "staticcheck")
	if err != nil {
		return err
	}
	// The path is the last line. Messages of the download, if there was one, come before
	// it.
	lines := strings.Split(strings.TrimSpace(tool), "\n")
	var errs []error
	for _, m := range modules {
		_, err := run(ctx, filepath.Join(o.Root, m), lines[len(lines)-1], allTags, "./...")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tableAsText is a rule of a table in the output of rst2pseudoxml, where tables have none. docutils
// takes a table without an empty line before it for a part of the paragraph, and does not complain.
var tableAsText = regexp.MustCompile(`(?m)^ *={3,}( +={3,})+$`)

// docutils finds what readers of Documentation/ would see as an error, such as a malformed
// table or a link to nowhere.
func docutils(ctx context.Context, o kbuild.Options) error {
	var errs []error
	pages := make(map[string]string)
	err := filepath.WalkDir(filepath.Join(o.Root, "Documentation"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".rst" {
			return err
		}
		// Use Debian's docutils, whichever Python comes first on the PATH.
		out, err := run(ctx, o.Root, "/usr/bin/rst2pseudoxml", "--report=2", "--halt=2", path)
		if err == nil && tableAsText.MatchString(out) {
			err = fmt.Errorf("%s: a table is shown as text, with its rules (write an empty line before it)", path)
		}
		errs = append(errs, err)
		pages[path] = out
		return nil
	})
	if err == nil && len(pages) == 0 {
		err = errors.New("no .rst files in Documentation/")
	}
	return errors.Join(append(errs, err, checkLinks(pages))...)
}

var (
	linkTo = regexp.MustCompile(`(?:refuri|uri)="([^":#]*)(?:#([^"]*))?"`)
	linkID = regexp.MustCompile(`<(?:document|section)[^>]* ids="([^"]*)"`)
)

// checkLinks finds links and images whose file or section does not exist. The pages are the output
// of rst2pseudoxml by the paths of the sources.
func checkLinks(pages map[string]string) error {
	sections := make(map[string]bool)
	for path, out := range pages {
		for _, m := range linkID.FindAllStringSubmatch(out, -1) {
			for _, id := range strings.Fields(m[1]) {
				sections[path+"#"+id] = true
			}
		}
	}
	var errs []error
	for path, out := range pages {
		for _, m := range linkTo.FindAllStringSubmatch(out, -1) {
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				errs = append(errs, fmt.Errorf("%s: a link to %s, which does not exist", path, m[1]))
			} else if _, rst := pages[to]; rst && m[2] != "" && !sections[to+"#"+m[2]] {
				errs = append(errs, fmt.Errorf("%s: a link to #%s, a section that %s does not have", path, m[2], to))
			}
		}
	}
	return errors.Join(errs...)
}

func shellcheck(ctx context.Context, o kbuild.Options) error {
	var scripts []string
	err := filepath.WalkDir(o.Root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "bin") {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		script := strings.HasSuffix(path, ".sh")
		if !script && filepath.Ext(path) == "" {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			head := make([]byte, 64)
			n, _ := f.Read(head)
			first, _, _ := strings.Cut(string(head[:n]), "\n")
			script = strings.HasPrefix(first, "#!") && (strings.HasSuffix(first, "sh") || strings.Contains(first, "sh "))
		}
		if script {
			scripts = append(scripts, path)
		}
		return nil
	})
	if err != nil || len(scripts) == 0 {
		return err
	}
	for _, s := range scripts {
		// The guest's init runs under busybox, whose shell is closest to dash.
		args := []string{"shellcheck", s}
		if data, err := os.ReadFile(s); err == nil && bytes.HasPrefix(data, []byte("#!/bin/busybox sh")) {
			args = []string{"shellcheck", "--shell=dash", s}
		}
		if _, e := run(ctx, o.Root, args...); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// checkpatchIgnore has the checks that cannot work for an overlay that is kept outside of
// the kernel. MAINTAINERS names none of its files. A patch is signed off when it is sent.
// And the script reads the names that the kernel itself uses from a git tree; without one,
// it complains about PELT's runnable_avg_yN_inv: CAMELCASE.
const checkpatchIgnore = "FILE_PATH_CHANGES,MISSING_SIGN_OFF,CAMELCASE"

// overlayIgnore adds what the script looks for in the same patch only, and so never finds
// for a file: the documentation of a boot parameter.
const overlayIgnore = checkpatchIgnore + ",UNDOCUMENTED_SETUP"

// traceIgnore has the complaints that every header of include/trace/events gets:
// TRACE_EVENT() is a language of its own, and its tables of names are macros that expand to
// lists.
const traceIgnore = "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT,COMPLEX_MACRO,MACRO_ARG_UNUSED,TRAILING_SEMICOLON"

func checkpatch(ctx context.Context, o kbuild.Options, ignore string, args ...string) error {
	tree, err := os.MkdirTemp("", "cosched-lint-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := kbuild.Shadow(ctx, o, tree); err != nil {
		return err
	}
	_, err = run(ctx, tree, append([]string{"perl", "scripts/checkpatch.pl", "--strict", "--quiet",
		"--show-types", "--summary-file", "--ignore", ignore}, args...)...)
	return err
}

func checkpatchOverlay(ctx context.Context, o kbuild.Options) error {
	files, err := kbuild.Overlay(o.Root)
	if err != nil || len(files) == 0 {
		return err
	}
	code, events := []string{"-f"}, []string{"-f"}
	for _, f := range files {
		switch ext := filepath.Ext(f); {
		case ext != ".c" && ext != ".h":
		case strings.HasPrefix(f, "include/trace/events/"):
			events = append(events, f)
		default:
			code = append(code, f)
		}
	}
	return errors.Join(checkFiles(ctx, o, overlayIgnore, code), checkFiles(ctx, o, overlayIgnore+","+traceIgnore, events))
}

// programIgnore adds what does not hold for C code outside of the kernel:
//   - what only the kernel has: negative errors instead of errno, its own types, strscpy(),
//     READ_ONCE(), arch/, and names for attributes of functions;
//   - long strings in messages, which are not to be split: the script knows messages by printk()
//     and the like;
//   - a word of a message that is the name of its function, as names of tests are plain words;
//   - blanks at the end of a line, with which tests write to files.
const programIgnore = checkpatchIgnore + ",USE_NEGATIVE_ERRNO,PREFER_DEFINED_ATTRIBUTE_MACRO" +
	",PREFER_KERNEL_TYPES,STRCPY,ARCH_DEFINES,VOLATILE" +
	",LONG_LINE_STRING,EMBEDDED_FUNCTION_NAME,QUOTED_WHITESPACE_BEFORE_NEWLINE"

// checkpatchPrograms checks all C code in tests/ and tools/: selftests, workloads, the C library,
// the model of the lab and what `cosched detect` loads into the kernel.
func checkpatchPrograms(ctx context.Context, o kbuild.Options) error {
	args := []string{"-f"}
	for _, dir := range []string{"tests", "tools"} {
		err := filepath.WalkDir(filepath.Join(o.Root, dir), func(path string, e fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && (ext == ".c" || ext == ".h") {
				args = append(args, path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return checkFiles(ctx, o, programIgnore, args)
}

// checkFiles runs checkpatch.pl on files. It skips a list that has nothing but the option,
// because checkpatch.pl would then read standard input.
func checkFiles(ctx context.Context, o kbuild.Options, ignore string, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return checkpatch(ctx, o, ignore, args...)
}

// CheckPatches runs checkpatch on the patches of the series for a base.
func CheckPatches(ctx context.Context, o kbuild.Options) error {
	patches, err := kbuild.Patches(o.Root, o.Base)
	if err != nil || len(patches) == 0 {
		return err
	}
	return checkpatch(ctx, o, checkpatchIgnore, patches...)
}
