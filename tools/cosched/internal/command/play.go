package command

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"cosched.io/cosched"
	"cosched.io/cosched/internal/sample"
	"cosched.io/cosched/internal/top"
)

// player plays a recording.
type player struct {
	*sample.Index
	name  string
	at    int // number of the interval that is shown, from 1
	speed float64
	now   *sample.Interval
}

func (p *player) Title() string { return "cosched replay " + p.name }
func (p *player) Kept() bool    { return true }

// Load has nothing to do: a recording contains the load of all clusters.
func (p *player) Load(*sample.Use) error { return nil }

func (p *player) Position() string {
	at := fmt.Sprintf("%d of %d", p.at, p.Len())
	if p.at == p.Len() {
		return at + ", the end"
	}
	return at + fmt.Sprintf(", speed %gx", p.speed)
}

// Pace halves or doubles the speed.
func (p *player) Pace(faster bool) {
	if faster {
		p.speed = min(64, p.speed*2)
	} else {
		p.speed = max(1.0/8, p.speed/2)
	}
}

// Wait is how long the recorded interval took, divided by the speed. It counts at most 2 s for an
// interval, so that the user does not wait long for a recording that was made with long intervals
// or to which samples were appended the next day.
func (p *player) Wait() time.Duration {
	if p.at == p.Len() || p.now == nil {
		return 0
	}
	seconds := p.now.Seconds
	if seconds == 0 || seconds > 2 {
		seconds = 2
	}
	return max(time.Millisecond, time.Duration(seconds/p.speed*float64(time.Second)))
}

func (p *player) Step(n int) (*sample.Interval, error) {
	to := max(1, min(p.at+n, p.Len()))
	if to == p.at {
		return nil, nil
	}
	v, err := p.Interval(to - 1)
	if err == nil {
		p.at, p.now = to, v
	}
	return v, err
}

// play shows a recording on the terminal.
func play(cmd *cobra.Command, name string, o top.Options) error {
	f, err := openRecording(name)
	if err != nil {
		return err
	}
	defer f.Close()
	x, err := sample.NewIndex(f, name)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			return &cosched.Problem{Status: cosched.ExitIO, Text: err.Error(), Err: err}
		}
		return err
	}
	defer x.Close()
	err = top.Run(&player{Index: x, name: filepath.Base(name), speed: 1}, o)
	if x.Torn {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s: its last line is not complete and was left out\n", cmd.CommandPath(), name)
	}
	return err
}
