package detect

import (
	"bufio"
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lockFunctions are functions that take a lock whose address is their first argument, the
// busiest function first. Functions of the C library whose names have two more underscores
// at the beginning are the same functions under older names. pthread_spin_lock is not in
// the list: it begins with a locked instruction, on which the kernel puts no probe.
var lockFunctions = []string{
	"pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_timedlock", "pthread_mutex_clocklock",
	"pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock",
	"sem_wait", "sem_trywait", "sem_post",
}

// cLibrary matches the files that have these functions: those of glibc before 2.34 and
// after, and of musl.
var cLibrary = regexp.MustCompile(`^(libc|libpthread|ld-musl)[-.].*so`)

// mapping is a file that is mapped for execution.
type mapping struct {
	file  string // as the process sees it
	inode string // device and inode
	start uint64
	pgoff uint64
	end   uint64
}

// executable lists the executable file mappings of a process.
func executable(maps string) ([]mapping, error) {
	f, err := os.Open(maps)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []mapping
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// start-end perms offset dev inode path
		w := strings.Fields(lines.Text())
		if len(w) < 6 || len(w[1]) < 4 || w[1][2] != 'x' || !strings.HasPrefix(w[5], "/") {
			continue
		}
		from, to, _ := strings.Cut(w[0], "-")
		m := mapping{inode: w[3] + " " + w[4], file: strings.Join(w[5:], " ")}
		for _, n := range []struct {
			text string
			to   *uint64
		}{{from, &m.start}, {to, &m.end}, {w[2], &m.pgoff}} {
			if *n.to, err = strconv.ParseUint(n.text, 16, 64); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", maps, lines.Text(), err)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// mayHaveLocks reports whether a mapped file is searched for functions that take locks: it
// is if it is a C library, or the program itself, which may be linked statically.
func mayHaveLocks(file, program string) bool {
	return file == program || cLibrary.MatchString(path.Base(file))
}

// lockOffsets returns the offsets in a file of the functions that take locks, in the order
// of lockFunctions.
func lockOffsets(file string) ([]uint64, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[uint64]int{} // the index in lockFunctions of the function at an offset
	// These functions return an error if the file lacks their table, which does no harm.
	symbols, _ := f.DynamicSymbols()
	static, _ := f.Symbols()
	for _, s := range append(symbols, static...) {
		i := slices.Index(lockFunctions, strings.TrimPrefix(s.Name, "__"))
		if i < 0 || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				// Several names and versions of one function have one address.
				found[s.Value-p.Vaddr+p.Off] = i
			}
		}
	}
	list := slices.Collect(maps.Keys(found))
	slices.SortFunc(list, func(a, b uint64) int { return cmp.Or(found[a]-found[b], cmp.Compare(a, b)) })
	return list, nil
}
