package nri

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"cosched.io/cosched"
)

// serviceAccount is where Kubernetes puts the credentials of a pod for the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Publisher writes a node's topology to the API server. It does not use the client library of
// Kubernetes, which would be most of the program for a single object.
type Publisher struct {
	collection, url string // URL of the objects of all nodes, and of this node's object
	token           string // the token's file, which is replaced before the token expires
	client          *http.Client
}

// NewPublisher makes a Publisher for a plugin that runs in a pod on the node.
func NewPublisher(node string, getenv func(string) string, account string) (*Publisher, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fail(cosched.ExitUnavailable, nil, "--publish: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this in a pod")
	}
	file := filepath.Join(account, "ca.crt")
	ca, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(cosched.ExitUnavailable, err, "--publish: %v: give the pod a service account, with automountServiceAccountToken: true", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fail(cosched.ExitData, nil, "--publish: %s: no certificate", file)
	}
	server := url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
	collection := server.JoinPath("apis", topologyGroup, topologyVersion, "noderesourcetopologies")
	return &Publisher{
		collection: collection.String(), url: collection.JoinPath(url.PathEscape(node)).String(),
		token: filepath.Join(account, "token"),
		client: &http.Client{
			Timeout:   10 * time.Second, // a sixth of the time between two publications
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Proxy: nil},
		},
	}, nil
}

// Publish makes the object, or changes its zones. If another client changes it at the same time,
// the server refuses, and the next call tries again.
func (p *Publisher) Publish(ctx context.Context, t *NodeResourceTopology) error {
	status, text, err := p.do(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	var send any = t
	method, to := http.MethodPost, p.collection
	switch status {
	case http.StatusNotFound:
	case http.StatusOK:
		object := map[string]any{}
		if err := json.Unmarshal(text, &object); err != nil {
			return fmt.Errorf("%s: %w", p.url, err)
		}
		changed, err := t.merge(object)
		if err != nil || !changed {
			return err
		}
		send, method, to = object, http.MethodPut, p.url
	default:
		return answer(http.MethodGet, p.url, status, text)
	}
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	if status, text, err = p.do(ctx, method, to, body); err == nil && status != http.StatusOK && status != http.StatusCreated {
		err = answer(method, to, status, text)
	}
	return err
}

// maxAnswer bounds an answer. etcd does not store larger objects.
const maxAnswer = 1 << 21

func (p *Publisher) do(ctx context.Context, method, to string, body []byte) (status int, text []byte, err error) {
	token, err := os.ReadFile(p.token)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, text, err
}

// answer gives an error for a request that the server has refused.
func answer(method, to string, code int, text []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(code)
	}
	hint := ""
	switch code {
	case http.StatusForbidden:
		hint = ": give the service account the rights in contrib/kubernetes/topology"
	case http.StatusNotFound:
		hint = ": install the CustomResourceDefinition NodeResourceTopology"
	}
	return fmt.Errorf("%s %s: %d: %.300s%s", method, to, code, status.Message, hint)
}
