package detect

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"syscall"

	"cosched.io/cosched"
)

// Clusters makes clusters for groups, as parts NAME/1, NAME/2, ... of a cluster.
type Clusters struct {
	Host cosched.Host
	Name string
	Note func(text string) // is called with what is less than was asked for

	created []cosched.Group // the clusters that were not there before
	made    map[int]cosched.Group
	threads map[int]int // number in each LLC domain, if the kernel does not choose homes
	told    bool
	// setHome is Host.SetHome, except in a test: no file system refuses a value as the
	// kernel does.
	setHome func(cosched.Group, cosched.Home, bool) (string, error)
}

// Prepare makes the cluster that contains the parts, if it is not there.
func (c *Clusters) Prepare() error {
	c.made, c.threads = map[int]cosched.Group{}, map[int]int{}
	if c.setHome == nil {
		c.setHome = c.Host.SetHome
	}
	_, created, err := c.Host.Ensure(c.Name, false)
	c.created = created
	return err
}

// Undo removes the clusters that were made and have no threads, for a caller that has
// failed with an error since. It returns that error, which then also says what is left.
func (c *Clusters) Undo(err error) error { return c.Host.Undo(c.created, err) }

// Apply moves threads to the clusters that they belong to now. A thread that has ended is
// no error.
func (c *Clusters) Apply(changes []Change, sizes map[int][]int) error {
	for _, ch := range changes {
		to := c.Name
		if ch.To > 0 {
			to = c.part(ch.To)
		}
		g, ok := c.made[ch.To]
		if !ok {
			var err error
			if ch.To == 0 {
				g, err = c.Host.Find(to)
			} else {
				g, err = c.makePart(to, len(sizes[ch.To]))
			}
			if err != nil {
				return err
			}
			c.made[ch.To] = g
		}
		err := c.Host.MoveThread(g, ch.Thread.TID)
		var p *cosched.Problem
		if errors.As(err, &p) && p.Status == cosched.ExitNoInput {
			continue
		}
		if err != nil {
			return err
		}
	}
	for n, g := range c.made {
		if n > 0 && len(sizes[n]) == 0 && c.Host.Remove(g, false) == nil {
			delete(c.made, n)
		}
	}
	return nil
}

func (c *Clusters) part(n int) string { return path.Join(c.Name, strconv.Itoa(n)) }

// makePart makes a cluster for a group and gives it a home.
func (c *Clusters) makePart(name string, threads int) (cosched.Group, error) {
	g, created, err := c.Host.Ensure(name, true)
	if err != nil {
		return "", err
	}
	c.created = append(c.created, created...)
	_, err = c.setHome(g, cosched.Home{Value: "auto"}, false)
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		return g, err
	}
	// The kernel does not choose homes: take the LLC domain with the fewest threads so far.
	m, err := c.Host.Machine()
	if err != nil {
		return "", err
	}
	if len(m.LLCs) < 2 {
		c.note("this kernel does not choose homes itself, and there is one LLC domain only: the clusters inherit their home")
		return g, nil
	}
	c.note("this kernel does not choose homes itself: each cluster gets the LLC domain with the fewest threads of the others for its number of CPUs")
	best := 0
	for i := range m.LLCs {
		// Domains can have different numbers of CPUs, so compare threads per CPU.
		if c.threads[i]*len(m.LLCs[best]) < c.threads[best]*len(m.LLCs[i]) {
			best = i
		}
	}
	c.threads[best] += threads
	home, err := c.Host.ParseHome(fmt.Sprintf("llc:%d", best))
	if err != nil {
		return "", err
	}
	note, err := c.setHome(g, home, false)
	if note != "" {
		c.Note(note)
	}
	return g, err
}

// note passes on a text, but only the first one.
func (c *Clusters) note(text string) {
	if !c.told {
		c.Note(text)
		c.told = true
	}
}
