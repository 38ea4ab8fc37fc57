//go:build !amd64

package detect

import (
	"context"
	"errors"
	"time"
)

// Collector works on x86-64 only.
type Collector struct{}

// Open returns an error that says so.
func Open(float64, bool) (*Collector, error) {
	return nil, errors.New("cosched detect knows the registers and the system calls of x86-64 only")
}

func (*Collector) Close()                                                            {}
func (*Collector) Observe(func() ([]int, error)) error                               { return nil }
func (*Collector) ObserveChildren() error                                            { return nil }
func (*Collector) Unwatched() []string                                               { return nil }
func (*Collector) Run(context.Context, time.Duration, func(*Sample, Overhead)) error { return nil }
