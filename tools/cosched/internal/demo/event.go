// Package demo shows what a guest reads about its clusters while it runs the acts
// of the demonstration: live, and as a table at the end.
//
// The guest (package acts) writes one Event per line. Everything that is shown
// comes from these events.
package demo

import (
	"encoding/json"
	"io"
)

// Event is one line from the guest. Exactly one of its fields is set.
type Event struct {
	Hello  *Hello  `json:"hello,omitempty"`
	Begin  *Begin  `json:"begin,omitempty"`
	Cmd    string  `json:"cmd,omitempty"`  // a command that was run
	Note   string  `json:"note,omitempty"` // what is being waited for
	Sample *Sample `json:"sample,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"` // the demonstration cannot go on
}

// Hello describes the guest.
type Hello struct {
	Kernel string   `json:"kernel"`
	CPUs   int      `json:"cpus"`
	LLCs   []string `json:"llcs"` // CPU list of each LLC domain
	Acts   int      `json:"acts"`
}

// Begin opens an act.
type Begin struct {
	N     int    `json:"n"`
	Title string `json:"title"`
	See   string `json:"see"` // what the viewer will see, in a sentence
}

// Sample is one live reading.
type Sample struct {
	Seconds float64 `json:"seconds"` // since the act began
	Busy    float64 `json:"busy"`    // CPUs' worth of time not idle since the last reading
	Rows    []Row   `json:"rows"`
}

// Row is one line of the heat map.
type Row struct {
	Cluster string    `json:"cluster"`
	When    string    `json:"when,omitempty"` // the part of the act, if it has several
	Home    string    `json:"home"`           // cosched.cpus_preferred.effective, "" for none
	Share   []float64 `json:"share"`          // of the cluster's CPU time, in percent by LLC domain; nil if it had no CPU time
	Source  string    `json:"source"`         // cosched.load, or /proc if there is no cluster
}

// Result closes an act.
type Result struct {
	N        int      `json:"n"`
	Title    string   `json:"title"`
	See      string   `json:"see"`
	Commands []string `json:"commands"`
	Rows     []Row    `json:"rows"` // over the measured windows
	Checks   []Check  `json:"checks"`
	OK       bool     `json:"ok"`
}

// Check is one figure that decides whether the act showed what it promises.
type Check struct {
	What   string `json:"what"`
	Got    string `json:"got"`
	Want   string `json:"want"`
	Source string `json:"source"` // the file in the guest that it was read from
	OK     bool   `json:"ok"`
}

// Report is everything that a run showed. It is what --json prints.
type Report struct {
	Hello Hello    `json:"guest"`
	Acts  []Result `json:"acts"`
	Error string   `json:"error,omitempty"`
	OK    bool     `json:"ok"`
}

// Send writes an event as one line of the protocol.
func Send(w io.Writer, e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Receive reads one line that the guest wrote. ok is false if the line is not an event.
func Receive(line string) (e Event, ok bool) {
	return e, json.Unmarshal([]byte(line), &e) == nil
}
