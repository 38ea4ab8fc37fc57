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

// Source is where the intervals that are shown come from.
type Source interface {
	// Title says in a few words what is shown.
	Title() string
	// Position says where in it the view is, if it is not always the end.
	Position() string
	// Step gives the interval n further on, or back; a source that is not kept takes the
	// next for any n. At either end it gives nil, and the view stays.
	Step(n int) (*sample.Interval, error)
	// Load fills in the load of a cluster of the last interval, where Step left it out.
	Load(u *sample.Use) error
	// Wait is how long until the next step; 0 if there is none.
	Wait() time.Duration
	// Pace makes it faster or slower, or leaves it as it is.
	Pace(faster bool)
	// Kept reports that the view can go back.
	Kept() bool
}

// Options are how the view begins.
type Options struct {
	Filter  string
	Order   int // of sample.Orders
	Reverse bool
	Count   int // end after this many intervals, if not 0
}

// Run shows a source until the user ends it.
func Run(src Source, o Options) error {
	// Names of cgroups may have any character; none is to reach the terminal as a command.
	s, err := tcell.NewScreen(tcell.OptSanitizeContent(true))
	if err == nil {
		err = s.Init()
	}
	if err != nil {
		return &cosched.Problem{Status: cosched.ExitUnavailable, Text: fmt.Sprintf("the terminal cannot show this: %v: --plain prints tables", err), Err: err}
	}
	// However it ends, the terminal is as it was, and what follows is printed below it.
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

// wait sets the timer for the next step; at the end of a recording there is none.
func (v *view) wait(timer *time.Timer) {
	v.retime = false
	if d := v.src.Wait(); d > 0 {
		timer.Reset(d)
	} else {
		timer.Stop()
	}
}

// suspend stops the process as Ctrl-Z does elsewhere, with the terminal as it was.
func suspend(s tcell.Screen) error {
	if err := s.Suspend(); err != nil {
		return err
	}
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	return s.Resume()
}
