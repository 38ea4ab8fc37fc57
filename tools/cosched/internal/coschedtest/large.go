package coschedtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cosched.io/cosched"
)

// Large is a machine with many clusters, whose figures are changed by Step. Its cgroups are
// plain files, so the time to read them does not include the kernel's work to make their
// text.
type Large struct {
	cosched.Host
	clusters, cpus, share int
	round                 int
	busy, idle            []int
	stats                 [][]int
}

// NewLarge makes a machine in a directory, with share CPUs in each LLC domain.
func NewLarge(t testing.TB, dir string, clusters, cpus, share int) *Large {
	t.Helper()
	l := &Large{
		Host:     At(dir),
		clusters: clusters, cpus: cpus, share: share,
		busy: make([]int, cpus), idle: make([]int, cpus), stats: make([][]int, clusters),
	}
	base := filepath.Join(l.Cgroup, "cosched")
	for _, file := range []string{
		filepath.Join(l.Cgroup, "cgroup.controllers"), filepath.Join(base, "cgroup.stat"),
		filepath.Join(base, cosched.FilePreferred), filepath.Join(base, cosched.FileEffective), filepath.Join(l.Proc, "stat"),
	} {
		text := map[string]string{"cgroup.controllers": "cpu cosched\n", "cgroup.stat": fmt.Sprintf("nr_descendants %d\n", clusters)}[filepath.Base(file)]
		Append(t, file, text)
	}
	for i := range clusters {
		l.stats[i] = make([]int, len(cosched.StatFields))
		if err := os.Mkdir(l.dir(i), 0o755); err != nil {
			t.Fatal(err)
		}
		first := l.home(i) * share
		home := fmt.Sprintf("%d-%d\n", first, first+share-1)
		for file, text := range map[string]string{
			cosched.FilePreferred: home, cosched.FileEffective: home, cosched.FileWeights: "100 150\n",
			"cgroup.threads": "101\n102\n103\n104\n105\n106\n107\n108\n",
		} {
			Replace(t, filepath.Join(l.dir(i), file), text)
		}
	}
	l.Step(t)
	return l
}

func (l *Large) dir(i int) string {
	return filepath.Join(l.Cgroup, "cosched", fmt.Sprintf("cluster%04d", i))
}

func (l *Large) home(i int) int { return i % (l.cpus / l.share) }

// Step lets a second pass: each cluster has load on the CPUs of its home and, unless chance
// picks its own domain, on one CPU of another domain.
func (l *Large) Step(t testing.TB) {
	t.Helper()
	l.round++
	r := rand.New(rand.NewPCG(1, uint64(l.round)))
	var total strings.Builder
	totals := make([]int, len(cosched.StatFields))
	domains := l.cpus / l.share
	for i := range l.clusters {
		home, away := l.home(i), r.IntN(domains)
		var load strings.Builder
		for d := range domains {
			first, util, cpus := d*l.share, 0, ""
			for cpu := first; cpu < first+l.share; cpu++ {
				u := 0
				if d == home {
					u = r.IntN(1024)
				} else if d == away && cpu == first {
					u = r.IntN(300)
				}
				if util += u; u > 0 {
					cpus += fmt.Sprintf("cpu%d home=%d util=%d runnable=%d\n", cpu, b2i(d == home), u, u+u/8)
				}
			}
			fmt.Fprintf(&load, "llc%d cpus=%d-%d home=%d util=%d runnable=%d\n%s", d, first, first+l.share-1, b2i(d == home)*l.share, util, util+util/8, cpus)
			if i == 0 {
				fmt.Fprintf(&total, "llc%d cpus=%d-%d home=0 util=%d runnable=%d\n", d, first, first+l.share-1, l.share*900, l.share*1000)
			}
		}
		for n, most := range []int{900_000, 100_000, 5000, 200, 20, 50, 5, 3, 30, 0} {
			if most > 0 {
				l.stats[i][n] += r.IntN(most)
			}
			totals[n] += l.stats[i][n]
		}
		l.write(t, filepath.Join(l.dir(i), cosched.FileLoad), load.String())
		l.write(t, filepath.Join(l.dir(i), cosched.FileStat), statText(l.stats[i]))
	}
	base := filepath.Join(l.Cgroup, "cosched")
	l.write(t, filepath.Join(base, cosched.FileLoad), total.String())
	l.write(t, filepath.Join(base, cosched.FileStat), statText(totals))
	var stat strings.Builder
	stat.WriteString("cpu  0 0 0 0 0 0 0 0 0 0\n")
	for cpu := range l.cpus {
		busy := r.IntN(101)
		l.busy[cpu] += busy
		l.idle[cpu] += 100 - busy
		fmt.Fprintf(&stat, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", cpu, l.busy[cpu], l.idle[cpu])
	}
	// As on a server with many interrupts.
	fmt.Fprintf(&stat, "intr 1%s\n", strings.Repeat(" 0", 2000))
	l.write(t, filepath.Join(l.Proc, "stat"), stat.String())
}

// write changes a file in place, as files of cgroupfs change while readers keep them open.
// The new text is padded to at least the length of the old one, so that no reader gets a
// part of each.
func (l *Large) write(t testing.TB, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > int64(len(text)) {
		text += strings.Repeat("\n", int(st.Size())-len(text))
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

func statText(values []int) string {
	var b strings.Builder
	for i, f := range cosched.StatFields {
		fmt.Fprintf(&b, "%s %d\n", f.Key, values[i])
	}
	return b.String()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
