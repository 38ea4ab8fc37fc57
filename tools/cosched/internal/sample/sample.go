// Package sample has the data that cosched top, record, replay, dump and plot share: a
// Sample is what the kernel says about the clusters and CPUs at one time, and an Interval
// is what happened between two samples.
package sample

import (
	"time"

	"cosched.io/cosched"
)

// Sample is what the kernel said at one time. Counters count from the time when the cluster
// was made, or the machine was booted.
type Sample struct {
	Time time.Time `json:"time"`
	// Monotonic is the kernel's CLOCK_MONOTONIC, for rates: nobody sets that clock.
	Monotonic uint64         `json:"monotonic_usec"`
	LLCs      []cosched.CPUs `json:"llcs"` // online CPUs of each LLC domain
	CPUs      []CPU          `json:"cpus"` // the CPUs that are online
	// Total has the figures of all clusters, including removed ones.
	Total    Figures   `json:"total"`
	Clusters []Cluster `json:"clusters"` // parents first
}

// CPU is a line of /proc/stat.
type CPU struct {
	CPU  int    `json:"cpu"`
	Idle uint64 `json:"idle_usec"`
	Busy uint64 `json:"busy_usec"`
}

// Cluster is a cgroup that has the controller's files.
type Cluster struct {
	Name    string       `json:"name"`
	Path    string       `json:"path"`
	Asked   string       `json:"cpus_preferred"`
	Home    cosched.CPUs `json:"home"`
	Weights [2]int       `json:"weights"` // PREFERRED, ALLOWED
	Threads int          `json:"threads"` // in the cgroup itself
	Figures
}

// Figures are the data that change all the time.
type Figures struct {
	Stat cosched.Stat `json:"stat"`
	LLCs []LLCLoad    `json:"llcs"` // only those that are home or have load
	// CPUs has only CPUs with load.
	CPUs []cosched.CPULoad `json:"cpus"`
}

// LLCLoad is a cluster's load on an LLC domain; 1024 is one CPU's worth, or one thread's.
type LLCLoad struct {
	LLC      int    `json:"llc"`
	Home     int    `json:"home"` // how many of its CPUs are home
	Util     uint64 `json:"util"`
	Runnable uint64 `json:"runnable"`
}
