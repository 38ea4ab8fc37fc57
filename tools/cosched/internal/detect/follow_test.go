package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Scripts read this: cosched detect --follow --json prints it.
func TestChangeJSON(t *testing.T) {
	got, err := json.Marshal(Change{Thread: Thread{TID: 7, PID: 5, Name: "till"}, From: 1, To: 2})
	if want := `{"thread":{"tid":7,"pid":5,"name":"till"},"from":1,"to":2}`; err != nil || string(got) != want {
		t.Errorf("%s, want %s: %v", got, want, err)
	}
}

func TestTracker(t *testing.T) {
	// Each step: groups found, then what the tracker has.
	for _, c := range []struct {
		name  string
		steps []string
	}{
		{"known again in another order", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "4 5 6|1 2 3", "1: 1 2 3, 2: 4 5 6"}},
		{"found elsewhere once", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|3 4 5 6", "1: 1 2 3, 2: 4 5 6",
			"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|3 4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|3 4 5 6", "1: 1 2 3, 2: 4 5 6"}},
		{"found elsewhere again and again", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|3 4 5 6", "1: 1 2 3, 2: 4 5 6",
			"1 2|3 4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|3 4 5 6", "1: 1 2, 2: 3 4 5 6"}},
		{"a new thread", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2 3 7|4 5 6", "1: 1 2 3 7, 2: 4 5 6"}},
		{"ended threads", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "-1 -2 -3|4 5 6|7 8", "2: 4 5 6, 3: 7 8"}},
		{"a group that splits", []string{"1 2 3 4", "1: 1 2 3 4", "1 2|3 4", "1: 1 2 3 4", "1 2|3 4", "1: 1 2 3 4", "1 2|3 4", "1: 1 2, 2: 3 4"}},
		{"one not seen stays", []string{"1 2 3|4 5 6", "1: 1 2 3, 2: 4 5 6", "1 2|4 5 6", "1: 1 2 3, 2: 4 5 6"}},
		{"no groups", []string{"1 2|3 4", "1: 1 2, 2: 3 4", "", "1: 1 2, 2: 3 4", "", "1: 1 2, 2: 3 4", "1 2|3 4", "1: 1 2, 2: 3 4",
			"", "1: 1 2, 2: 3 4", "", "1: 1 2, 2: 3 4", "", "", "1 2|3 4", "3: 1 2, 4: 3 4"}},
	} {
		tracker := NewTracker()
		ended := map[int]bool{}
		have := map[int]int{} // as the changes have it
		for i := 0; i < len(c.steps); i += 2 {
			var groups []Group
			for part := range strings.SplitSeq(c.steps[i], "|") {
				var g Group
				for id := range strings.FieldsSeq(part) {
					var tid int
					fmt.Sscan(id, &tid)
					if tid < 0 {
						ended[-tid] = true
						delete(have, -tid)
					}
					g.Threads = append(g.Threads, Thread{TID: max(tid, -tid)})
				}
				if len(g.Threads) > 0 {
					groups = append(groups, g)
				}
			}
			for _, ch := range tracker.Update(groups, func(tid int) bool { return !ended[tid] }) {
				if have[ch.Thread.TID] != ch.From {
					t.Errorf("%s, step %d: %v, but it was in %d", c.name, i/2, ch, have[ch.Thread.TID])
				}
				if have[ch.Thread.TID] = ch.To; ch.To == 0 {
					delete(have, ch.Thread.TID)
				}
			}
			var list []string
			got := tracker.Groups()
			for _, n := range slices.Sorted(maps.Keys(got)) {
				list = append(list, fmt.Sprintf("%d: %s", n, strings.Trim(fmt.Sprint(got[n]), "[]")))
			}
			if s := strings.Join(list, ", "); s != c.steps[i+1] {
				t.Errorf("%s, step %d: %s, want %s", c.name, i/2, s, c.steps[i+1])
			}
			if !maps.Equal(have, tracker.in) {
				t.Errorf("%s, step %d: changes give %v, want %v", c.name, i/2, have, tracker.in)
			}
		}
	}
}
