// Package sample is the data that cosched top, record, replay, dump and plot share: a
// Sample is what the kernel says of the clusters and CPUs at one time, an Interval what
// happened between two of them.
package sample

import (
	"time"

	"cosched.io/cosched"
)

// Sample is what the kernel said at one time. Counters are since the clusters, or the
// machine, began.
type Sample struct {
	Time time.Time `json:"time"`
	// Monotonic is the kernel's CLOCK_MONOTONIC: time that nobody sets, to divide by.
	Monotonic uint64         `json:"monotonic_usec"`
	LLCs      []cosched.CPUs `json:"llcs"` // online CPUs of each LLC domain
	CPUs      []CPU          `json:"cpus"` // those online
	// Total is of all clusters, removed ones included.
	Total    Figures   `json:"total"`
	Clusters []Cluster `json:"clusters"` // parents first
}

// CPU is a line of /proc/stat.
type CPU struct {
	CPU  int    `json:"cpu"`
	Idle uint64 `json:"idle_usec"`
	Busy uint64 `json:"busy_usec"`
}

// Cluster is a cgroup with the controller's files.
type Cluster struct {
	Name    string       `json:"name"`
	Path    string       `json:"path"`
	Asked   string       `json:"cpus_preferred"`
	Home    cosched.CPUs `json:"home"`
	Weights [2]int       `json:"weights"` // PREFERRED, ALLOWED
	Threads int          `json:"threads"` // in the cgroup itself
	Figures
}

// Figures are what changes all the time.
type Figures struct {
	Stat cosched.Stat `json:"stat"`
	LLCs []LLCLoad    `json:"llcs"` // only those that are home or have load
	// Those with load.
	CPUs []cosched.CPULoad `json:"cpus"`
}

// LLCLoad is a cluster's load on an LLC domain; 1024 is one CPU's worth, or one thread's.
type LLCLoad struct {
	LLC      int    `json:"llc"`
	Home     int    `json:"home"` // how many of its CPUs are home
	Util     uint64 `json:"util"`
	Runnable uint64 `json:"runnable"`
}
