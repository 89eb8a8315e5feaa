package worker

import (
	"context"
	"log/slog"

	"rejoin/protocol"
)

// stderrOf answers with what is kept of a run's stderr.
func (w *Worker) stderrOf(k protocol.Key, run protocol.Run) protocol.WorkerReply {
	text, err := w.cfg.StderrSeal.StderrTail(w.cfg.DataDir, k, run)
	if err != nil {
		return protocol.WorkerReply{Error: w.asError(err, k)}
	}
	return protocol.WorkerReply{Text: text}
}

// removeFiles removes what a deleted session has besides its log, once its run has
// left.
func (w *Worker) removeFiles(ctx context.Context, k protocol.Key) protocol.WorkerReply {
	ctx, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	if err := w.clear(ctx, k, func() (bool, error) { return true, nil }); err != nil {
		return protocol.WorkerReply{Error: w.asError(err, k)}
	}
	return protocol.WorkerReply{}
}

// drain begins or ends a drain; what runs is left alone. It lasts as long as the
// process.
func (w *Worker) drain(ctx context.Context, d drain) protocol.WorkerReply {
	w.mu.Lock()
	changed := w.draining != d.on
	w.draining = d.on
	w.mu.Unlock()
	if changed {
		w.log.Info("drain", slog.Bool("on", d.on), slog.Bool("move", d.move))
	}
	if w.presence == nil {
		return protocol.WorkerReply{}
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	if err := w.presence.drain(ctx, d); err != nil {
		return protocol.WorkerReply{Error: w.asError(err, protocol.Key{})}
	}
	return protocol.WorkerReply{}
}

func errDraining(worker string) *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, "worker %s takes no new sessions", worker)
	e.Retryable = true
	return e
}
