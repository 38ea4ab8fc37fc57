package detect

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// hurry lets all threads of this process run before any that is observed: one that does
// not get a CPU when it is time to take the probes away would leave them in place at the
// cost of everybody. It is best effort: where it is not allowed, what is spent too much
// now is not spent later.
//
// Not SCHED_FIFO: threads of the Go runtime wait for one another in loops that do not sleep,
// for ever if the one that is waited for queues for the same CPU. With SCHED_RR it has
// its turn after sched_rr_timeslice_ms, 100 by default.
func hurry() {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
			if unix.SchedSetAttr(tid, &attr, 0) != nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, tid, -20)
			}
		}
	}
}

// Leisurely calls a function at the priority that others have; so run the commands that
// it starts.
func Leisurely(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Not unlocked: the thread ends with it.
		runtime.LockOSThread()
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
		_ = unix.SchedSetAttr(0, &attr, 0)
		f()
	}()
	<-done
}
