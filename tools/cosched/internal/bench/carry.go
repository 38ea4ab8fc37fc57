package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"cosched.io/cosched/internal/vm"
)

// guestSource is where the guest has the source tree that a makefile builds from. A program
// has the same path as on the machine that runs the lab, because it looks for its own files
// by their paths.
const guestSource = "/linux"

// cargo is what a guest needs to run a makefile.
type cargo struct {
	files []vm.File
	// hash is that of all paths, modes and contents; hashes has those of single programs,
	// by name.
	hash   string
	hashes map[string]string
}

// packages maps programs that a row may need to their Debian packages.
var packages = map[string]string{
	"as": "binutils", "cc1": "gcc", "gcc": "gcc", "hackbench": "rt-tests", "ld": "binutils", "make": "make",
}

func missing(program string) error {
	name := filepath.Base(program)
	if p := packages[name]; p != "" {
		name = p
	}
	return fmt.Errorf("no program %s: install the package %s, or run tools/setup.sh", program, name)
}

// load asks a makefile which programs it runs and which files they read in the tree source,
// and collects these files and programs and the programs' libraries.
func load(ctx context.Context, makefile, source string) (*cargo, error) {
	programs, err := ask(ctx, makefile, source, "carry-programs")
	if err != nil {
		return nil, err
	}
	var files []vm.File
	for _, p := range programs {
		if info, err := os.Stat(p); errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil, missing(p)
		}
		libraries, err := vm.SharedLibraries(p)
		if err != nil {
			return nil, err
		}
		for _, f := range append([]string{p}, libraries...) {
			files = append(files, vm.File{Path: f, Host: f, Mode: 0o755})
		}
	}
	words, err := ask(ctx, makefile, source, "carry-sources")
	if err != nil {
		return nil, err
	}
	for _, f := range words {
		if strings.HasSuffix(f, ":") || f == "\\" {
			continue
		}
		guest, host := f, f
		if !filepath.IsAbs(f) {
			guest, host = path.Join(guestSource, f), filepath.Join(source, f)
		}
		files = append(files, vm.File{Path: path.Clean(guest), Host: host, Mode: 0o644})
	}
	files = append(files, vm.File{Path: path.Join(guestSource, filepath.Base(makefile)), Host: makefile, Mode: 0o644})
	slices.SortStableFunc(files, func(a, b vm.File) int { return strings.Compare(a.Path, b.Path) })
	files = slices.CompactFunc(files, func(a, b vm.File) bool { return a.Path == b.Path })

	c := &cargo{files: files, hashes: map[string]string{}}
	all := sha256.New()
	for _, f := range files {
		data, err := os.ReadFile(f.Host)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(all, "%s %o %x\n", f.Path, f.Mode, sum)
		if slices.Contains(programs, f.Host) {
			c.hashes[filepath.Base(f.Host)] = hex.EncodeToString(sum[:8])
		}
	}
	c.hash = hex.EncodeToString(all.Sum(nil)[:8])
	return c, nil
}

// ask makes a target of a makefile and returns the words that the target prints.
func ask(ctx context.Context, makefile, source, target string) ([]string, error) {
	if _, err := exec.LookPath("make"); err != nil {
		return nil, missing("make")
	}
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", source, "-f", makefile, target)
	// If a make runs this process, its options must not reach the make that is started
	// here, as they change what that prints.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") })
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s, target %s: %w (tools/setup.sh installs what is needed)\n%s", filepath.Base(makefile), target, err, &text)
	}
	return strings.Fields(string(out)), nil
}
