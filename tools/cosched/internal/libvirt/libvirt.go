// Package libvirt gives the vCPUs of libvirt's QEMU domains the home that the metadata in
// the domain's XML asks for.
package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cosched.io/cosched"
)

// Namespace is the XML namespace of the element in a domain's metadata. It is a name to compare, and
// locates nothing.
const Namespace = "urn:cosched:libvirt:1"

// maxXML bounds a domain's XML. The XML of a domain with hundreds of devices has some 100
// KiB.
const maxXML = 4 << 20

// Wish is what a domain asks for; a nil field is not asked for.
type Wish struct {
	Home, Emulator, IOThread *cosched.Home
	Weights                  *cosched.Weights
	// Fail says that the domain is not to start if the wish cannot be granted.
	Fail bool
}

// domain is the part of a domain's XML that matters here.
type domain struct {
	XMLName  xml.Name `xml:"domain"`
	Metadata struct {
		Wishes []struct {
			Attributes []xml.Attr `xml:",any,attr"`
		} `xml:"urn:cosched:libvirt:1 vm"`
	} `xml:"metadata"`
}

// Parse reads a domain's XML. It returns nil for a domain that asks for nothing.
func Parse(h cosched.Host, r io.Reader) (*Wish, error) {
	limit := &io.LimitedReader{R: r, N: maxXML + 1}
	var d domain
	if err := xml.NewDecoder(limit).Decode(&d); err != nil {
		if limit.N == 0 {
			err = fmt.Errorf("longer than %d bytes", maxXML)
		}
		return nil, data(nil, "the domain's XML: %v", err)
	}
	switch len(d.Metadata.Wishes) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, data(nil, "the domain's metadata has %d elements vm of %s: one is enough", len(d.Metadata.Wishes), Namespace)
	}
	var w Wish
	var wrong error
	for _, a := range d.Metadata.Wishes[0].Attributes {
		if a.Name.Space == "xmlns" || a.Name.Local == "xmlns" {
			continue
		}
		if err := w.set(h, a.Name.Local, a.Value); err != nil && wrong == nil {
			wrong = data(err, "the domain's metadata: %s=%q: %v", a.Name.Local, a.Value, err)
		}
	}
	// The wish is returned even if an attribute is wrong: it says whether the domain is to
	// fail.
	return &w, wrong
}

func (w *Wish) set(h cosched.Host, name, value string) error {
	homes := map[string]**cosched.Home{"home": &w.Home, "emulator-home": &w.Emulator, "iothread-home": &w.IOThread}
	switch at, isHome := homes[name]; {
	case isHome:
		home, err := h.ParseHome(value)
		if err == nil {
			*at = &home
		}
		return err
	case name == "weights":
		weights, err := cosched.ParseWeights(strings.Replace(value, ":", " ", 1))
		if err != nil {
			return errors.New("weights are two integers from 1 to 10000, as 100:150")
		}
		w.Weights = &weights
	case name == "fail" && (value == "yes" || value == "no"):
		w.Fail = value == "yes"
	case name == "fail":
		return errors.New("want yes or no")
	default:
		return errors.New("no such attribute: there are home, weights, emulator-home, iothread-home and fail")
	}
	return nil
}

func data(err error, format string, args ...any) error {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	return &cosched.Problem{Status: cosched.ExitData, Text: text, Err: err}
}

// Apply gives a running domain what it asks for. The notes say where it gets less than
// that.
//
// libvirt makes a cgroup for each vCPU, beside those of the emulator and of the I/O
// threads, and the cgroup of each vCPU gets the home. A home that the kernel chooses has to
// be one home for all vCPUs. So it can only be that of the cgroup above, and the other
// threads have it too.
func Apply(h cosched.Host, name string, w *Wish) (notes []string, err error) {
	parent, err := groupOf(h, name)
	if err != nil {
		return nil, err
	}
	vcpus, err := parts(parent, "vcpu")
	if err != nil {
		return nil, err
	}
	if len(vcpus) == 0 {
		return nil, &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("%s has no cgroup vcpu0: libvirt makes them where it may use the controller cpu or cpuset (cgroup_controllers in qemu.conf)", parent)}
	}
	iothreads, err := parts(parent, "iothread")
	if err != nil {
		return nil, err
	}
	give := func(home *cosched.Home, weights *cosched.Weights, to ...cosched.Group) {
		if home == nil && weights == nil {
			return
		}
		// Set weights first: a change that follows the change of a home within a grace
		// period of RCU has to wait for the end of that period, and the domain would wait
		// too.
		for _, g := range to {
			if err != nil {
				return
			}
			if _, err = h.Existing(string(g), true); err == nil && weights != nil {
				err = h.SetWeights(g, weights)
			}
		}
		for _, g := range to {
			if err != nil || home == nil {
				return
			}
			var note string
			// A home that is of no use now may be of use later.
			if note, err = h.SetHome(g, *home, true); note != "" {
				notes = append(notes, note)
			}
		}
	}
	if w.Home != nil && w.Home.Value == "auto" {
		give(w.Home, w.Weights, parent)
	} else {
		give(w.Home, w.Weights, vcpus...)
	}
	give(w.Emulator, nil, cosched.Group(filepath.Join(string(parent), "emulator")))
	give(w.IOThread, nil, iothreads...)
	return notes, err
}

// groupOf returns the cgroup above those of a running domain's threads. It is found through
// the process, because its path depends on systemd, on the domain's partition and on how
// names are escaped.
func groupOf(h cosched.Host, name string) (cosched.Group, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00\n") {
		return "", &cosched.Problem{Status: cosched.ExitUsage, Text: fmt.Sprintf("%q is not the name of a domain", name)}
	}
	file := filepath.Join(h.Run, "libvirt/qemu", name+".pid")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", &cosched.Problem{Status: cosched.ExitNoInput, Text: fmt.Sprintf("%v: does the domain run?", err), Err: err}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 1 {
		return "", data(err, "%s: %q is not the number of a process", file, strings.TrimSpace(string(text)))
	}
	g, err := h.CgroupOf(pid)
	if err != nil {
		return "", &cosched.Problem{Status: cosched.ExitNoInput, Text: err.Error(), Err: err}
	}
	if filepath.Base(string(g)) != "emulator" {
		return "", &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("process %d of domain %s is in %s, not in a cgroup emulator as libvirt makes it", pid, name, g)}
	}
	return cosched.Group(filepath.Dir(string(g))), nil
}

// parts lists the cgroups with a prefix and a number: vcpu0 and so on.
func parts(parent cosched.Group, prefix string) (list []cosched.Group, err error) {
	all, err := filepath.Glob(filepath.Join(escape(string(parent)), prefix+"*"))
	for _, path := range all {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), prefix)); err == nil && n >= 0 {
			list = append(list, cosched.Group(path))
		}
	}
	slices.Sort(list)
	return list, err
}

// escape turns a path into a pattern that matches only this path: scopes of systemd have
// backslashes in their names.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
