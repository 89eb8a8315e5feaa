package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const (
	tombstoneTimeout = 5 * time.Second  // a child is not left running for a journal that is away
	deleteRetry      = 10 * time.Second // until Run tries again to finish a delete
)

// Delete ends a session and forgets it but for its name, which is never used
// again. A delete that began is finished by Run, or by the next Recover. Again:
// nil. When the journal is away the child is stopped all the same.
func (b *Broker) Delete(ctx context.Context, p Principal, session string) error {
	if err := p.need(RoleOperator); err != nil {
		return err
	}
	if err := b.await(ctx); err != nil {
		return err
	}
	if !protocol.ValidSessionID(session) { // the registry has no key for it
		return protocol.ErrSessionNotFound(session)
	}
	if b.cfg.Desk {
		return b.forwardDone(ctx, p, deskDelete, protocol.BrokerRequest{Op: protocol.AskDelete, Session: session})
	}
	k := protocol.Key{Workspace: p.Workspace, Session: session}
	rec, err := b.latest(ctx, k)
	if err != nil {
		return outward(err)
	}
	if rec == nil {
		return protocol.ErrSessionNotFound(session)
	}
	if rec.Deleted {
		return nil
	}
	ctx, done := b.work(ctx, protocol.GraceDefault+2*stopMargin+startTimeout)
	defer done()
	b.restarts.done(k)
	return b.explain(rec, b.remove(ctx, k))
}

// remove: tombstone, stop, and the rest under the session's lock.
func (b *Broker) remove(ctx context.Context, k protocol.Key) error {
	quick, cancel := context.WithTimeout(ctx, tombstoneTimeout)
	_, err := b.registry.change(quick, k, tombstone)
	cancel()
	if errors.Is(err, errNoRecord) {
		return protocol.ErrSessionNotFound(k.Session)
	}
	if serr := b.silence(ctx, k); serr != nil {
		return errors.Join(err, serr)
	}
	if err != nil {
		return err
	}
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return errNoAnswer
	}
	defer unlock()
	b.restarts.done(k)
	if _, err := b.latest(ctx, k); err != nil {
		return err
	}
	if err := b.silence(ctx, k); err != nil { // what a start or resume in work brought up meanwhile
		return err
	}
	return b.finishDelete(ctx, k)
}

// silence ends the child of a session that is being deleted. An owner that does
// not answer does not stop the delete: its writer is fenced off.
func (b *Broker) silence(ctx context.Context, k protocol.Key) error {
	rec := b.registry.record(k)
	if rec == nil || !owned(rec) {
		return nil
	}
	_, err := b.haltOwner(ctx, rec, protocol.GraceDefault)
	if errors.Is(err, errNoAnswer) {
		b.log.Warn("deleting without the owner's answer", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		return nil
	}
	return err
}

// tombstone marks a record as on its way out.
func tombstone(r *protocol.SessionRecord) error {
	r.Deleting = !r.Deleted
	return nil
}

// finishDelete writes session_deleted by the next run, purges the log but for
// that record, and strips the registry's. It may be repeated. The caller holds
// the session's lock; no child runs, or its writer is about to be fenced.
func (b *Broker) finishDelete(ctx context.Context, k protocol.Key) error {
	rec := b.registry.record(k)
	if rec == nil || rec.Deleted {
		return nil
	}
	tail, err := b.tailOf(ctx, rec, rec.Head)
	if err != nil {
		return fmt.Errorf("read the head of %s: %w", k, err)
	}
	head := max(rec.Head, tail.Head)
	if !tail.Empty {
		w, err := b.write(ctx, deletion(rec, tail))
		if err != nil {
			return err
		}
		head = w.head
		b.tellDeletedHere(k)
		if err := b.node.Purge(ctx, logOf(rec)); err != nil {
			return fmt.Errorf("purge %s: %w", k, err)
		}
	} else {
		b.tellDeletedHere(k)
	}
	if err := b.cfg.Checkpoints.Remove(ctx, logOf(rec)); err != nil {
		return fmt.Errorf("remove the checkpoints of %s: %w", k, err)
	}
	if b.cfg.RemoveFiles != nil || b.cfg.split() {
		if err := b.removeFiles(ctx, rec); err != nil {
			b.log.Warn("files of a deleted session not removed", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
		}
	}
	now := b.nowMs()
	_, err = b.registry.change(ctx, k, func(r *protocol.SessionRecord) error {
		r.Deleted, r.Deleting, r.Status, r.Owner, r.Head, r.Floor, r.UpdatedAt = true, false, protocol.StatusEnded, "", head, head, now
		r.Argv, r.ResumeArgv, r.Env, r.EnvAllow, r.Limits, r.Cwd, r.Title, r.Exit = nil, nil, nil, nil, nil, "", "", nil
		r.PID, r.PIDStart, r.BootID = 0, 0, ""
		return nil
	})
	if err == nil {
		b.log.Info("session deleted", slog.String(protocol.LogSession, k.String()))
	}
	return err
}

// tellDeletedHere is tellDeleted where nobody else deletes; else the registry's
// watch tells (Broker.changed).
func (b *Broker) tellDeletedHere(k protocol.Key) {
	if !b.cfg.split() {
		b.tellDeleted(k)
	}
}

// sessionDeleted is the body of the last event of a deleted session.
type sessionDeleted struct {
	Type string `json:"type"`
}

// deletion is the takeover that writes the last record of a session.
func deletion(rec *protocol.SessionRecord, tail journal.Tail) takeover {
	return takeover{
		key: rec.Key(), after: tail.Run,
		allow: func(r *protocol.SessionRecord) error {
			if !r.Deleting {
				return ErrNotOwner
			}
			return nil
		},
		bodies: func(context.Context, journal.Tail, protocol.Seq) ([]any, error) {
			return []any{sessionDeleted{Type: protocol.TypeSessionDeleted}}, nil
		},
	}
}

// resumeDelete carries on a delete that was left unfinished.
func (b *Broker) resumeDelete(ctx context.Context, k protocol.Key) error {
	unlock, err := b.locks.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := b.latest(ctx, k); err != nil {
		return err
	}
	if err := b.silence(ctx, k); err != nil {
		return err
	}
	return b.finishDelete(ctx, k)
}
