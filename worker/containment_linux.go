package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
	"rejoin/worker/internal/cgroup"
)

// basesFile lists, below the data directory, the control groups in which runs of
// this instance may be: the next server ends what a killed one left there.
const basesFile = "cgroups"

// Containment is what the system lets this process make of control groups. The
// zero pointer makes none. Its methods are safe for concurrent use.
type Containment struct {
	tree *cgroup.Tree
	log  *slog.Logger
}

// group is the control group of one run: the seam at which tests have a kernel of
// their own. Contracts as of cgroup.Group.
type group interface {
	CloneFD() int
	Enter() error
	Leave() error
	PIDs() ([]int, error)
	Kill() error
	OOMKills() int
	Remove() error
}

var _ group = (*cgroup.Group)(nil)

// OpenContainment finds out what the system allows. The caller holds the lock of
// the data directory. It fails when the list of earlier groups cannot be read;
// a system that allows nothing is no error.
func OpenContainment(dataDir, instance string, logger *slog.Logger) (*Containment, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	path := filepath.Join(dataDir, basesFile)
	earlier, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the control groups of earlier servers: %w", err)
	}
	tree, err := cgroup.Open(cgroup.Config{
		Instance: instance, PID: os.Getpid(), CloneInto: kernelAtLeast(5, 7), Earlier: strings.Split(string(earlier), "\n"),
		Made: func(bases []string) error { return writeBases(path, bases) }, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &Containment{tree: tree, log: logger}, nil
}

// writeBases replaces the list; a crash leaves the old one or the new one.
func writeBases(path string, bases []string) error {
	if len(bases) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.WriteFile(path+".new", []byte(strings.Join(bases, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// kernelAtLeast compares with the running kernel's release.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	digits := strings.TrimRightFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	b, err2 := strconv.Atoi(digits)
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// KillLeftovers ends every process in groups of earlier servers of this instance,
// but for this one and its ancestors, and removes the groups. It returns how many
// processes it found; an error when ctx ended while some still lived.
func (c *Containment) KillLeftovers(ctx context.Context) (killed int, err error) {
	if c == nil {
		return 0, nil
	}
	spared := ancestry(os.Getpid())
	for _, g := range c.tree.Leftovers() {
		n, err := c.killLeftover(ctx, g, spared)
		killed += n
		if err != nil {
			return killed, err
		}
		if err := g.Remove(); err != nil { // it is tried again by the next start
			c.log.Warn("control group of an earlier run is not removed", slog.Any(protocol.LogError, err))
		}
	}
	if err := c.tree.Tidy(); err != nil {
		c.log.Warn("control groups of an earlier server are not removed", slog.Any(protocol.LogError, err))
	}
	return killed, nil
}

func (c *Containment) killLeftover(ctx context.Context, g *cgroup.Group, spared map[int]bool) (killed int, err error) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	seen := make(map[int]uint64)
	for {
		pids, err := g.PIDs()
		if err != nil {
			return len(seen), err
		}
		living := 0
		for _, pid := range pids {
			p, ok := readStat(pid)
			if !ok || p.dead || spared[pid] {
				continue
			}
			living++
			seen[pid] = p.start
			if err := signalProcess(p, syscall.SIGKILL); err != nil {
				c.log.Warn("process of an earlier server", slog.Int(protocol.LogPID, pid), slog.Any(protocol.LogError, err))
			}
		}
		if living == 0 {
			return len(seen), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return len(seen), fmt.Errorf("%d processes of an earlier server are still alive: %w", living, ctx.Err())
		}
	}
}

// ancestry is a process and all above it.
func ancestry(pid int) map[int]bool {
	out := make(map[int]bool)
	for pid > 0 && !out[pid] {
		out[pid] = true
		p, ok := readStat(pid)
		if !ok {
			break
		}
		pid = p.ppid
	}
	return out
}

// Prepare makes the system ready for limits of runs to come, and says what of them
// cannot be enforced.
func (c *Containment) Prepare(l *protocol.ResourceLimits) error {
	if c == nil {
		return errNoGroups(l)
	}
	return c.tree.Prepare(l)
}

// errNoGroups is what a limit meets where no groups are made at all.
func errNoGroups(l *protocol.ResourceLimits) error {
	return (*cgroup.Tree)(nil).Prepare(l)
}

// Status is what is in force, for server_status.
func (c *Containment) Status() protocol.Containment {
	out := protocol.Containment{Limits: []string{}, Why: "switched off"}
	if c == nil {
		return out
	}
	var limits map[string]error
	out.Cgroups, out.Group, out.Why, limits = c.tree.State()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if limits[name] == nil {
			out.Limits = append(out.Limits, name)
		}
	}
	return out
}

// Close removes the groups of this server. No child is alive.
func (c *Containment) Close() error {
	if c == nil {
		return nil
	}
	return c.tree.Close()
}

// group makes the control group of a run; nil without one. The error is for
// clients: a limit that is required and cannot be enforced.
func (c *Containment) group(rec *protocol.SessionRecord, log *slog.Logger) (group, error) {
	name := rec.Workspace + "." + rec.ID + "." + strconv.FormatUint(uint64(rec.Run), 10)
	var err error
	if c == nil {
		err = errNoGroups(rec.Limits)
	} else {
		var g group
		if g, err = c.newGroup(name, rec.Limits); err == nil {
			return g, nil
		}
	}
	if err == nil {
		return nil, nil
	}
	var cannot *cgroup.UnenforceableError
	switch {
	case !errors.As(err, &cannot): // only the finding of processes suffers
		log.Warn("run without a control group", slog.Any(protocol.LogError, err))
		if rec.Limits == nil {
			return nil, nil
		}
		return nil, protocol.Errorf(protocol.ReasonUnsupported, "failed to start: no control group for its limits")
	case rec.Limits.Enforce != protocol.EnforcePreferred:
		return nil, protocol.Errorf(protocol.ReasonUnsupported, "failed to start: %v", cannot)
	}
	log.Warn("run without its limits", slog.Any(protocol.LogError, cannot))
	if c == nil {
		return nil, nil
	}
	return c.newGroup(name, nil)
}

// newGroup keeps a nil group a nil interface.
func (c *Containment) newGroup(name string, l *protocol.ResourceLimits) (group, error) {
	g, err := c.tree.NewGroup(name, l)
	if g == nil {
		return nil, err
	}
	return g, err
}
