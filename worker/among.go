package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	confirmParallel = 16          // sessions whose newest run is asked for at a time
	watchAgain      = time.Second // after the watch of the registry broke
)

// watched is the part of journal.Bucket that tells of changes. Contract as there.
type watched interface {
	Watch(ctx context.Context, f func(journal.Entry)) error
}

var _ watched = (*journal.Bucket)(nil)

// serveAmong is the life of one of several workers: it keeps its entry until ctx ends
// or another process is this worker; end stops serving and ends every session.
func (w *Worker) serveAmong(ctx, life context.Context, end func()) error {
	present, part := context.WithCancel(life)
	defer part()
	over := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { over <- w.presence.run(present) })
	wg.Go(func() { w.watchRuns(present) })
	wg.Go(func() { w.removeForgotten(present) })
	var err error
	select {
	case <-ctx.Done():
		w.presence.stop()
	case err = <-over:
		w.log.Error("worker is given up: another process has its id", slog.Any(protocol.LogError, err))
		w.disown(err)
	}
	end()
	part()
	wg.Wait()
	if err == nil {
		err = <-over
	}
	if errors.Is(err, ErrSuperseded) {
		return err
	}
	if err := w.presence.leave(context.WithoutCancel(ctx)); err != nil {
		w.log.Warn("brokers are not told that this worker has stopped", slog.Any(protocol.LogError, err))
	}
	return nil
}

// live counts the sessions that are here.
func (w *Worker) live() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sessions)
}

// disown kills every session and writes nothing more.
func (w *Worker) disown(why error) {
	for _, s := range w.list() {
		s.lose(why)
	}
}

// freeze stops the sessions that a broker may start elsewhere, all at once: they share
// the looks at the processes of the system.
func (w *Worker) freeze() {
	var wg sync.WaitGroup
	for _, s := range w.list() {
		if s.rec.Restart == protocol.RestartResume {
			wg.Go(s.freeze)
		}
	}
	wg.Wait()
}

// confirm is of charges.
func (w *Worker) confirm(ctx context.Context, all bool) error { // I-B2
	var wg sync.WaitGroup
	var mu sync.Mutex
	var unknown error
	room := make(chan struct{}, confirmParallel)
	for _, s := range w.list() {
		if !all && !s.frozen() {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			err := w.reg.Confirm(ctx, s.key, s.rec.Run)
			switch {
			case errors.Is(err, journal.ErrFenced):
				s.lose(ErrNotOwner)
			case err != nil:
				mu.Lock()
				unknown = err
				mu.Unlock()
			case !all:
				s.thaw()
			}
		})
	}
	wg.Wait()
	return unknown
}

// watchRuns ends sessions of which the registry has a newer run, until ctx ends. A
// writer that has something to write is fenced without it; a child that is silent is
// found only so.
func (w *Worker) watchRuns(ctx context.Context) { // I-B2
	for {
		err := w.watchRunsOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("watch of the registry broke", slog.Any(protocol.LogError, err))
		pause := time.NewTimer(watchAgain)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

func (w *Worker) watchRunsOnce(ctx context.Context) error {
	registry, err := w.places.runs(ctx)
	if err != nil {
		return err
	}
	return registry.Watch(ctx, w.seeRun)
}

// seeRun is told of an entry of the registry. An entry that was removed is no news: its
// key may be another session's by now.
func (w *Worker) seeRun(e journal.Entry) {
	workspace, id, _ := strings.Cut(e.Key, ".")
	s := w.session(protocol.Key{Workspace: workspace, Session: id})
	if s == nil || e.Deleted {
		return
	}
	var rec struct {
		Run protocol.Run `json:"run"`
	}
	if err := json.Unmarshal(e.Value, &rec); err != nil {
		w.log.Error("registry entry not readable", slog.String("key", e.Key), slog.Any(protocol.LogError, err))
		return
	}
	if rec.Run > s.rec.Run {
		s.lose(ErrNotOwner)
	}
}
