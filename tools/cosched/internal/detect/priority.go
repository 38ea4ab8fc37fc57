package detect

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// hurry lets all threads of this process run before any observed thread. If a thread of
// this process did not get a CPU when it is time to remove the probes, they would stay in
// place, at the cost of all. This is best effort: if it is not allowed, what is spent too
// much now is not spent later.
//
// The policy is not SCHED_FIFO: threads of the Go runtime wait for one another in loops
// that do not sleep, and would wait for ever if the thread that is waited for queues for
// the same CPU. With SCHED_RR that thread has its turn after sched_rr_timeslice_ms, 100 by
// default.
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

// Leisurely calls a function at the priority that other processes have. The commands that
// the function starts have that priority too.
func Leisurely(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is not unlocked, so that it ends with the goroutine.
		runtime.LockOSThread()
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
		_ = unix.SchedSetAttr(0, &attr, 0)
		f()
	}()
	<-done
}
