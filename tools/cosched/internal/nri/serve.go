package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/fsnotify/fsnotify"

	"cosched.io/cosched"
)

// pluginName is the name of the plugin for the runtime, and in the annotation
// required-plugins.noderesource.dev.
const pluginName = "cosched"

// Options are the options of the command.
type Options struct {
	Policy  string // a file, or ""
	Socket  string
	Index   string
	Metrics string // HOST:PORT or unix:PATH, or ""
	Publish string // the node's name, or ""
}

const (
	// How long to wait before connecting to the runtime again: first for a short time, as pods may
	// start as soon as the runtime is restarted, then longer and longer, as there may be no runtime.
	retryFirst = 100 * time.Millisecond
	retryLast  = 10 * time.Second
	// checkEvery bounds how long it takes until a home that is given by name follows CPUs that come
	// online, and how long a value that another program wrote stays.
	checkEvery = time.Minute
	// publishEvery bounds the age of the information that schedulers have. It is the interval of
	// the other publisher of these objects, node feature discovery, which removes the zones of this
	// plugin each time.
	publishEvery = time.Minute
	// lastWord is how long to wait before closing a connection after the last answer. The runtime
	// reports an error if a plugin closes before its answer has been sent.
	lastWord = 100 * time.Millisecond
)

// collectorPatience is how long a client that collects metrics may take to send its request and to
// read the answer. It is the default timeout of Prometheus. It is a variable for tests.
var collectorPatience = 10 * time.Second

// nriLog takes the messages of NRI's own code, but only warnings and errors.
type nriLog struct{ log Log }

func (nriLog) Debugf(context.Context, string, ...any) {}
func (nriLog) Infof(context.Context, string, ...any)  {}
func (l nriLog) Warnf(_ context.Context, format string, args ...any) {
	l.log("", cosched.Printable(fmt.Sprintf(format, args...)))
}
func (l nriLog) Errorf(ctx context.Context, format string, args ...any) {
	l.Warnf(ctx, format, args...)
}

// Serve works until the context ends.
func Serve(ctx context.Context, h cosched.Host, tree Tree, o Options, log Log) error {
	policy, err := ReadPolicy(h, o.Policy)
	if err != nil {
		return err
	}
	if err := h.HasController(); err != nil {
		// If the plugin ended, it would be started again and again.
		log("", err.Error()+": nothing to do")
		<-ctx.Done()
		return nil
	}
	p := New(h, tree, policy, log)
	if o.Metrics != "" {
		stop, err := p.listen(o.Metrics)
		if err != nil {
			return err
		}
		defer stop()
	}
	var publisher *Publisher
	if o.Publish != "" {
		if publisher, err = NewPublisher(o.Publish, os.Getenv, serviceAccount); err != nil {
			return err
		}
	}
	if o.Policy != "" {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			err = w.Add(filepath.Dir(o.Policy))
		}
		if err != nil {
			return fail(cosched.ExitUnavailable, err, "inotify: %s: %v", filepath.Dir(o.Policy), err)
		}
		defer w.Close()
		go p.watch(ctx, w, o.Policy, policy.text)
	}
	go p.tick(ctx, publisher, o.Publish)
	return p.connect(ctx, o)
}

// session is one connection to a runtime.
type session struct {
	*Plugin
	runtime                  string
	configured, synchronized context.Context // done when the runtime has made these calls
	configure, synchronize   func()
}

// Configure is the runtime's first call.
func (s *session) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	s.runtime = runtime + " " + version
	s.configure()
	return 0, nil // 0: all events for which there are methods
}

// Synchronize is the runtime's second call.
func (s *session) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer s.synchronize()
	s.log("", cosched.Printable(fmt.Sprintf("connected to %s with %d pods", s.runtime, len(pods))))
	return s.Plugin.Synchronize(ctx, pods, containers)
}

// newSession connects to the runtime.
func (p *Plugin) newSession(o Options, name string) (*session, func(context.Context) error, error) {
	if err := api.CheckPluginIndex(o.Index); err != nil {
		return nil, nil, fail(cosched.ExitUsage, err, "--index %s: two digits, as 90", o.Index)
	}
	s := &session{Plugin: p}
	s.configured, s.configure = context.WithCancel(context.Background())
	s.synchronized, s.synchronize = context.WithCancel(context.Background())
	conn, err := net.Dial("unix", o.Socket)
	if err != nil {
		return nil, nil, err
	}
	stub, err := stub.New(s, stub.WithPluginName(name), stub.WithPluginIdx(o.Index), stub.WithConnection(conn),
		stub.WithLogger(nriLog{p.log}), stub.WithOnClose(func() {}))
	if err != nil {
		conn.Close()
		return nil, nil, fail(cosched.ExitUsage, err, "%v", err)
	}
	return s, func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- stub.Run(ctx) }()
		// If the runtime ends before it has configured the plugin, the stub waits for ever.
		select {
		case err := <-ended:
			return err
		case <-s.configured.Done():
			return <-ended
		case <-time.After(2 * api.DefaultPluginRegistrationTimeout):
			conn.Close()
			return errors.New("the runtime does not answer")
		}
	}, nil
}

// connect keeps up a connection to the runtime, until the context ends.
func (p *Plugin) connect(ctx context.Context, o Options) error {
	wait, said := retryFirst, ""
	for {
		s, run, err := p.newSession(o, pluginName)
		if problem := (*cosched.Problem)(nil); errors.As(err, &problem) {
			return err
		}
		if err == nil {
			err = run(ctx)
			select {
			case <-s.synchronized.Done():
				wait, said = retryFirst, ""
				err = errors.New("the connection was closed")
			default:
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		text := fmt.Sprintf("%s: %v: connecting again", o.Socket, err)
		if errors.Is(err, os.ErrNotExist) {
			text = fmt.Sprintf("%s: %v: waiting for a runtime with NRI enabled", o.Socket, os.ErrNotExist)
		}
		if text != said {
			p.log("", cosched.Printable(strings.ReplaceAll(text, "\n", " ")))
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, retryLast)
	}
}

// watch reads the policy again when it changes. Kubernetes changes a file of a ConfigMap by pointing
// a link in its directory to another directory. Last is the text of the policy in force.
func (p *Plugin) watch(ctx context.Context, w *fsnotify.Watcher, file, last string) {
	for {
		text, err := os.ReadFile(file)
		// If the file cannot be read, it is just being renamed, and if it is empty, it is being
		// written. In both cases another event follows.
		if err == nil && len(text) > 0 && string(text) != last {
			last = string(text)
			p.reload(file)
		}
		select {
		case <-ctx.Done():
			return
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			p.log("", fmt.Sprintf("inotify: %v", err))
		case _, ok := <-w.Events:
			if !ok {
				return
			}
		}
	}
}

func (p *Plugin) reload(file string) {
	policy, err := ReadPolicy(p.host, file)
	if err != nil {
		p.RejectPolicy()
		p.log("", err.Error()+": the previous policy stays in force")
		return
	}
	p.SetPolicy(policy)
	p.log("", file+": this policy is now in force")
}

func (p *Plugin) tick(ctx context.Context, publisher *Publisher, node string) {
	check, publish := time.NewTicker(checkEvery), time.NewTicker(publishEvery)
	defer check.Stop()
	defer publish.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			p.Check()
		case <-publish.C:
			if publisher == nil {
				continue
			}
			t, err := p.Topology(node)
			if err == nil {
				err = publisher.Publish(ctx, t)
			}
			text := ""
			if err != nil {
				text = cosched.Printable(err.Error())
			}
			if text != said && text != "" {
				p.log("", text)
			}
			said = text
		}
	}
}

// listen serves the metrics.
func (p *Plugin) listen(at string) (stop func(), err error) {
	network, address := "tcp", at
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		network, address = "unix", path
		removeStale(path)
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fail(cosched.ExitUnavailable, err, "--metrics %s: %v: give HOST:PORT or unix:PATH", at, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		_, _ = w.Write(p.OpenMetrics())
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: collectorPatience, WriteTimeout: collectorPatience}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }, nil
}

// removeStale removes the socket of a plugin that was killed. If the name belongs to anything else,
// or to a socket that a program serves, it is kept, and net.Listen fails.
func removeStale(path string) {
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != os.ModeSocket {
		return
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// Look asks the runtime once which pods run. It changes nothing.
func Look(ctx context.Context, h cosched.Host, o Options) (*Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*api.DefaultPluginRegistrationTimeout)
	defer cancel()
	p := New(h, nothing{}, &Policy{Default: ClassInherit}, func(string, string) {})
	s, run, err := p.newSession(o, pluginName+"-topology")
	if err == nil {
		go func() {
			<-s.synchronized.Done()
			time.Sleep(lastWord)
			cancel()
		}()
		err = run(ctx)
		select {
		case <-s.synchronized.Done():
			return p, nil
		default:
		}
	}
	return nil, fail(cosched.ExitUnavailable, err, "%s: %v: start containerd or CRI-O, with NRI enabled, and be root; or give --idle", o.Socket, err)
}

// nothing is a Tree that cannot be written to.
type nothing struct{}

func (nothing) Existing(string, bool) (cosched.Group, error) { return "", os.ErrNotExist }
func (nothing) SetHome(cosched.Group, cosched.Home, bool) (string, error) {
	return "", os.ErrNotExist
}
func (nothing) SetWeights(cosched.Group, *cosched.Weights) error { return os.ErrNotExist }
