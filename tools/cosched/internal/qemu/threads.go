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

// Threads are those of a QEMU that are known; others are the emulator's.
type Threads struct{ VCPU, IO []int }

// Source tells which of some threads are which.
type Source interface {
	Threads(of []int) (Threads, error)
}

// Names tells them by the names that QEMU gives them with -name ...,debug-threads=on.
type Names struct{ Proc string }

// "CPU 0/KVM", "CPU 0/TCG", and "ALL CPUs/TCG" where one thread emulates all. The kernel
// keeps 15 bytes of a name.
var vcpuName = regexp.MustCompile(`^(CPU \d+|ALL CPUs)/[A-Z]+$`)

// Threads reads the names. A thread that is gone is none.
func (n Names) Threads(of []int) (t Threads, err error) {
	for _, tid := range of {
		text, err := os.ReadFile(filepath.Join(n.Proc, strconv.Itoa(tid), "comm"))
		name := strings.TrimSuffix(string(text), "\n")
		switch {
		case err != nil:
		case vcpuName.MatchString(name):
			t.VCPU = append(t.VCPU, tid)
		// Those of monitors and of RCU have other names, or do next to nothing.
		case strings.HasPrefix(name, "IO ") && name != "IO mon_iothread":
			t.IO = append(t.IO, tid)
		}
	}
	return t, nil
}

// Best asks QEMU as long as it answers, and goes by names afterwards.
type Best struct {
	QMP *QMP
	Names
}

// Threads tells which are which.
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

// Cgroups are what threads are moved in: a cosched.Host, but in tests.
type Cgroups interface {
	MoveThread(g cosched.Group, tid int) error
	ThreadIDs(g cosched.Group) ([]int, error)
}

// VM are the cgroups of the threads of a QEMU, all in one threaded subtree.
type VM struct {
	Cgroups
	VCPU, Emulator cosched.Group
	IO             cosched.Group // Emulator, where they are not apart

	seen []int // when threads were placed last
}

// ErrNoVCPUs is that no thread is known for a vCPU. All stay where they are.
var ErrNoVCPUs = errors.New("none of the threads is known for a vCPU")

// Place puts the threads that are in the VM's cgroups into the one that each is for. What
// the source says of other threads is ignored: a QEMU that its guest has taken over may
// say anything. The source is asked only if there are other threads than before.
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
