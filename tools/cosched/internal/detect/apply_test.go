package detect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

// Clusters that another program makes meanwhile are used.
func TestApplyOvertaken(t *testing.T) {
	h := coschedtest.Overtaken(coschedtest.Overtaken(coschedtest.Host(t), "new"), "new/1")
	c := Clusters{Host: h, Name: "new", Note: func(string) {}}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply([]Change{{Thread{TID: 42}, 0, 1}}, map[int][]int{1: {42}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(h.Cgroup, "cosched/new/1/cgroup.threads"))
	if err != nil || strings.TrimSpace(string(text)) != "42" {
		t.Errorf("%q, %v", text, err)
	}
}

// A caller that fails leaves no cluster that was not there before, except those that have
// threads already.
func TestApplyUndone(t *testing.T) {
	h := coschedtest.Host(t)
	refused := errors.New("refused")
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(h.Cgroup, "cosched", name))
		return err == nil
	}
	for _, name := range []string{"new", "shop"} {
		c := Clusters{Host: h, Name: name, Note: func(string) {}}
		c.setHome = func(g cosched.Group, home cosched.Home, force bool) (string, error) {
			if filepath.Base(string(g)) == "2" {
				return "", refused
			}
			return h.SetHome(g, home, force)
		}
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
		if err := c.Undo(c.Apply([]Change{{Thread{TID: 42}, 0, 2}}, map[int][]int{2: {42}})); err != refused {
			t.Errorf("%s: %v", name, err)
		}
		if there(name+"/2") || there(name) != (name == "shop") {
			t.Errorf("%s: there: %v, its part: %v", name, there(name), there(name+"/2"))
		}
	}
	c := Clusters{Host: h, Name: "new", Note: func(string) {}}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply([]Change{{Thread{TID: 42}, 0, 1}}, map[int][]int{1: {42}}); err != nil {
		t.Fatal(err)
	}
	err := c.Undo(refused)
	if !there("new/1") || err == nil || !strings.Contains(err.Error(), "refused; and what was made stays: ") {
		t.Errorf("%v, its part: %v", err, there("new/1"))
	}
}

func TestApply(t *testing.T) {
	for _, chooses := range []bool{true, false} {
		h := coschedtest.Host(t)
		shop := filepath.Join(h.Cgroup, "cosched/shop")
		read := func(file string) string {
			text, _ := os.ReadFile(filepath.Join(shop, file))
			return strings.TrimSpace(string(text))
		}
		var notes []string
		c := Clusters{Host: h, Name: "shop", Note: func(text string) { notes = append(notes, text) }}
		if !chooses {
			c.setHome = func(g cosched.Group, home cosched.Home, force bool) (string, error) {
				if home.Value == "auto" {
					return "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: "auto", Err: syscall.EOPNOTSUPP}
				}
				return h.SetHome(g, home, force)
			}
		}
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
		changes := []Change{{Thread{TID: 41}, 0, 1}, {Thread{TID: 42}, 0, 2}, {Thread{TID: 99}, 0, 2}} // 99 has ended
		if err := c.Apply(changes, map[int][]int{1: {41}, 2: {42}}); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{"1/cgroup.threads": "41", "2/cgroup.threads": "42", "1/cgroup.type": "threaded"} {
			if got := read(file); got != want {
				t.Errorf("%s: %q, want %q", file, got, want)
			}
		}
		first, second := "auto", "auto"
		if !chooses {
			// The second part gets the domain that the first one has not.
			first, second = "0-3", "4-7"
		}
		if a, b := read("1/cosched.cpus_preferred"), read("2/cosched.cpus_preferred"); a != first || b != second {
			t.Errorf("homes %q and %q, want %q and %q", a, b, first, second)
		}
		if chooses && len(notes) != 0 || !chooses && (len(notes) == 0 || !strings.Contains(notes[0], "does not choose homes")) {
			t.Errorf("notes %q", notes)
		}
		if err := c.Apply([]Change{{Thread{TID: 41}, 1, 2}, {Thread{TID: 42}, 2, 0}}, map[int][]int{2: {41}}); err != nil {
			t.Fatal(err)
		}
		// At their beginning, these files keep what was written last.
		if got := read("2/cgroup.threads"); got != "41" {
			t.Errorf("moved: %q", got)
		}
		if got := read("cgroup.threads"); got != "42\n42" { // before: 41 and 42
			t.Errorf("taken out: %q", got)
		}
	}
}
