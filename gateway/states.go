package gateway

import (
	"context"
	"encoding/hex"
	"errors"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

func getSnapshot(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	at, hasAt, err := r.params.Uint("at")
	if err != nil {
		return reply{}, err
	}
	epoch, _, err := r.params.String("epoch")
	if err != nil {
		return reply{}, err
	}
	log, err := c.srv.sessions.Log(ctx, r.who, id)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var snap snapshot.Snapshot
	if hasAt {
		snap, err = c.stateAt(ctx, r.who, log, protocol.Seq(at), protocol.Epoch(epoch))
	} else {
		snap, err = c.stateNow(ctx, log, protocol.Epoch(epoch))
	}
	if err != nil {
		return reply{}, err
	}
	dst := append(make([]byte, 0, len(snap.State)+512), '{')
	dst = appendSnapshotMembers(dst, snap)
	if snap.Damaged {
		dst = append(dst, `,"damaged":true`...)
	}
	dst = append(dst, `,"state":`...)
	dst = append(dst, snap.State...)
	return reply{result: append(dst, '}')}, nil
}

func (c *conn) stateNow(ctx context.Context, log journal.Log, epoch protocol.Epoch) (snapshot.Snapshot, error) {
	snap, err := c.srv.folds.Latest(ctx, log, 0)
	if err == nil && epoch != "" && epoch != snap.Epoch {
		var at extent
		if at, err = c.extentOf(ctx, log); err == nil {
			err = at.outside(protocol.ReasonEpoch, "the epoch is %s", snap.Epoch)
		}
	}
	return snap, err
}

// stateAt is the state after the event at, any from before the first one that is
// kept up to the last.
func (c *conn) stateAt(ctx context.Context, who broker.Principal, log journal.Log, at protocol.Seq, epoch protocol.Epoch) (snapshot.Snapshot, error) { // I-J6
	extent, err := c.settledExtent(ctx, who, log, wish{hasAfter: true, after: at, epoch: epoch})
	if err == nil {
		err = extent.checkEpoch(epoch)
	}
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	snap, err := c.srv.folds.At(ctx, log, at)
	if errors.Is(err, journal.ErrTrimmed) {
		if now, nerr := c.extentOf(ctx, log); nerr == nil { // trimmed since the extent was read, perhaps
			extent = now
		}
		err = extent.outside(protocol.ReasonTrimmed, "states are kept from %d to %d", extent.floor-1, extent.head)
	}
	return snap, err
}

// chainHead tells the head of a log's chain: whoever keeps it can prove later
// that nothing up to it was changed.
func (c *conn) chainHead(ctx context.Context, log journal.Log) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	p, ok, err := c.srv.history.Newest(ctx, log)
	if err == nil && !ok {
		err = protocol.Errorf(protocol.ReasonDamaged, "the log of session %s is empty", log.Key.Session)
	}
	if err != nil {
		return reply{}, err
	}
	return encode(struct {
		SessionID string         `json:"sessionId"`
		Epoch     protocol.Epoch `json:"epoch"`
		Seq       protocol.Seq   `json:"seq"`
		SHA256    string         `json:"sha256"`
	}{log.Key.Session, p.Epoch, p.Last, hex.EncodeToString(p.Sum[:])})
}

func verifySession(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	head, _, err := r.params.Bool("head")
	if err != nil {
		return reply{}, err
	}
	kept, expects, err := expectedHead(r.params)
	if err != nil {
		return reply{}, err
	}
	log, err := c.srv.sessions.Log(ctx, r.who, id)
	if err != nil {
		return reply{}, err
	}
	if head {
		return c.chainHead(ctx, log)
	}
	select {
	case c.srv.verifying <- struct{}{}:
		defer func() { <-c.srv.verifying }()
	default:
		return reply{}, protocol.Errorf(protocol.ReasonOverloaded, "%d sessions are being verified already", protocol.VerifiesMax).Met("VerifiesMax")
	}
	report, err := c.srv.folds.Verify(ctx, log)
	if err == nil && expects {
		var problem string
		if problem, err = c.srv.folds.VerifyHead(ctx, log, kept); problem != "" {
			report.Problems = append(report.Problems, problem)
		}
	}
	if err != nil {
		return reply{}, err
	}
	return encode(struct {
		SessionID string `json:"sessionId"`
		Clean     bool   `json:"clean"`
		snapshot.Report
	}{id, len(report.Problems) == 0, report})
}

// expectedHead is the head of a chain that the client kept.
func expectedHead(p protocol.Params) (kept snapshot.ChainHead, ok bool, err error) {
	o, ok, err := p.Object("expectHead")
	if err != nil || !ok {
		return kept, false, err
	}
	epoch, _, err := o.String("epoch")
	if err != nil {
		return kept, false, err
	}
	seq, _, err := o.Uint("seq")
	if err != nil {
		return kept, false, err
	}
	sum, _, err := o.String("sha256")
	if err != nil {
		return kept, false, err
	}
	b, err := hex.DecodeString(sum)
	if err != nil || copy(kept.Sum[:], b) != len(b) || len(b) != len(kept.Sum) {
		return kept, false, protocol.Errorf(protocol.ReasonInvalidParams, "expectHead.sha256 must be %d hex digits", 2*len(kept.Sum))
	}
	kept.Epoch, kept.Seq = protocol.Epoch(epoch), protocol.Seq(seq)
	return kept, true, nil
}
