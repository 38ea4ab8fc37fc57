// Package topology has the names that the balloons policy uses of a package of the same
// name. That one is a module of its own, within nri-plugins and of no version, so that it
// cannot be fetched. It finds the CPUs near a device; here no device is near any CPU.
package topology

import "errors"

// Hint is where a device is.
type Hint struct {
	Provider, CPUs, NUMAs, Sockets string
}

// Hints are those of devices, by the path in sysfs.
type Hints map[string]Hint

// Logger takes what is found of devices.
type Logger interface {
	Debugf(format string, args ...any)
}

// SetLogger does nothing, as there is nothing to tell.
func SetLogger(Logger) {}

// SetSysRoot does nothing, as nothing is looked for.
func SetSysRoot(string) {}

var errUnknown = errors.New("devices are not looked for")

// FindSysFsDevice finds no device.
func FindSysFsDevice(string) (string, error) { return "", errUnknown }

// FindGivenSysFsDevice finds no device.
func FindGivenSysFsDevice(string, int64, int64) (string, error) { return "", errUnknown }

// NewTopologyHints knows of no device where it is.
func NewTopologyHints(string) (Hints, error) { return nil, errUnknown }

// MergeTopologyHints gives the hints of both.
func MergeTopologyHints(a, b Hints) Hints {
	if a == nil {
		a = Hints{}
	}
	for path, h := range b {
		a[path] = h
	}
	return a
}
