package snapshot

import (
	"context"
	"errors"
	"fmt"

	"rejoin/journal"
	"rejoin/protocol"
)

// A ChainHead is what somebody kept of a chain: where a record ended that was the
// newest once, and its hash.
type ChainHead struct {
	Epoch protocol.Epoch
	Seq   protocol.Seq
	Sum   [32]byte
}

// VerifyHead says why the log does not hold the record that kept names; empty when
// it does. Then no record before that one has been changed since: that the chain
// leads from there to its end is Verify's. Errors: journal.ErrUnavailable, ctx's.
func (r *Reader) VerifyHead(ctx context.Context, l journal.Log, kept ChainHead) (problem string, err error) {
	if kept.Seq == 0 {
		return "kept head: event 0 is none", nil
	}
	floor, err := r.node.Floor(ctx, l)
	if err == nil && kept.Seq < floor {
		return fmt.Sprintf("kept head: event %d is not kept any more, the log begins with %d", kept.Seq, floor), nil
	}
	var recs []*journal.Record
	if err == nil {
		recs, err = r.node.ReadEpochs(ctx, l, kept.Seq-1, 1)
	}
	switch {
	case errors.Is(err, journal.ErrDamaged), errors.Is(err, journal.ErrTrimmed):
		return fmt.Sprintf("kept head: event %d cannot be read: %v", kept.Seq, err), nil
	case err != nil:
		return "", fmt.Errorf("verify the kept head of %s: %w", l.Key, err)
	case len(recs) == 0:
		return fmt.Sprintf("kept head: the log ends before event %d", kept.Seq), nil
	}
	switch p := recs[0].Place(); {
	case p.Epoch != kept.Epoch:
		return fmt.Sprintf("kept head: event %d of epoch %s is not in the log, which goes on there with event %d of epoch %s", kept.Seq, kept.Epoch, p.Base, p.Epoch), nil
	case p.Last != kept.Seq:
		return fmt.Sprintf("kept head: no record ends with event %d", kept.Seq), nil
	case p.Sum != kept.Sum:
		return fmt.Sprintf("kept head: the record that ends with event %d has another hash, %x", kept.Seq, p.Sum), nil
	}
	return "", nil
}
