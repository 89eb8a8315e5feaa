package broker

import (
	"context"
	"errors"

	"rejoin/journal"
	"rejoin/protocol"
)

// hostOf returns the address of the worker that has what a session keeps besides
// its log; empty when it does not run.
func (b *Broker) hostOf(rec *protocol.SessionRecord) string {
	e, ok := b.roster.worker(rec.Host)
	if !ok || e.Lost || e.Left {
		return ""
	}
	return e.Owner
}

// stderrOf asks the worker that ran a session last.
func (b *Broker) stderrOf(ctx context.Context, rec *protocol.SessionRecord, run protocol.Run) (string, error) {
	host := b.hostOf(rec)
	if host == "" {
		return "", unavailableNow("the worker that ran session %s does not run", rec.ID)
	}
	req := request(protocol.OpStderr, rec.Key())
	req.Run = run
	reply, err := b.ask(ctx, host, protocol.DispatchTimeout, req)
	if errors.Is(err, journal.ErrNoOwner) {
		return "", unavailableNow("the worker that ran session %s does not answer", rec.ID)
	}
	return reply.Text, outward(err)
}

// removeFiles removes what a session kept besides its log. A worker that does not
// run removes it at its next start.
func (b *Broker) removeFiles(ctx context.Context, rec *protocol.SessionRecord) error {
	if !b.cfg.split() {
		return b.cfg.RemoveFiles(b.cfg.DataDir, rec.Key())
	}
	host := b.hostOf(rec)
	if host == "" {
		return nil
	}
	_, err := b.ask(ctx, host, protocol.DispatchTimeout, request(protocol.OpFiles, rec.Key()))
	if errors.Is(err, journal.ErrNoOwner) {
		return nil
	}
	return err
}
