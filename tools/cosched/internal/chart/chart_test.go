package chart

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

// interval returns the n-th second: cluster i uses i CPUs on domain i % 2; the last cluster
// comes later, and the first one is gone at the end.
func interval(n, clusters int) *sample.Interval {
	v := &sample.Interval{Time: time.Unix(int64(1e9+n), 0), Seconds: 1, IdleCPUs: 1, LLCs: []sample.LLC{{CPUs: cosched.CPUs{0, 1}}, {CPUs: cosched.CPUs{2, 3}}}}
	for i := range clusters {
		if i == clusters-1 && n < 5 || i == 0 && n > 15 {
			continue
		}
		home := 90.0
		v.Clusters = append(v.Clusters, sample.Use{
			Name: fmt.Sprintf("cluster%d", i), Path: fmt.Sprint(i), CPU: float64(i), AtHome: &home,
			LLCs: []sample.LLCLoad{{LLC: i % 2, Home: 2, Util: 1024}},
		})
	}
	return v
}

func TestDraw(t *testing.T) {
	c := New("CLUSTER")
	if !c.Empty() {
		t.Error("not empty")
	}
	for n := range 1500 { // more than there are points
		c.Add(interval(n, 9))
	}
	c.Add(&sample.Interval{}) // without time
	if c.Empty() || len(c.times) != 1500 {
		t.Fatalf("%d intervals", len(c.times))
	}
	dir := t.TempDir()
	for _, ext := range []string{"svg", "png"} {
		if err := c.Draw("the title", filepath.Join(dir, "a."+ext)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "a.svg"))
	if err != nil {
		t.Fatal(err)
	}
	// The six clusters that ran most have a curve; all nine have a row in the heat map.
	for name, want := range map[string]int{"the title": 1, "idle": 1, "spilled": 1, "cluster8": 2, "cluster3": 2, "cluster2": 1, "cluster0": 1} {
		if got := strings.Count(string(text), ">"+name+"<"); got != want {
			t.Errorf("%s is there %d times, want %d", name, got, want)
		}
	}
	image, err := os.ReadFile(filepath.Join(dir, "a.png"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(image)); err != nil {
		t.Error(err)
	}
}

func TestHeat(t *testing.T) {
	c := New("cluster4")
	c.Add(interval(9, 6))
	c.Add(interval(10, 6))
	if len(c.clusters) != 1 {
		t.Fatalf("%d clusters", len(c.clusters))
	}
	g := grid{c, []*series{c.clusters["4"]}}
	if x, y := g.Dims(); x != 2 || y != 1 || g.Z(0, 0) != 0.5 || g.Z(1, 0) != 0 {
		t.Errorf("%d x %d: %v %v", x, y, g.Z(0, 0), g.Z(1, 0))
	}
}
