package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cosched.io/cosched"
)

// Threads are the threads of a QEMU whose kind is known. All other threads belong to the
// emulator.
type Threads struct{ VCPU, IO []int }

// Source tells which of the given threads are vCPUs and which do I/O.
type Source interface {
	Threads(of []int) (Threads, error)
}

// Names tells threads apart by the names that QEMU gives them with -name
// ...,debug-threads=on.
type Names struct{ Proc string }

// vcpuName matches the name of a vCPU's thread: "CPU 0/KVM", "CPU 0/TCG", or "ALL CPUs/TCG"
// if one thread emulates all vCPUs. The kernel keeps 15 bytes of a name.
var vcpuName = regexp.MustCompile(`^(CPU \d+|ALL CPUs)/[A-Z]+$`)

// Threads reads the names. A thread that has ended is left out.
func (n Names) Threads(of []int) (t Threads, err error) {
	for _, tid := range of {
		text, err := os.ReadFile(filepath.Join(n.Proc, strconv.Itoa(tid), "comm"))
		name := strings.TrimSuffix(string(text), "\n")
		switch {
		case err != nil:
		case vcpuName.MatchString(name):
			t.VCPU = append(t.VCPU, tid)
		// Threads of monitors and of RCU have other names, or do next to nothing.
		case strings.HasPrefix(name, "IO ") && name != "IO mon_iothread":
			t.IO = append(t.IO, tid)
		}
	}
	return t, nil
}

// Best asks QEMU as long as QEMU answers, and goes by the names of threads afterwards.
type Best struct {
	QMP *QMP
	Names
}

// Threads tells which threads are vCPUs and which do I/O.
func (b *Best) Threads(of []int) (Threads, error) {
	if b.QMP != nil {
		t, err := b.QMP.Threads(of)
		if err == nil || errors.Is(err, ErrRefused) {
			return t, err
		}
		b.QMP = nil
	}
	return b.Names.Threads(of)
}

// Cgroups moves threads between cgroups: a cosched.Host, except in tests.
type Cgroups interface {
	MoveThread(g cosched.Group, tid int) error
	ThreadIDs(g cosched.Group) ([]int, error)
}

// VM has the cgroups for the threads of a QEMU, all in one threaded subtree.
type VM struct {
	Cgroups
	VCPU, Emulator cosched.Group
	IO             cosched.Group // the same as Emulator if I/O threads have no cgroup of their own

	seen []int // the threads that were there when threads were placed last
}

// ErrNoVCPUs is the error if no thread is known to be a vCPU. All threads stay where they
// are then.
var ErrNoVCPUs = errors.New("none of the threads is known for a vCPU")

// Place moves each thread in the VM's cgroups to the cgroup that it belongs to. What the
// source says about other threads is ignored, because a QEMU that was taken over by its
// guest may say anything. The source is asked only if the threads are not the same as
// before.
func (vm *VM) Place(source Source) error {
	at := map[int]cosched.Group{}
	var all []int
	for _, g := range slices.Compact([]cosched.Group{vm.VCPU, vm.Emulator, vm.IO}) {
		ids, err := vm.ThreadIDs(g)
		if err != nil {
			return err
		}
		for _, tid := range ids {
			at[tid] = g
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	if len(all) == 0 || slices.Equal(all, vm.seen) {
		return nil
	}
	t, err := source.Threads(all)
	if err != nil {
		return err
	}
	want := map[int]cosched.Group{}
	for _, tid := range t.IO {
		want[tid] = vm.IO
	}
	known := false
	for _, tid := range t.VCPU {
		want[tid] = vm.VCPU
		known = known || at[tid] != ""
	}
	if !known {
		return ErrNoVCPUs
	}
	for _, tid := range all {
		g, ok := want[tid]
		if !ok {
			g = vm.Emulator
		}
		if g == at[tid] {
			continue
		}
		if err := vm.MoveThread(g, tid); err != nil && !exited(err) {
			return fmt.Errorf("thread %d: %w", tid, err)
		}
	}
	vm.seen = all
	return nil
}

func exited(err error) bool {
	var p *cosched.Problem
	return errors.As(err, &p) && p.Status == cosched.ExitNoInput
}
