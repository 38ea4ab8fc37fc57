package detect

import (
	"time"

	"golang.org/x/sys/unix"
)

// Overhead is what observing cost the processes that were observed.
type Overhead struct {
	Limit float64       `json:"limit"` // the part of their CPU time that the cost was to stay below
	Time  time.Duration `json:"time_ns"`
	CPU   time.Duration `json:"cpu_ns"` // used by the observed processes

	// Calls of functions that take locks. The cost of each is a breakpoint and the program
	// that counts.
	Calls     uint64        `json:"lock_calls"`
	Trap      time.Duration `json:"trap_ns"` // of one breakpoint, measured on this machine
	CallsTime time.Duration `json:"lock_calls_program_ns"`
	CallsOpen time.Duration `json:"lock_calls_watched_ns"`
	// System calls, wakeups and page faults, including those of other processes.
	SystemCalls uint64        `json:"system_calls"`
	Entry       time.Duration `json:"entry_ns"` // of one, without the program, measured on this machine
	Faults      uint64        `json:"page_faults"`
	Fault       time.Duration `json:"page_fault_ns"` // what watching adds to one, without the program
	Events      uint64        `json:"events"`
	EventsTime  time.Duration `json:"events_program_ns"`
	EventsOpen  time.Duration `json:"events_watched_ns"`

	Own time.Duration `json:"own_cpu_ns"` // CPU time of cosched itself
}

// UpdateOwn updates Own: if there are many threads, finding groups takes longer than
// observing.
func (o *Overhead) UpdateOwn() error {
	var own unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &own)
	o.Own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return err
}

// Cost returns the CPU time that the observed processes lost.
func (o Overhead) Cost() time.Duration {
	return time.Duration(o.Calls)*o.Trap + o.CallsTime + o.eventsCost()
}

func (o Overhead) eventsCost() time.Duration {
	return time.Duration(o.SystemCalls)*o.Entry + time.Duration(o.Faults)*o.Fault + o.EventsTime
}

// Share returns the cost as a part of the CPU time that the observed processes used.
func (o Overhead) Share() float64 {
	if o.CPU == 0 {
		return 0
	}
	return o.Cost().Seconds() / o.CPU.Seconds()
}
