package sample

import (
	"fmt"
	"io"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/openmetrics"
)

// family is one metric: its name, type, unit and help, and its points.
type family struct {
	name, kind, unit, help string
	points                 func(*Sample, func(value float64, labels ...string))
}

// counter returns the points of a metric that has one point for each cluster.
func counter(f func(cosched.Stat) uint64, labels ...string) func(*Sample, func(float64, ...string)) {
	return func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			point(float64(f(c.Stat)), append([]string{"cluster", c.Name}, labels...)...)
		}
	}
}

// each joins the points of several kinds of an event.
func each(all ...func(*Sample, func(float64, ...string))) func(*Sample, func(float64, ...string)) {
	return func(s *Sample, point func(float64, ...string)) {
		for _, f := range all {
			f(s, point)
		}
	}
}

var families = []family{
	{"cosched_cluster", "info", "", "A cluster: its cgroup, the home asked for and the one in force, its weights.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			point(1, "cluster", c.Name, "path", c.Path, "cpus_preferred", c.Asked, "home", c.Home.String(), "weights", fmt.Sprintf("%d:%d", c.Weights[0], c.Weights[1]))
		}
	}},
	{"cosched_threads", "gauge", "", "Threads in the cgroup itself.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			point(float64(c.Threads), "cluster", c.Name)
		}
	}},
	{"cosched_cpu_seconds", "counter", "seconds", "CPU time at home and outside of it.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			point(float64(c.Stat.PreferredUsec)/1e6, "cluster", c.Name, "where", "home")
			point(float64(c.Stat.OutsideUsec)/1e6, "cluster", c.Name, "where", "outside")
		}
	}},
	{"cosched_wakeups", "counter", "", "Wakeups, forks and execs by where they were placed.", each(
		counter(func(s cosched.Stat) uint64 { return s.WakeupsHome }, "placed", "home"),
		counter(func(s cosched.Stat) uint64 { return s.WakeupsSpilled }, "placed", "spilled"),
		counter(func(s cosched.Stat) uint64 { return s.WakeupsOverflowed }, "placed", "overflowed"))},
	{"cosched_strays", "counter", "", "Running strays that came home, by themselves or in exchange for another task.", each(
		counter(func(s cosched.Stat) uint64 { return s.StraysReturned }, "how", "returned"),
		counter(func(s cosched.Stat) uint64 { return s.StraysSwapped }, "how", "swapped"))},
	{"cosched_tasks_moved_out", "counter", "", "Tasks that left home while they ran (pushed), or were taken out by the load balancer (pulled).", each(
		counter(func(s cosched.Stat) uint64 { return s.TasksPushed }, "how", "pushed"),
		counter(func(s cosched.Stat) uint64 { return s.TasksPulled }, "how", "pulled"))},
	{"cosched_home_changes", "counter", "", "Changes of the home in force.", counter(func(s cosched.Stat) uint64 { return s.HomeChanges })},
	{"cosched_load_cpus", "gauge", "cpus", "CPUs' worth of running on an LLC domain, decayed.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			for _, l := range c.LLCs {
				point(float64(l.Util)/1024, "cluster", c.Name, "llc", fmt.Sprint(l.LLC))
			}
		}
	}},
	{"cosched_runnable_threads", "gauge", "threads", "Threads that ran or waited on an LLC domain, decayed.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			for _, l := range c.LLCs {
				point(float64(l.Runnable)/1024, "cluster", c.Name, "llc", fmt.Sprint(l.LLC))
			}
		}
	}},
	{"cosched_home_cpus", "gauge", "cpus", "CPUs of an LLC domain that are home.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.Clusters {
			for _, l := range c.LLCs {
				point(float64(l.Home), "cluster", c.Name, "llc", fmt.Sprint(l.LLC))
			}
		}
	}},
	{"cosched_machine_cpu_seconds", "counter", "seconds", "Time that each CPU was idle and busy, with anything.", func(s *Sample, point func(float64, ...string)) {
		for _, c := range s.CPUs {
			point(float64(c.Idle)/1e6, "cpu", fmt.Sprint(c.CPU), "mode", "idle")
			point(float64(c.Busy)/1e6, "cpu", fmt.Sprint(c.CPU), "mode", "busy")
		}
	}},
}

// OpenMetrics writes a sample in OpenMetrics 1.0 text format.
func (s *Sample) OpenMetrics(w io.Writer) { openmetrics.Write(w, s.families()) }

// Prometheus writes the same in the Prometheus text format 0.0.4.
func (s *Sample) Prometheus(w io.Writer) { openmetrics.WritePrometheus(w, s.families()) }

func (s *Sample) families() []openmetrics.Family {
	var all []openmetrics.Family
	for _, f := range families {
		all = append(all, openmetrics.Family{Name: f.name, Kind: f.kind, Unit: f.unit, Help: f.help, Points: func(point func(float64, ...string)) { f.points(s, point) }})
	}
	return all
}
