package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// The restart policy where several brokers share a registry. Every one of them
// plans, so that none is needed; the compare-and-set that grants the run decides.
// What a plan depends on is therefore in the record: how often the policy has
// started the session lately (Restarted), and after which run it is to rest (Rests).

// wants reports whether the policy wants a session again: it failed, or its owner
// was lost, and nobody has said since that it is to rest.
func wants(r *protocol.SessionRecord) bool {
	if r.Restart != protocol.RestartResume || r.Deleting || r.Deleted || r.Rests == r.Run {
		return false
	}
	return r.Status == protocol.StatusInterrupted || failed(r)
}

// recent is how much of Restarted lies in the window.
func recent(r *protocol.SessionRecord, now time.Time) []int64 {
	return slices.DeleteFunc(slices.Clone(r.Restarted), func(ms int64) bool {
		return now.Sub(time.UnixMilli(ms)) >= protocol.RestartWindow
	})
}

// due reports whether a session is about to be started again.
func (b *Broker) due(rec *protocol.SessionRecord) bool {
	if !b.cfg.split() {
		return b.restarts.due(rec.Key())
	}
	return wants(rec) && len(recent(rec, b.cfg.Now())) < len(restartDelays)
}

// mayRestart reports whether a session is about to be started again when its record
// is end.
func (b *Broker) mayRestart(end *protocol.SessionRecord) bool {
	if !b.cfg.split() {
		return b.restarts.due(end.Key()) || failed(end) && b.restarts.room(end.Key())
	}
	return b.due(end)
}

// planShared plans what is to become of a session that the policy wants: its next
// run, after the pause that is due to it, or its rest.
func (b *Broker) planShared(rec *protocol.SessionRecord) {
	pause := time.Duration(0)
	if n := len(recent(rec, b.cfg.Now())); n < len(restartDelays) {
		pause = restartDelays[n]
	}
	b.restarts.planRun(rec.Key(), rec.Run, pause)
}

// restartShared carries out what planShared planned, unless the session is not as it
// was then.
func (b *Broker) restartShared(ctx context.Context, k protocol.Key) {
	run, ok := b.restarts.planned(k)
	if !ok {
		return
	}
	rec, err := b.registry.Record(ctx, k)
	if err != nil {
		b.restarts.again(k, journalWait)
		return
	}
	switch {
	case rec == nil || rec.Run != run || !terminal(rec.Status) || rec.Deleting || rec.Deleted || rec.Rests == run:
		b.restarts.done(k)
		return
	case len(recent(rec, b.cfg.Now())) >= len(restartDelays):
		b.restarts.refused.Add(1)
		b.log.Warn("session fails too often to be started again", slog.String(protocol.LogSession, k.String()))
		if err := b.letRest(ctx, rec); err != nil {
			b.restarts.again(k, journalWait)
		}
		return
	case b.node.ShardHealth(rec.Shard).Refuses():
		b.restarts.again(k, journalWait)
		return
	}
	if _, err := b.pick(ctx, rec); err != nil {
		b.restarts.again(k, workerWait) // no such worker runs yet
		return
	}
	b.tryAgain(ctx, rec)
}

// tryAgain grants a session the run that the policy wants.
func (b *Broker) tryAgain(ctx context.Context, rec *protocol.SessionRecord) {
	k := rec.Key()
	work, done := b.work(ctx, 2*startTimeout)
	defer done()
	b.restarts.done(k) // before: the new child may fail, and be planned for, while we are here
	_, err := b.resume(work, rec, grant{startedBy: rec.StartedBy, policy: true})
	note := b.log.With(slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
	switch {
	case err == nil:
		b.restarted.Add(1)
		return
	case errors.Is(err, journal.ErrFenced):
		return // another broker was faster
	case ctx.Err() != nil:
		note.Warn("restart cut short by the server's stop")
		return
	}
	note.Warn("restart failed; it is tried again")
	if now := b.registry.record(k); now != nil && terminal(now.Status) && !now.Deleting && !now.Deleted {
		b.planShared(now)
	}
}

// rest notes that a session which has ended is not to be started again by the policy,
// for every broker; in one process nothing is to be noted.
func (b *Broker) rest(ctx context.Context, rec *protocol.SessionRecord) error {
	if !b.cfg.split() || !wants(rec) {
		return nil
	}
	return b.letRest(ctx, rec)
}

// letRest is rest while rec's run is the newest.
func (b *Broker) letRest(ctx context.Context, rec *protocol.SessionRecord) error {
	b.restarts.done(rec.Key())
	err := b.registry.Update(ctx, rec.Key(), rec.Run, func(r *protocol.SessionRecord) { r.Rests = r.Run })
	if errors.Is(err, journal.ErrFenced) {
		return nil
	}
	return err
}

// A grant is on whose behalf a run is granted.
type grant struct {
	startedBy string // id of the token
	policy    bool   // nobody asked: only if the session is as it was seen, and it counts
	move      bool   // only if the session is as it was seen
}

// admit looks at the record in the compare-and-set that grants a run, and counts.
func (g grant) admit(r, seen *protocol.SessionRecord, now time.Time) error {
	if g.move && r.Run != seen.Run {
		return ErrNotOwner
	}
	if !g.policy {
		return nil
	}
	if r.Run != seen.Run || r.Rests == r.Run {
		return ErrNotOwner
	}
	done := recent(r, now)
	if len(done) >= len(restartDelays) {
		return ErrNotOwner
	}
	r.Restarted = append(done, now.UnixMilli())
	return nil
}
