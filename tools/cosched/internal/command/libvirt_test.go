package command

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
	"cosched.io/cosched/internal/libvirt"
)

// The domain starts unless its XML says fail="yes". Nothing is done before it has started.
func TestLibvirtHook(t *testing.T) {
	const element = `<domain><metadata><c:vm xmlns:c="` + libvirt.Namespace + `" home="4-5" weights="1:2" `
	for _, tc := range []struct {
		name, operation, xml string
		status               int
		says, home           string
	}{
		{"started", "started", element + "/></metadata></domain>", 0, "", "4-5"},
		{"libvirt restarted", "reconnect", element + "/></metadata></domain>", 0, "", "4-5"},
		{"not yet", "prepare", "no XML", 0, "", ""},
		{"ended", "release", element + "/></metadata></domain>", 0, "", ""},
		{"asks for nothing", "started", "<domain/>", 0, "", ""},
		{"wrong", "started", element + `x="1"/></metadata></domain>`, 0, `cosched libvirt-hook: shop: the domain's metadata: x="1": no such attribute`, ""},
		{"wrong, must not start", "started", element + `x="1" fail="yes"/></metadata></domain>`, cosched.ExitData, `cosched libvirt-hook: the domain's metadata: x="1": no such attribute`, ""},
		{"damaged", "started", "<domain>", 0, "cosched libvirt-hook: shop: the domain's XML: ", ""},
	} {
		h := coschedtest.Host(t)
		dir := filepath.Join(h.Cgroup, "cosched/night/libvirt")
		for _, part := range []string{"emulator", "vcpu0"} {
			coschedtest.Append(t, filepath.Join(dir, part, cosched.FilePreferred), "")
			coschedtest.Append(t, filepath.Join(dir, part, cosched.FileWeights), "")
		}
		coschedtest.Append(t, filepath.Join(h.Run, "libvirt/qemu/shop.pid"), "4711\n")
		coschedtest.Append(t, filepath.Join(h.Proc, "4711/cgroup"), "0::/cosched/night/libvirt/emulator\n")
		h.Syslog = filepath.Join(h.Run, "log")
		log, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: h.Syslog})
		if err != nil {
			t.Fatal(err)
		}
		root := New(h)
		var errs bytes.Buffer
		root.SetIn(strings.NewReader(tc.xml))
		status := mainOf(root, []string{"libvirt-hook", "shop", tc.operation, "begin", "-"}, &bytes.Buffer{}, &errs)
		if status != tc.status || !strings.HasPrefix(errs.String(), tc.says) || (tc.says == "") != (errs.Len() == 0) || strings.Count(errs.String(), "\n") > 1 {
			t.Errorf("%s: %d, %s", tc.name, status, &errs)
		}
		if got, err := cosched.Group(filepath.Join(dir, "vcpu0")).Preferred(); err != nil || got.String() != tc.home {
			t.Errorf("%s: home %q, %v; want %q", tc.name, got, err, tc.home)
		}
		// An error that does not stop the domain is in the system log, as libvirt does not show it.
		_, says, _ := strings.Cut(tc.says, ": ")
		logged, patience := tc.says != "" && tc.status == 0, time.Millisecond
		if logged {
			patience = 10 * time.Second
		}
		if err := log.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		var text [500]byte
		n, _ := log.Read(text[:])
		if logged != (n > 0) || !strings.Contains(string(text[:n]), "cosched-libvirt-hook") && n > 0 || logged && !strings.Contains(string(text[:n]), says) {
			t.Errorf("%s: logged %q, want %q", tc.name, text[:n], says)
		}
		log.Close()
	}
}
