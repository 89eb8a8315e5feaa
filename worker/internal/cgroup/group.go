package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rejoin/protocol"
)

// Group holds the processes of one run. It is not safe for concurrent use but for
// PIDs and OOMKills.
type Group struct {
	t      *Tree
	dirs   []string // one per hierarchy that has a part in it; the first tells whose process is whose
	enter  []string // hierarchies of version 1: the group's directory …
	leave  []string // … and this process's own
	fd     *os.File // of the directory of version 2; nil without
	memory string   // directory that counts out-of-memory kills; empty: none
	pids   string   // directory that limits processes
	killer bool     // it has cgroup.kill
}

// UnenforceableError is a limit that was asked for and cannot be set.
type UnenforceableError struct {
	Limit string // memory, pids, cpu
	Err   error
}

func (e *UnenforceableError) Error() string {
	return fmt.Sprintf("limit of %s cannot be enforced: %v", e.Limit, e.Err)
}

func (e *UnenforceableError) Unwrap() error { return e.Err }

// NewGroup makes the group of a run with limits. The error is an
// *UnenforceableError when one of them cannot be set: then there is no group. A
// Tree that can make none gives nil.
func (t *Tree) NewGroup(name string, l *protocol.ResourceLimits) (*Group, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := settings(l)
	if t.track == nil {
		if len(wanted) > 0 {
			return nil, &UnenforceableError{wanted[0].controller, errors.New(t.why)}
		}
		return nil, nil
	}
	g := &Group{t: t}
	if err := g.join(t.track, name); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	for _, s := range wanted {
		h, err := t.provide(s.controller)
		if err == nil {
			err = g.limit(h, name, s)
		}
		if err != nil {
			return nil, errors.Join(&UnenforceableError{s.controller, err}, g.remove())
		}
	}
	return g, nil
}

// join makes the run's directory in a hierarchy, once. What is there already is an
// earlier try's.
func (g *Group) join(h *hierarchy, name string) error {
	dir := filepath.Join(h.base, groupPrefix+name)
	for _, d := range g.dirs {
		if d == dir {
			return nil
		}
	}
	err := g.t.fs.Mkdir(dir)
	if errors.Is(err, fs.ErrExist) {
		if err = below(g.t.fs, dir, g.t.fs.Remove); err == nil {
			err = g.t.fs.Mkdir(dir)
		}
	}
	if err != nil {
		return fmt.Errorf("make group: %w", err)
	}
	g.dirs = append(g.dirs, dir)
	if h.has(PIDs) {
		g.pids = dir
	}
	if h.version == 1 {
		g.enter, g.leave = append(g.enter, dir), append(g.leave, h.own)
		return nil
	}
	_, err = g.t.fs.Read(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return fmt.Errorf("make group: %w", err)
	}
	g.killer = true
	if g.fd, err = g.t.fs.OpenDir(dir); err != nil {
		return fmt.Errorf("open group: %w", err)
	}
	return nil
}

func (g *Group) limit(h *hierarchy, name string, s setting) error {
	if err := g.join(h, name); err != nil {
		return err
	}
	dir := filepath.Join(h.base, groupPrefix+name)
	if s.controller == Memory {
		g.memory = dir
	}
	for _, v := range s.values(h.version) {
		file := filepath.Join(dir, v.file)
		err := g.t.fs.Write(file, v.text)
		if err != nil && (!v.optional || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%s: %s", file, cause(err))
		}
	}
	return nil
}

// CloneFD is the descriptor of the group in which the kernel is to make the child;
// -1 where the forking thread enters the group instead. It lives as long as the group.
func (g *Group) CloneFD() int {
	if g.fd == nil {
		return -1
	}
	return int(g.fd.Fd())
}

// Enter puts the calling thread into the group's hierarchies of version 1, so that
// what it forks begins there: no process of the run is ever outside. The caller is
// locked to its thread and calls Leave, whatever Enter answers.
func (g *Group) Enter() error { return g.moveThread(g.enter) }

// Leave undoes Enter.
func (g *Group) Leave() error { return g.moveThread(g.leave) }

func (g *Group) moveThread(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, g.t.fs.Write(filepath.Join(dir, "tasks"), "0")) // 0: the writing thread
	}
	return errors.Join(errs...)
}

// PIDs lists the processes in the group and in those that they made below it; a
// zombie may be among them.
func (g *Group) PIDs() ([]int, error) {
	var pids []int
	err := below(g.t.fs, g.dirs[0], func(dir string) error {
		text, err := g.t.fs.Read(filepath.Join(dir, procsFile))
		for f := range strings.FieldsSeq(text) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	if err != nil {
		return pids, fmt.Errorf("list group: %w", err)
	}
	return pids, nil
}

// Kill ends every process of the group at once, where the kernel can, and keeps it
// from making new ones, where it can. The caller signals PIDs all the same until
// there is none.
func (g *Group) Kill() error {
	var errs []error
	if g.pids != "" {
		errs = append(errs, unlessMissing(g.t.fs.Write(filepath.Join(g.pids, "pids.max"), "0"))) // missing: the controller is not given to this group
	}
	if g.killer {
		errs = append(errs, unlessMissing(g.t.fs.Write(filepath.Join(g.dirs[0], "cgroup.kill"), "1"))) // missing: before Linux 5.14
	}
	return errors.Join(errs...)
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// OOMKills is how many of the group's processes the kernel killed for memory.
func (g *Group) OOMKills() int {
	if g.memory == "" {
		return 0
	}
	for _, file := range []string{"memory.events", "memory.oom_control"} {
		text, err := g.t.fs.Read(filepath.Join(g.memory, file))
		if err != nil {
			continue // the other version's
		}
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
				if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// Remove removes the group; no process is in it. It may be called again.
func (g *Group) Remove() error {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	return g.remove()
}

func (g *Group) remove() error {
	var errs []error
	if g.fd != nil {
		errs = append(errs, g.fd.Close())
		g.fd = nil
	}
	for _, dir := range g.dirs {
		errs = append(errs, below(g.t.fs, dir, g.t.fs.Remove))
	}
	return errors.Join(errs...)
}
