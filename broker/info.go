package broker

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"rejoin/journal"
	"rejoin/protocol"
)

// Info returns a session as it is: the owner's word where it has one, else the
// registry's.
func (b *Broker) Info(ctx context.Context, p Principal, session string) (protocol.SessionInfo, error) {
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	return b.info(ctx, rec), nil
}

func (b *Broker) info(ctx context.Context, rec *protocol.SessionRecord) protocol.SessionInfo {
	if !owned(rec) {
		return b.known(rec)
	}
	reply, rec, _, err := b.askOwner(ctx, rec, infoTimeout, request(protocol.OpInfo, rec.Key()))
	if err != nil {
		b.log.Debug("owner does not tell", slog.String(protocol.LogSession, rec.Key().String()), slog.Any(protocol.LogError, err))
	}
	for _, live := range reply.Infos {
		if live.Workspace == rec.Workspace && live.ID == rec.ID && live.Run >= rec.Run {
			return b.ending(rec, live.SessionInfo)
		}
	}
	if now := b.registry.record(rec.Key()); now != nil { // it may have ended while we asked
		rec = now
	}
	return b.known(rec)
}

// known is what the registry says of a session, and the restart policy.
func (b *Broker) known(rec *protocol.SessionRecord) protocol.SessionInfo {
	info := rec.Info()
	info.Restarting = terminal(rec.Status) && b.due(rec)
	return info
}

// ending adds to an owner's word what the policy is going to decide when the end
// that the owner tells of is in the registry.
func (b *Broker) ending(rec *protocol.SessionRecord, live protocol.SessionInfo) protocol.SessionInfo {
	if !terminal(live.Status) {
		return live
	}
	end := *rec
	end.Status, end.Exit = live.Status, live.Exit
	live.Restarting = b.mayRestart(&end)
	return live
}

// ListParams of list_sessions.
type ListParams struct {
	Limit  int    // at most so many; zero: all
	Before string // a session id: older ones follow
	State  string // running, exited, interrupted; empty: any
	Agent  string // empty: any
}

// List returns the sessions of the principal's workspace, newest first.
func (b *Broker) List(ctx context.Context, p Principal, l ListParams) ([]protocol.SessionInfo, error) {
	if err := b.await(ctx); err != nil {
		return nil, err
	}
	var before *protocol.SessionRecord
	if l.Before != "" {
		before = b.registry.record(protocol.Key{Workspace: p.Workspace, Session: l.Before})
		if before == nil {
			return nil, protocol.ErrSessionNotFound(l.Before)
		}
	}
	live := b.live(ctx, p.Workspace)
	recs := b.registry.records(func(r *protocol.SessionRecord) bool {
		return r.Workspace == p.Workspace && !r.Deleting && !r.Deleted && (l.Agent == "" || r.Agent == l.Agent) &&
			(before == nil || newestFirst(before, r) < 0)
	})
	slices.SortFunc(recs, newestFirst)
	out := make([]protocol.SessionInfo, 0, len(recs))
	for _, rec := range recs {
		info := b.known(rec)
		if now, ok := live[rec.ID]; ok && running(rec) && now.Run >= rec.Run {
			info = b.ending(rec, now)
		}
		if l.State != "" && info.State != l.State {
			continue
		}
		out = append(out, info)
		if len(out) == l.Limit {
			break
		}
	}
	return out, nil
}

func newestFirst(x, y *protocol.SessionRecord) int {
	return cmp.Or(cmp.Compare(y.CreatedAt, x.CreatedAt), cmp.Compare(y.ID, x.ID))
}

// live asks each worker that owns something about all its sessions at once.
func (b *Broker) live(ctx context.Context, workspace string) map[string]protocol.SessionInfo {
	owners := make(map[string]bool)
	for _, rec := range b.registry.records(owned) {
		owners[rec.Owner] = true
	}
	out := make(map[string]protocol.SessionInfo)
	for owner := range owners {
		reply, err := b.ask(ctx, owner, infoTimeout, protocol.WorkerRequest{Op: protocol.OpInfo})
		if err != nil {
			b.log.Debug("worker does not tell", slog.String(protocol.LogWorker, owner), slog.Any(protocol.LogError, err))
			continue
		}
		for _, info := range reply.Infos {
			if info.Workspace == workspace {
				out[info.ID] = info.SessionInfo
			}
		}
	}
	return out
}

// Log finds the log of a session that the principal may see.
func (b *Broker) Log(ctx context.Context, p Principal, session string) (journal.Log, error) {
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return journal.Log{}, err
	}
	return logOf(rec), nil
}

// Stderr returns what is kept of a run's stderr; run 0 is the newest.
func (b *Broker) Stderr(ctx context.Context, p Principal, session string, run protocol.Run) (string, error) {
	if err := p.need(RoleOperator); err != nil {
		return "", err
	}
	rec, err := b.find(ctx, p, session)
	if err != nil {
		return "", err
	}
	if b.cfg.split() {
		return b.stderrOf(ctx, rec, run)
	}
	if b.cfg.StderrTail == nil {
		return "", protocol.Errorf(protocol.ReasonUnsupported, "this server keeps no stderr")
	}
	return b.cfg.StderrTail(b.cfg.DataDir, rec.Key(), run)
}
