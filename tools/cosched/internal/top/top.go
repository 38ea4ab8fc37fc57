// Package top is the terminal view of cosched top and of cosched replay.
package top

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
)

// Source provides the intervals that are shown.
type Source interface {
	// Title says in a few words what is shown.
	Title() string
	// Position says where in the source the view is or, for a live source, how often it reads.
	Position() string
	// Step gives the interval that is n steps further on, or back if n is negative. A source
	// that is not kept gives the next interval for any n. At either end Step gives nil, and the
	// view does not change.
	Step(n int) (*sample.Interval, error)
	// Load fills in the load of a cluster in the last interval, if Step has left it out.
	Load(u *sample.Use) error
	// Wait is the time until the next step; 0 if there is no next step.
	Wait() time.Duration
	// Pace makes the source faster or slower, within its limits.
	Pace(faster bool)
	// Kept reports whether the view can go back.
	Kept() bool
}

// Options are the settings that the view begins with.
type Options struct {
	Filter  string
	Order   int // index in sample.Orders
	Reverse bool
	Count   int // end after this many intervals, if not 0
}

// Run shows a source until the user ends it.
func Run(src Source, o Options) error {
	// Names of cgroups may have any character. None of them may reach the terminal as a command.
	s, err := tcell.NewScreen(tcell.OptSanitizeContent(true))
	if err == nil {
		err = s.Init()
	}
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("the terminal cannot show this view: %v: --plain prints tables", err), Err: err}
	}
	// However the view ends, this restores the terminal, and later output is printed below it.
	defer s.Fini()
	ctx, stop := interrupts()
	defer stop()
	return loop(ctx, s, src, o)
}

func loop(ctx context.Context, s tcell.Screen, src Source, o Options) error {
	v := newView(src, o)
	first, err := src.Step(1)
	if err != nil {
		return err
	}
	if first != nil {
		v.take(first)
	}
	timer := time.NewTimer(src.Wait())
	defer timer.Stop()
	for {
		if o.Count > 0 && v.shown >= o.Count {
			return nil
		}
		v.draw(s)
		if v.failed != nil {
			return v.failed
		}
		s.Show()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if !v.paused {
				if err := v.step(1); err != nil {
					return err
				}
			}
			v.wait(timer)
		case ev, ok := <-s.EventQ():
			if !ok {
				return nil
			}
			switch ev := ev.(type) {
			case *tcell.EventResize:
				s.Sync()
			case *tcell.EventKey:
				switch ev.Key() {
				case tcell.KeyCtrlZ:
					if err := suspend(s); err != nil {
						return err
					}
					continue
				case tcell.KeyCtrlL:
					s.Sync()
					continue
				}
				done, err := v.key(ev)
				if done || err != nil {
					return err
				}
				if v.retime {
					v.wait(timer)
				}
			}
		}
	}
}

// wait sets the timer for the next step. At the end of a recording there is no next step.
func (v *view) wait(timer *time.Timer) {
	v.retime = false
	if d := v.src.Wait(); d > 0 {
		timer.Reset(d)
	} else {
		timer.Stop()
	}
}

// suspend restores the terminal and stops the process, as Ctrl-Z does in other programs.
func suspend(s tcell.Screen) error {
	if err := s.Suspend(); err != nil {
		return err
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	return s.Resume()
}
