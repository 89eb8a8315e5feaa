package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"rejoin/protocol"
)

// KillOrphans ends every process that carries REJOIN_INSTANCE=instance (own uid,
// not this process or its ancestors), with its descendants, and returns when all
// were seen dead. The caller holds the lock of that data directory: no worker of
// it is alive. It returns how many processes it found; an error when ctx ended
// while some still lived.
func KillOrphans(ctx context.Context, instance string, logger *slog.Logger) (killed int, err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if instance == "" {
		return 0, fmt.Errorf("worker: no instance to search for")
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	type name struct {
		pid   int
		start uint64
	}
	seen := make(map[name]bool)
	known := make(map[int]*process)
	for {
		known = orphans(count(instance), os.Getpid(), known)
		if len(known) == 0 {
			return len(seen), nil
		}
		for _, p := range known {
			if id := (name{p.pid, p.start}); !seen[id] {
				seen[id] = true
				logger.Info("ending a process of an earlier server", slog.Int(protocol.LogPID, p.pid), slog.String(protocol.LogSession, p.mark.session))
			}
			if err := signalProcess(p, syscall.SIGKILL); err != nil {
				logger.Warn("process of an earlier server", slog.Int(protocol.LogPID, p.pid), slog.Any(protocol.LogError, err))
			}
		}
		select {
		case <-ctx.Done():
			return len(seen), fmt.Errorf("%d processes of an earlier server are still alive: %w", len(known), ctx.Err())
		case <-tick.C:
		}
	}
}

// orphans are the living processes with the mark and their descendants, but
// neither self nor an ancestor of it; known are those of an earlier look, whose
// parents may be dead by now.
func orphans(r *roll, self int, known map[int]*process) map[int]*process {
	spared := map[int]bool{self: true}
	for p := r.byPID[self]; p != nil && !spared[p.ppid]; p = r.byPID[p.ppid] {
		spared[p.ppid] = true
	}
	found := make(map[int]*process)
	var add func(p *process)
	add = func(p *process) {
		if spared[p.pid] || found[p.pid] != nil {
			return
		}
		if !p.dead {
			found[p.pid] = p
		}
		for _, c := range r.children[p.pid] {
			add(c)
		}
	}
	for _, list := range r.marked {
		for _, p := range list {
			add(p)
		}
	}
	for pid, old := range known {
		if p := r.byPID[pid]; p != nil && p.start == old.start {
			add(p)
		}
	}
	return found
}
