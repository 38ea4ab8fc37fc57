package command

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/sample"
)

// shotsVariable names the environment variable with a directory for pictures of the terminal in
// this test. make screenshots uses it to make the pictures of the documentation.
const shotsVariable = "COSCHED_SCREENSHOTS"

// tmux is a terminal that runs one program.
type tmux struct {
	testing.TB
	socket, tree string
}

// newTmux runs the command of a machine for tests in a terminal of 80x24.
func newTmux(t testing.TB, tree string, env []string, args ...string) *tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux: tools/setup.sh installs it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, whose path may be too long for a socket.
	dir, err := os.MkdirTemp("", "cosched-tmux-")
	if err != nil {
		t.Fatal(err)
	}
	m := &tmux{t, filepath.Join(dir, "s"), tree}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", m.socket, "kill-server").Run()
		_ = os.RemoveAll(dir)
	})
	line := "env LC_ALL=C.UTF-8 TERM=screen-256color TZ=UTC " + treeVariable + "=" + tree + " " + strings.Join(env, " ") + " " + self + " " + strings.Join(args, " ") +
		"; echo \"ended with $?\"; exec cat"
	m.run("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", line)
	return m
}

func (m *tmux) run(args ...string) string {
	m.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (m *tmux) screen() string { return m.run("capture-pane", "-p") }

// press sends keys as tmux names them.
func (m *tmux) press(keys ...string) { m.run(append([]string{"send-keys"}, keys...)...) }

// wait waits until the screen is as wanted. How long that takes depends on other load on the
// machine.
func (m *tmux) wait(what string, wanted func(screen string) bool) string {
	m.Helper()
	var now string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if now = m.screen(); wanted(now) {
			return now
		}
	}
	m.Fatalf("does not show %s:\n%s", what, now)
	return ""
}

// see waits until all given texts are on the screen.
func (m *tmux) see(texts ...string) string {
	m.Helper()
	return m.wait(fmt.Sprintf("%q", texts), func(screen string) bool {
		return !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(screen, s) })
	})
}

// seeLast waits until the last of the given number of lines begins with a text.
func (m *tmux) seeLast(lines int, text string) {
	m.Helper()
	m.wait(fmt.Sprintf("%q in line %d", text, lines), func(screen string) bool {
		all := strings.Split(screen, "\n")
		return len(all) >= lines && strings.HasPrefix(all[lines-1], text)
	})
}

// picture draws the screen, if pictures are asked for.
func (m *tmux) picture(name string) {
	m.Helper()
	dir := os.Getenv(shotsVariable)
	if dir == "" {
		return
	}
	// The machine for tests is in a directory. Its path is left out of the picture.
	text := strings.ReplaceAll(m.run("capture-pane", "-p", "-e", "-N"), m.tree, "")
	if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(svg(text)), 0o644); err != nil {
		m.Fatal(err)
	}
}

// The view in a real terminal: keys, a change of size, clusters that are removed, and a terminal
// that is restored at the end.
func TestTerminal(t *testing.T) {
	dir := t.TempDir()
	l := coschedtest.NewLarge(t, dir, 18, 64, 8)
	steps := make(chan chan bool)
	over, stopped := make(chan bool), make(chan bool)
	go func() { // change the figures until the test stops it, or fails
		defer close(stopped)
		for {
			select {
			case c := <-steps:
				select {
				case <-c:
				case <-over:
				}
				return
			case <-over:
				return
			case <-time.After(200 * time.Millisecond):
				l.Step(t)
			}
		}
	}()
	t.Cleanup(func() { close(over); <-stopped })
	hold := make(chan bool)
	stop := func() { steps <- hold }
	m := newTmux(t, dir, nil, "top", "--interval", "300ms")
	m.see("cosched top", "of 64 CPUs used by clusters", "every 300ms", "CPUSv", "cluster0017", "? help")
	m.picture("cosched-top")
	m.press("s")
	m.see("HOME%v", "sort: home")
	m.press("/", "0", "1", "7", "Enter")
	if text := m.see("filter (017)"); strings.Contains(text, "cluster0001") || !strings.Contains(text, "cluster0017") {
		t.Errorf("filtered:\n%s", text)
	}
	m.press("Enter")
	m.see("/sys/fs/cgroup/cosched/cluster0017", "home 8-15, asked for 8-15; weights 100:150; 8 threads", "RUNNING WAITING  IDLE  BY CPU", "  7 56-63 ")
	m.picture("cosched-top-cpu")
	// The cluster is removed while it is shown.
	stop()
	if err := os.RemoveAll(filepath.Join(l.Cgroup, "cosched/cluster0017")); err != nil {
		t.Fatal(err)
	}
	coschedtest.Replace(t, filepath.Join(l.Cgroup, "cosched/cgroup.stat"), "nr_descendants 17\n")
	close(hold)
	m.see("cluster0017 was removed")
	m.press("Escape")
	m.see("-cluster0017", "removed")
	m.press("Escape")
	m.see("cluster0001")
	m.press("?")
	m.see("more LLC domains", "a cluster that is new")
	m.press("x")
	m.run("resize-window", "-x", "130", "-y", "30")
	m.seeLast(30, "? help")
	m.see("0   1   2   3   4   5   6   7")
	m.run("resize-window", "-x", "60", "-y", "10")
	m.seeLast(10, "? help")
	m.see("HOME%v  SPILL   RET 0")
	m.press("Space")
	m.see("PAUSED")
	m.press("q")
	text := m.see("ended with 0")
	if strings.Contains(text, "cosched top") {
		t.Errorf("the view is still there:\n%s", text)
	}
}

// If the view ends because of an error, the error is printed on the restored terminal.
func TestTerminalEnds(t *testing.T) {
	h := coschedtest.Host(t)
	dir := filepath.Dir(filepath.Dir(filepath.Dir(h.Cgroup)))
	m := newTmux(t, dir, []string{"NO_COLOR=1"}, "top", "shop", "--interval", "100ms")
	m.see("cosched top shop", "shop/till")
	if text := m.run("capture-pane", "-p", "-e"); strings.Contains(text, "\x1b[3") && colour.MatchString(text) {
		t.Errorf("there are colours:\n%q", text)
	}
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched/shop")); err != nil {
		t.Fatal(err)
	}
	text := m.see("ended with 66")
	if !strings.Contains(strings.Join(strings.Fields(text), ""), "coschedtop:"+h.Cgroup+"/cosched/shopwasremovedwhileitwasshown") {
		t.Errorf("says\n%s", text)
	}
	// If there is nothing to show, that is printed without a view.
	coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.controllers"), "cpu\n")
	if err := os.RemoveAll(filepath.Join(h.Cgroup, "cosched")); err != nil {
		t.Fatal(err)
	}
	m = newTmux(t, dir, nil, "top")
	m.see("ended with 69", "CONFIG_CGROUP_COSCHED=y")
	coschedtest.Replace(t, filepath.Join(h.Cgroup, "cgroup.controllers"), "cosched\n")
	m = newTmux(t, dir, nil, "top")
	m.see("no clusters: cosched create NAME --home SPEC makes one")
}

// A recording in the view: it is played, paused and stepped through, and errors in it are printed
// when the terminal is restored.
func TestTerminalReplay(t *testing.T) {
	dir := t.TempDir()
	l := coschedtest.NewLarge(t, dir, 6, 32, 8)
	file := filepath.Join(dir, "monday.gz")
	var samples []string
	for range 5 {
		status, out, errs := call(l.Host, "record", "-o", "-", "--count", "1")
		if status != 0 {
			t.Fatal(errs)
		}
		samples = append(samples, out[strings.IndexByte(out, '\n')+1:])
		l.Step(t)
	}
	record := func(broken int) {
		var b bytes.Buffer
		gz := gzip.NewWriter(&b)
		header, _ := json.Marshal(sample.NewHeader(l.Cgroup))
		fmt.Fprintf(gz, "%s\n", header)
		for i, s := range samples {
			if i == broken {
				s = "{\n"
			}
			// The samples are as far apart in time as their figures say.
			s = regexp.MustCompile(`"monotonic_usec":\d+`).ReplaceAllString(s, fmt.Sprintf(`"monotonic_usec":%d`, (i+1)*1_000_000))
			fmt.Fprint(gz, s)
		}
		fmt.Fprint(gz, `{"time":`)
		if err := gz.Close(); err != nil {
			t.Fatal(err)
		}
		coschedtest.Append(t, file, "")
		coschedtest.Replace(t, file, b.String())
	}
	record(-1)
	m := newTmux(t, dir, nil, "replay", file, "--sort", "name")
	m.see("cosched replay", "of 4, ", "of 32 CPUs used by clusters")
	m.press("g", "Space")
	m.see("1 of 4, speed 1x", "PAUSED")
	m.press(".")
	m.see("2 of 4, speed 1x")
	m.press("+", "+", "-")
	m.see("2 of 4, speed 2x")
	m.picture("cosched-replay")
	m.press("G")
	m.see("4 of 4, the end")
	m.press(",")
	m.see("3 of 4")
	m.press("Space") // to the end again
	m.see("4 of 4, the end")
	m.press("q")
	m.see("ended with 0", "is not complete")
	record(3)
	m = newTmux(t, dir, nil, "replay", file)
	m.press("G")
	m.press("G") // in case the first came before the view
	text := m.see("ended with 65")
	if !strings.Contains(strings.Join(strings.Fields(text), ""), file+":5:notasample") {
		t.Errorf("says\n%s", text)
	}
}

// Without a terminal, tables or JSON are printed.
func TestTop(t *testing.T) {
	h := coschedtest.Host(t)
	status, out, errs := call(h, "top", "--count", "2", "--interval", "5ms", "--sort", "name", "--rows", "2")
	if status != 0 || errs != "" || strings.Count(out, "NAME ") != 2 || strings.Count(out, "\nshop ") != 2 || strings.Contains(out, "shop/till") {
		t.Errorf("%d\n%s%s", status, out, errs)
	}
	status, out, _ = call(h, "top", "shop", "--count", "1", "--interval", "5ms", "--json", "--filter", "till")
	var v struct {
		Seconds  float64
		Clusters []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &v); status != 0 || err != nil || v.Seconds < 0.005 || fmt.Sprint(v.Clusters) != "[{shop/till}]" {
		t.Errorf("%d, %v: %s", status, err, out)
	}
}
