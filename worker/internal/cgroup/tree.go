package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"rejoin/protocol"
)

// Controllers that limits need.
const (
	Memory = "memory"
	PIDs   = "pids"
	CPU    = "cpu"
)

const (
	basePrefix  = "rejoin-"
	groupPrefix = "s." // of runs: never the name of a kernel's file
	serverLeaf  = "server"
	procsFile   = "cgroup.procs"
	subtreeFile = "cgroup.subtree_control"
)

// Config of Open.
type Config struct {
	Instance  string // names this server's groups: one path element. Required
	PID       int    // of this process
	CloneInto bool   // the kernel makes processes inside a group of version 2 (Linux 5.7)
	Earlier   []string
	Made      func(bases []string) error // called before a base is made, with all that may exist: whoever comes later gives them as Earlier
	Logger    *slog.Logger               // required

	files     files  // nil: the kernel's
	mountinfo string // zero: /proc/self/mountinfo
	self      string // zero: /proc/self/cgroup
}

// Tree is where this process may make groups. Its methods are safe for
// concurrent use.
type Tree struct {
	cfg Config
	fs  files

	mu    sync.Mutex
	v2    *hierarchy // nil: none that can be used
	v1    []*hierarchy
	why   string     // why v2 is nil, or track is
	track *hierarchy // tells whose process is whose; nil: nothing does
	bases []string   // that may exist
	moved bool       // this process is in the leaf of v2's base
}

// Open finds out which groups this process can make. It fails when cfg is wrong
// only: a system without control groups gives a Tree that does nothing, and says why.
func Open(cfg Config) (*Tree, error) {
	if cfg.Instance == "" || strings.ContainsAny(cfg.Instance, "/\n") || cfg.Logger == nil {
		return nil, fmt.Errorf("cgroup: Config is not complete")
	}
	t := &Tree{cfg: cfg, fs: cfg.files}
	if t.fs == nil {
		t.fs = kernel{}
	}
	for _, base := range cfg.Earlier {
		if filepath.IsAbs(base) && filepath.Clean(base) == base && filepath.Base(base) == basePrefix+cfg.Instance {
			t.bases = append(t.bases, base)
		}
	}
	mountinfo, membership := "/proc/self/mountinfo", "/proc/self/cgroup"
	if cfg.mountinfo != "" {
		mountinfo, membership = cfg.mountinfo, cfg.self
	}
	mounted, err1 := t.fs.Read(mountinfo)
	groups, err2 := t.fs.Read(membership)
	if err := errors.Join(err1, err2); err != nil {
		t.why = "control groups cannot be read: " + cause(err)
		return t, nil
	}
	t.v2, t.v1 = mounts(mounted, groups)
	t.choose()
	return t, nil
}

// choose decides which hierarchy tells whose process is whose.
func (t *Tree) choose() {
	t.why = "no hierarchy of control groups shows this process"
	if t.v2 != nil {
		err := errors.New("the kernel cannot start a process in a group (Linux 5.7 can)")
		if t.cfg.CloneInto {
			err = t.makeBase(t.v2)
		}
		if err == nil {
			t.track = t.v2
			text, err := t.fs.Read(filepath.Join(t.v2.own, "cgroup.controllers"))
			if err != nil {
				t.cfg.Logger.Warn("controllers cannot be read", slog.Any("error", err))
			}
			t.v2.controllers = strings.Fields(text)
			return
		}
		t.why = t.v2.own + ": " + cause(err)
		t.v2 = nil
	}
	for _, c := range []string{PIDs, "freezer", "cpuacct"} {
		if h := t.firstV1(c); h != nil {
			if err := t.makeBase(h); err != nil {
				t.why = h.own + ": " + cause(err)
				continue
			}
			t.track = h
			return
		}
	}
}

func (t *Tree) firstV1(controller string) *hierarchy {
	for _, h := range t.v1 {
		if h.has(controller) {
			return h
		}
	}
	return nil
}

// makeBase makes this server's group of a hierarchy. Mu is held, or t is not shared yet.
func (t *Tree) makeBase(h *hierarchy) error {
	if h.made {
		return nil
	}
	h.base = filepath.Join(h.own, basePrefix+t.cfg.Instance)
	if !slices.Contains(t.bases, h.base) {
		bases := append(slices.Clone(t.bases), h.base)
		if t.cfg.Made != nil {
			if err := t.cfg.Made(bases); err != nil {
				return err
			}
		}
		t.bases = bases
	}
	if err := t.fs.Mkdir(h.base); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := t.fs.Write(filepath.Join(h.base, procsFile), ""); errors.Is(err, fs.ErrPermission) { // somebody else's
		return err
	}
	h.made = true
	return nil
}

// provide finds the hierarchy that limits by a controller, and makes it ready. Mu
// is held.
func (t *Tree) provide(controller string) (*hierarchy, error) {
	if t.track == nil {
		return nil, errors.New(t.why)
	}
	if t.v2 != nil && t.v2.has(controller) {
		return t.v2, t.enable(controller)
	}
	h := t.firstV1(controller)
	if h == nil {
		return nil, fmt.Errorf("no controller %s in %s", controller, t.track.own)
	}
	if err := t.makeBase(h); err != nil {
		return nil, fmt.Errorf("%s: %s", h.own, cause(err))
	}
	return h, nil
}

// enable gives a controller to the groups of runs. Mu is held.
func (t *Tree) enable(controller string) error {
	for _, dir := range []string{t.v2.own, t.v2.base} {
		file := filepath.Join(dir, subtreeFile)
		on, err := t.fs.Read(file)
		if err != nil {
			return fmt.Errorf("%s: %s", file, cause(err))
		}
		if slices.Contains(strings.Fields(on), controller) {
			continue
		}
		err = t.fs.Write(file, "+"+controller)
		if errors.Is(err, syscall.EBUSY) && !t.moved {
			if err = t.moveSelf(); err == nil {
				err = t.fs.Write(file, "+"+controller)
			}
			if err != nil {
				err = errors.Join(err, t.moveBack())
			}
		}
		if errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("other processes are in %s", dir)
		}
		if err != nil {
			return fmt.Errorf("%s: %s", file, cause(err))
		}
	}
	return nil
}

// moveSelf leaves this process's own group to the groups below it.
func (t *Tree) moveSelf() error {
	leaf := filepath.Join(t.v2.base, serverLeaf)
	if err := t.fs.Mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := t.fs.Write(filepath.Join(leaf, procsFile), strconv.Itoa(t.cfg.PID)); err != nil {
		return err
	}
	t.moved = true
	return nil
}

func (t *Tree) moveBack() error {
	if !t.moved {
		return nil
	}
	if err := t.fs.Write(filepath.Join(t.v2.own, procsFile), strconv.Itoa(t.cfg.PID)); err != nil {
		return err
	}
	t.moved = false
	return t.fs.Remove(filepath.Join(t.v2.base, serverLeaf))
}

// Prepare makes the controllers of limits ready, before the first run wants them.
// The error is an *UnenforceableError. A nil Tree has none.
func (t *Tree) Prepare(l *protocol.ResourceLimits) error {
	for _, s := range settings(l) {
		if err := t.prepare(s.controller); err != nil {
			return &UnenforceableError{s.controller, err}
		}
	}
	return nil
}

func (t *Tree) prepare(controller string) error {
	if t == nil {
		return errors.New("control groups are switched off")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.provide(controller)
	return err
}

// State says what is in force, for people: which hierarchy tells processes apart
// (0: none, and why), and for each controller nil or why nothing can be limited by it.
func (t *Tree) State() (version int, dir, why string, limits map[string]error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	limits = make(map[string]error)
	for _, c := range []string{Memory, PIDs, CPU} {
		limits[c] = t.available(c)
	}
	if t.track == nil {
		return 0, "", t.why, limits
	}
	return t.track.version, t.track.base, "", limits
}

// available reports what provide would find, without touching anything. Mu is held.
func (t *Tree) available(controller string) error {
	switch {
	case t.track == nil:
		return errors.New(t.why)
	case t.v2 != nil && t.v2.has(controller), t.firstV1(controller) != nil:
		return nil
	}
	return fmt.Errorf("no controller %s in %s", controller, t.track.own)
}

// Leftovers are the groups of runs of earlier processes of this instance.
func (t *Tree) Leftovers() []*Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*Group
	for _, base := range t.bases {
		names, err := t.fs.Dirs(base)
		if err != nil {
			continue // it went with a boot, or with its own parent
		}
		for _, name := range names {
			if strings.HasPrefix(name, groupPrefix) {
				out = append(out, &Group{t: t, dirs: []string{filepath.Join(base, name)}})
			}
		}
	}
	return out
}

// Tidy forgets the bases of earlier processes that are gone or can be removed.
// The groups in them are removed before.
func (t *Tree) Tidy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	inUse := make(map[string]bool)
	for _, h := range append(slices.Clone(t.v1), t.v2) {
		if h != nil && h.made {
			inUse[h.base] = true
		}
	}
	var errs []error
	t.bases = slices.DeleteFunc(t.bases, func(base string) bool {
		if inUse[base] {
			return false
		}
		err := below(t.fs, base, t.fs.Remove)
		errs = append(errs, err)
		return err == nil
	})
	if t.cfg.Made != nil {
		errs = append(errs, t.cfg.Made(t.bases))
	}
	return errors.Join(errs...)
}

// Close gives back what Open and groups made. Every group is removed before.
func (t *Tree) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	if t.v2 != nil && t.v2.made && t.moved {
		errs = append(errs, t.disable(), t.moveBack())
	}
	for _, h := range append(slices.Clone(t.v1), t.v2) {
		if h == nil || !h.made {
			continue
		}
		if err := below(t.fs, h.base, t.fs.Remove); err != nil {
			errs = append(errs, err)
			continue
		}
		h.made = false
		t.bases = slices.DeleteFunc(t.bases, func(b string) bool { return b == h.base })
	}
	if t.cfg.Made != nil {
		errs = append(errs, t.cfg.Made(t.bases))
	}
	t.track, t.why = nil, "closed"
	return errors.Join(errs...)
}

// disable takes back the controllers, so that this process may be in its own
// group again. Mu is held.
func (t *Tree) disable() error {
	var errs []error
	for _, dir := range []string{t.v2.base, t.v2.own} {
		on, err := t.fs.Read(filepath.Join(dir, subtreeFile))
		errs = append(errs, err)
		for _, c := range strings.Fields(on) {
			errs = append(errs, t.fs.Write(filepath.Join(dir, subtreeFile), "-"+c))
		}
	}
	return errors.Join(errs...)
}

// cause is an error without the operation and the path that Go puts before it.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
