package nri

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"sigs.k8s.io/yaml"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

// runMain runs the command.
func runMain(h cosched.Host, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = Main(h, args, &out, &err)
	return status, out.String(), err.String()
}

func TestCommand(t *testing.T) {
	r := newRig(t)
	good, bad := filepath.Join(r.dir, "good"), filepath.Join(r.dir, "bad")
	coschedtest.Replace(t, good, policyText)
	coschedtest.Replace(t, bad, "default: x\n")
	for _, tc := range []struct {
		args   string
		status int
		says   string
	}{
		{"check " + good, 0, ""},
		{"check " + good + " " + bad, cosched.ExitData, `cosched-nri check: ` + bad + `: default: there is no class "x"`},
		{"check " + good + "-", cosched.ExitNoInput, "no such file"},
		{"check", cosched.ExitUsage, "requires at least 1 arg"},
		{"--policy " + bad, cosched.ExitData, `there is no class "x"`},
		{"--index x --socket " + r.socket, cosched.ExitUsage, "--index x: two digits"},
		{"--metrics nowhere", cosched.ExitUnavailable, "--metrics nowhere: "},
		{"--publish", cosched.ExitUsage, "NODE_NAME is not set"},
		{"wrong", cosched.ExitUsage, "--help says more"},
		{"--wrong", cosched.ExitUsage, "--help says more"},
		{"topology --socket " + r.socket + "-", cosched.ExitUnavailable, "or give --idle"},
		{"completion perl", cosched.ExitUsage, "perl"},
	} {
		t.Setenv("NODE_NAME", "")
		status, _, stderr := runMain(r.Host, strings.Fields(tc.args)...)
		if status != tc.status || !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%s: status %d, %q; want %d, %s", tc.args, status, stderr, tc.status, tc.says)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if status, stdout, _ := runMain(r.Host, "completion", shell); status != 0 || !strings.Contains(stdout, "cosched-nri") {
			t.Errorf("completion %s: status %d", shell, status)
		}
	}
	if status, stdout, _ := runMain(r.Host, "--help"); status != 0 || !strings.Contains(stdout, "cosched.io/cpus-preferred") {
		t.Errorf("--help: status %d, %s", status, stdout)
	}
}

// On a kernel without the controller the plugin waits.
func TestNoController(t *testing.T) {
	r := newRig(t)
	coschedtest.Replace(t, filepath.Join(r.Cgroup, "cgroup.controllers"), "cpu\n")
	coschedtest.Remove(t, filepath.Join(r.Cgroup, "cosched"))
	ctx, cancel := context.WithCancel(t.Context())
	said := ""
	if err := Serve(ctx, r.Host, r, Options{Socket: r.socket, Index: "90"}, func(_, text string) {
		said += text
		cancel()
	}); err != nil || !strings.Contains(said, "nothing to do") {
		t.Errorf("%v, %q", err, said)
	}
}

// busy is a node with pods in both domains.
func busy(r *rig) {
	r.T.Helper()
	s := r.sandbox("a", m{"cosched.io/cpus-preferred": "llc:0"})
	both := r.sandbox("both", m{"cosched.io/cpus-preferred": "2-5", "cpus-preferred.cosched.io/container.side": "7"})
	for _, s := range []*api.PodSandbox{s, both} {
		if err := r.run(s); err != nil {
			r.T.Fatal(err)
		}
	}
	for _, c := range []struct {
		s     *api.PodSandbox
		name  string
		milli uint64
	}{{s, "main", 1500}, {s, "side", 0}, {both, "main", 2000}, {both, "side", 250}} {
		if _, err := r.container(c.s, c.name, c.milli); err != nil {
			r.T.Fatal(err)
		}
	}
}

// CPUs of a domain that pods request are not free. The command asks the runtime while the plugin runs.
func TestTopology(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	r.startPlugin("")
	busy(r)
	for args, want := range map[string][]string{
		"--json":        {"1500m", "2750m"},
		"--json --idle": {"4", "4"},
	} {
		status, stdout, stderr := runMain(r.Host, append([]string{"topology", "--node", "n1", "--socket", r.socket}, strings.Fields(args)...)...)
		var got NodeResourceTopology
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || status != 0 || stderr != "" {
			t.Fatalf("status %d, %v, %q\n%s", status, err, stderr, stdout)
		}
		if got.Metadata.Name != "n1" || got.Kind != "NodeResourceTopology" || got.APIVersion != "topology.node.k8s.io/v1alpha2" || len(got.Zones) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, z := range got.Zones {
			cpus := []string{"0-3", "4-7"}[i]
			if z.Name != fmt.Sprint("llc-", i) || z.Type != ZoneLLC || z.Parent != fmt.Sprint("node-", i) || z.Attributes[0] != (Attribute{"cpus", cpus}) ||
				z.Resources[0] != (Resource{HomeCPU, "4", "4", want[i]}) {
				t.Errorf("%s: zone %+v, want %s free", args, z, want[i])
			}
		}
	}
	_, stdout, _ := runMain(r.Host, "topology", "--idle", "--node", "n1")
	if !strings.Contains(stdout, "\nmetadata:\n  name: n1\n") {
		t.Errorf("no YAML:\n%s", stdout)
	}
	// Nothing was changed by looking.
	r.is(podCgroup("a"), "0-3; 100 150")
	r.is(containerCgroup("both", "side"), "7; 100 150")
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.startRuntime()
	socket := filepath.Join(r.dir, "metrics.sock")
	old, err := net.Listen("unix", socket) // the socket of a plugin that was killed
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	r.metrics = "unix:" + socket
	r.startPlugin(policyText)
	busy(r)
	r.start("b", m{"cosched.io/weights": "x"}, "main")
	r.start("plain", nil, "main")
	r.policy("x: y\n")
	r.Logged("the previous policy stays in force")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	// Whatever the host is, the connection is to the socket.
	res, err := client.Get((&url.URL{Scheme: "http", Host: "plugin", Path: "/metrics"}).String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !strings.HasSuffix(string(text), "\n# EOF\n") {
		t.Fatalf("%v: %s", err, text)
	}
	for _, line := range []string{
		`cosched_nri_containers{class="annotated"} 4`,
		`cosched_nri_containers{class="auto"} 1`,
		`cosched_nri_containers{class="inherit"} 1`,
		`cosched_nri_home_cpus{namespace="shop",pod="a"} 4`,
		`cosched_nri_refused_total 1`,
		`cosched_nri_synchronizations_total 1`,
		`cosched_nri_policy_reloads_total{valid="yes"} 0`,
		`cosched_nri_policy_reloads_total{valid="no"} 1`,
		`cosched_nri_llc_cpus{llc="0",cpus="0-3"} 4`,
		`cosched_nri_llc_free_cpus{llc="0",cpus="0-3"} 1.5`,
		`cosched_nri_llc_free_cpus{llc="1",cpus="4-7"} 2.75`,
	} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
}

// A file at the path of the metrics socket is replaced only if it is a socket that no process serves.
func TestMetricsSocket(t *testing.T) {
	r := newRig(t)
	file, live := filepath.Join(r.dir, "file"), filepath.Join(r.dir, "live")
	coschedtest.Replace(t, file, "text")
	l, err := net.Listen("unix", live)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, path := range []string{file, live, r.dir} {
		stop, err := r.direct("").listen("unix:" + path)
		if err == nil {
			stop()
		}
		if err == nil || !strings.Contains(err.Error(), path+": bind: address already in use") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
	// The one that serves it was tried, and is rid of the one who did.
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(coschedtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// Pods start while a client asks for metrics and does not read them. The plugin does not wait for
// such a client.
func TestMetricsUnread(t *testing.T) {
	r := newRig(t)
	p := r.direct("")
	s, _ := r.add(p, "a", m{"cosched.io/cpus-preferred": "llc:0"}, 0)
	// More metrics than fit into the buffers of a connection.
	p.pods[s.Id].name = "shop/" + strings.Repeat("x", 16<<20)
	defer func(d time.Duration) { collectorPatience = d }(collectorPatience)
	ask := func(may time.Duration) net.Conn {
		t.Helper()
		collectorPatience = may
		socket := filepath.Join(r.dir, may.String())
		stop, err := p.listen("unix:" + socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		conn, err := net.Dial("unix", socket)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: plugin\r\n\r\n")
		}
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(coschedtest.Patience))
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	if _, err := ask(time.Hour).Read(make([]byte, 1)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		_ = p.RunPodSandbox(t.Context(), r.sandbox("b", m{"cosched.io/cpus-preferred": "llc:1"}))
	}()
	select {
	case <-started:
	case <-time.After(coschedtest.Patience):
		t.Fatal("a pod does not start")
	}
	r.is(podCgroup("b"), "4-7; 100 150")
	conn := ask(50 * time.Millisecond)
	r.Wait("the connection is closed", func() bool {
		_, err := io.WriteString(conn, "\n")
		return errors.Is(err, syscall.EPIPE)
	})
}

// apiServer imitates the part of Kubernetes's API server that the plugin writes to.
type apiServer struct {
	objects map[string]map[string]any
	status  int
	wrote   []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const collection = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
	name, _ := strings.CutPrefix(r.URL.Path, collection)
	say := func(status int, what any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(what)
	}
	object := map[string]any{}
	if r.Method != http.MethodGet {
		s.wrote = append(s.wrote, r.Method)
		_ = json.NewDecoder(r.Body).Decode(&object)
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		say(http.StatusUnauthorized, nil)
	case s.status != 0:
		say(s.status, map[string]string{"message": "because"})
	case r.Method == http.MethodPost && name == "":
		s.objects["/"+object["metadata"].(map[string]any)["name"].(string)] = object
		say(http.StatusCreated, object)
	case s.objects[name] == nil:
		say(http.StatusNotFound, nil)
	case r.Method == http.MethodPut:
		s.objects[name] = object
		say(http.StatusOK, object)
	default:
		say(http.StatusOK, s.objects[name])
	}
}

func TestPublish(t *testing.T) {
	r := newRig(t)
	p := r.direct("")
	server := &apiServer{objects: map[string]map[string]any{}}
	https := httptest.NewTLSServer(server)
	defer https.Close()
	account := t.TempDir()
	at, err := url.Parse(https.URL)
	if err != nil {
		t.Fatal(err)
	}
	env := m{}
	getenv := func(name string) string { return env[name] }
	if _, err := NewPublisher("n1", getenv, account); err == nil {
		t.Error("there is no server")
	}
	env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = at.Hostname(), at.Port()
	if _, err := NewPublisher("n1", getenv, account); err == nil {
		t.Error("there is no certificate")
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	coschedtest.Replace(t, filepath.Join(account, "ca.crt"), string(ca))
	coschedtest.Replace(t, filepath.Join(account, "token"), "secret\n")
	publisher, err := NewPublisher("n1", getenv, account)
	if err != nil {
		t.Fatal(err)
	}
	publish := func() error {
		topology, err := p.Topology("n1")
		if err != nil {
			t.Fatal(err)
		}
		return publisher.Publish(t.Context(), topology)
	}
	zones := func() string {
		var names []string
		for _, z := range server.objects["/n1"]["zones"].([]any) {
			zone := z.(map[string]any)
			name := zone["name"].(string)
			if r, ok := zone["resources"].([]any); ok {
				name += "=" + r[0].(map[string]any)["available"].(string)
			}
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	step := func(wrote, want string) {
		t.Helper()
		server.wrote = nil
		if err := publish(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(server.wrote, " "); got != wrote || zones() != want {
			t.Errorf("wrote %q, %s; want %q, %s", got, zones(), wrote, want)
		}
	}
	step("POST", "llc-0=4 llc-1=4")
	step("", "llc-0=4 llc-1=4")
	r.add(p, "a", m{"cosched.io/cpus-preferred": "llc:1"}, 500)
	step("PUT", "llc-0=4 llc-1=3500m")
	// The zones of other publishers are kept.
	server.objects["/n1"]["zones"] = []any{map[string]any{"name": "node-0", "type": "Node"}, map[string]any{"name": "llc-7", "type": "LLC"}}
	server.objects["/n1"]["attributes"] = "x"
	step("PUT", "node-0 llc-0=4 llc-1=3500m")
	if server.objects["/n1"]["attributes"] != "x" {
		t.Errorf("%v", server.objects["/n1"])
	}
	for status, want := range map[int]string{
		http.StatusForbidden: "403: because: give the service account the rights",
		http.StatusConflict:  "409: because",
	} {
		server.status = status
		if err := publish(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// The token has been replaced.
	server.status = 0
	if err := os.WriteFile(filepath.Join(account, "token"), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v", err)
	}
}

// The files for installation in the repository are valid, and use only options that the plugin has.
func TestContrib(t *testing.T) {
	const dir = "../../../../contrib/kubernetes"
	p, err := ReadPolicy(coschedtest.Host(t), filepath.Join(dir, "base/policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if class, _ := p.Of("cosched", nil); class != ClassInherit {
		t.Errorf("the plugin's own pods are of class %s", class)
	}
	var daemon struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args         []string
						VolumeMounts []struct{ MountPath string }
					}
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "base/daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, set, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.Unmarshal([]byte(set), &daemon); err != nil {
		t.Fatal(err)
	}
	c := daemon.Spec.Template.Spec.Containers[0]
	cmd := Command(coschedtest.Host(t), io.Discard)
	if err := cmd.ParseFlags(append(c.Args, "--publish")); err != nil {
		t.Error(err)
	}
	for _, need := range []string{cmd.Flag("policy").Value.String(), cmd.Flag("socket").Value.String(), cosched.ThisHost().Cgroup + "/x"} {
		found := false
		for _, m := range c.VolumeMounts {
			found = found || m.MountPath == filepath.Dir(need)
		}
		if !found {
			t.Errorf("%s is not in a volume", need)
		}
	}
}
