package libvirt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/coschedtest"
)

func recorded(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/domain.xml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const ours = `xmlns:cosched="` + Namespace + `"`

func TestParse(t *testing.T) {
	h := coschedtest.Host(t)
	w, err := Parse(h, strings.NewReader(recorded(t)))
	if err != nil || w == nil || w.Home.Value != "4-7" || *w.Weights != (cosched.Weights{Preferred: 4, Allowed: 1000}) ||
		w.Emulator.Value != "0-3" || w.IOThread.Value != "2" || w.Fail {
		t.Errorf("%+v, %v", w, err)
	}
	in := func(metadata string) string {
		return "<domain><name>x</name><metadata>" + metadata + "</metadata></domain>"
	}
	for _, tc := range []struct {
		name, xml, says string
		none, fail      bool
	}{
		{"nothing", "<domain><name>x</name></domain>", "", true, false},
		{"somebody else's", in(`<vm xmlns="urn:x" home="llc:9"/>`), "", true, false},
		{"elsewhere", "<domain><devices><cosched:vm " + ours + ` home="llc:9"/></devices></domain>`, "", true, false},
		{"as default namespace", in(`<vm xmlns="` + Namespace + `" home="auto" fail="yes"/>`), "", false, true},
		{"no such domain", in("<cosched:vm " + ours + ` fail="yes" home="llc:9"/>`), `home="llc:9": home "llc:9": this machine has no llc 9`, false, true},
		{"fails although it comes later", in("<cosched:vm " + ours + ` home="x" fail="yes"/>`), `home="x": `, false, true},
		{"weights", in("<cosched:vm " + ours + ` weights="0:1"/>`), "two integers from 1 to 10000", false, false},
		{"fail", in("<cosched:vm " + ours + ` fail="perhaps"/>`), "want yes or no", false, false},
		{"a word too many", in("<cosched:vm " + ours + ` Home="1"/>`), "no such attribute: there are home, weights", false, false},
		{"twice", in("<cosched:vm " + ours + "/><cosched:vm " + ours + "/>"), "has 2 elements vm", true, false},
		{"cut off", recorded(t)[:700], "the domain's XML: XML syntax error", true, false},
		{"another document", "<network/>", "expected element type <domain>", true, false},
		{"empty", "", "the domain's XML: EOF", true, false},
		{"endless", "<domain>" + strings.Repeat("<a/>", maxXML/4), "longer than 4194304 bytes", true, false},
	} {
		w, err := Parse(h, strings.NewReader(tc.xml))
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
		if (w == nil) != tc.none || w != nil && w.Fail != tc.fail {
			t.Errorf("%s: %+v", tc.name, w)
		}
	}
}

// Whatever the XML is, the result is a wish or an error of one line.
func FuzzParse(f *testing.F) {
	f.Add(recorded(f))
	f.Add("<domain><metadata><vm xmlns='" + Namespace + "' home='0-3,8' weights='1:1' fail='no' a='&#10;'/></metadata></domain>")
	f.Add("<!DOCTYPE domain [<!ENTITY a 'b'>]><domain><metadata>&a;</metadata></domain>")
	h := coschedtest.Host(f)
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse(h, strings.NewReader(text))
		var p *cosched.Problem
		if err != nil && (!errors.As(err, &p) || strings.Contains(p.Text, "\n")) {
			t.Errorf("%q", err)
		}
	})
}

// tree makes the cgroups that libvirt 11 makes with systemd, and returns the one above
// them.
func tree(t *testing.T, h cosched.Host, parts ...string) string {
	t.Helper()
	const scope = `machine.slice/machine-qemu\x2d1\x2dshop.scope/libvirt`
	for _, part := range parts {
		dir := filepath.Join(h.Cgroup, scope, part)
		coschedtest.Append(t, filepath.Join(dir, "cgroup.type"), "threaded\n")
		for _, file := range []string{cosched.FilePreferred, cosched.FileEffective, cosched.FileWeights} {
			coschedtest.Append(t, filepath.Join(dir, file), "")
		}
	}
	coschedtest.Append(t, filepath.Join(h.Cgroup, scope, cosched.FilePreferred), "")
	coschedtest.Append(t, filepath.Join(h.Cgroup, scope, cosched.FileWeights), "")
	coschedtest.Append(t, filepath.Join(h.Run, "libvirt/qemu/shop.pid"), "4711")
	coschedtest.Append(t, filepath.Join(h.Proc, "4711/cgroup"), "0::/"+scope+"/emulator\n")
	return filepath.Join(h.Cgroup, scope)
}

func TestApply(t *testing.T) {
	for _, tc := range []struct {
		home string
		want map[string]string
	}{
		{"llc:1", map[string]string{"vcpu0": "4-7", "vcpu1": "4-7", "vcpu10": "4-7", ".": "", "emulator": "0-1", "iothread1": "3", "vcpux": ""}},
		// One home for all threads of the domain.
		{"auto", map[string]string{"vcpu0": "", "vcpu1": "", ".": "auto", "emulator": "0-1", "iothread1": "3"}},
	} {
		h := coschedtest.Host(t)
		dir := tree(t, h, "emulator", "iothread1", "vcpu0", "vcpu1", "vcpu10", "vcpux")
		w, err := Parse(h, strings.NewReader(fmt.Sprintf(`<domain><metadata><cosched:vm %s home="%s" weights="7:8" emulator-home="0-1" iothread-home="3"/></metadata></domain>`, ours, tc.home)))
		if err != nil {
			t.Fatal(err)
		}
		if notes, err := Apply(h, "shop", w); err != nil || len(notes) > 0 {
			t.Errorf("%s: %q, %v", tc.home, notes, err)
		}
		for part, home := range tc.want {
			got, err := os.ReadFile(filepath.Join(dir, part, cosched.FilePreferred))
			weights, _ := os.ReadFile(filepath.Join(dir, part, cosched.FileWeights))
			wantWeights := ""
			if home == "4-7" || home == "auto" {
				wantWeights = "7 8"
			}
			if err != nil || strings.TrimSpace(string(got)) != home || strings.TrimSpace(string(weights)) != wantWeights {
				t.Errorf("%s: %s has %q and weights %q, %v; want %q", tc.home, part, got, weights, err, home)
			}
		}
	}
}

// Weights are written before the first home: after it, they would wait for the kernel.
func TestWeightsFirst(t *testing.T) {
	h := coschedtest.Host(t)
	dir := tree(t, h, "emulator", "vcpu0", "vcpu1")
	// The file for the weights of the last vCPU is missing.
	coschedtest.Remove(t, filepath.Join(dir, "vcpu1", cosched.FileWeights))
	w := &Wish{Home: &cosched.Home{Value: "4-7", CPUs: cosched.CPUs{4, 5, 6, 7}}, Weights: &cosched.Weights{Preferred: 7, Allowed: 8}}
	_, err := Apply(h, "shop", w)
	if home, _ := os.ReadFile(filepath.Join(dir, "vcpu0", cosched.FilePreferred)); err == nil || strings.TrimSpace(string(home)) != "" {
		t.Errorf("the first vCPU has the home %q before the last one has weights, %v", home, err)
	}
}

func TestApplyRefused(t *testing.T) {
	home := cosched.Home{Value: "9", CPUs: cosched.CPUs{9}}
	for _, tc := range []struct {
		name   string
		change func(h cosched.Host, dir string) string // gives the name
		status int
		says   string
	}{
		{"not running", func(cosched.Host, string) string { return "other" }, cosched.ExitNoInput, "other.pid: no such file or directory: does the domain run?"},
		{"no name", func(cosched.Host, string) string { return "../qemu/shop" }, cosched.ExitUsage, "is not the name of a domain"},
		{"no number", func(h cosched.Host, _ string) string {
			coschedtest.Replace(t, filepath.Join(h.Run, "libvirt/qemu/shop.pid"), "-1\n")
			return "shop"
		}, cosched.ExitData, `shop.pid: "-1" is not the number`},
		{"exited", func(h cosched.Host, _ string) string {
			coschedtest.Replace(t, filepath.Join(h.Run, "libvirt/qemu/shop.pid"), "4712\n")
			return "shop"
		}, cosched.ExitNoInput, "4712/cgroup: no such file"},
		{"no cgroups", func(h cosched.Host, _ string) string {
			coschedtest.Replace(t, filepath.Join(h.Proc, "4711/cgroup"), "0::/system.slice/libvirtd.service\n")
			return "shop"
		}, cosched.ExitUnavailable, "not in a cgroup emulator"},
		{"no vCPUs'", func(_ cosched.Host, dir string) string {
			coschedtest.Remove(t, filepath.Join(dir, "vcpu0"))
			return "shop"
		}, cosched.ExitUnavailable, "has no cgroup vcpu0"},
	} {
		h := coschedtest.Host(t)
		dir := tree(t, h, "emulator", "vcpu0")
		_, err := Apply(h, tc.change(h, dir), &Wish{Home: &home})
		var p *cosched.Problem
		if !errors.As(err, &p) || p.Status != tc.status || !strings.Contains(p.Text, tc.says) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
	// CPUs that may come online later.
	h := coschedtest.Host(t)
	tree(t, h, "emulator", "vcpu0")
	if notes, err := Apply(h, "shop", &Wish{Home: &home}); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "none of these CPUs is in") {
		t.Errorf("%q, %v", notes, err)
	}
}
