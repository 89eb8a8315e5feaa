package journal

import (
	"context"

	"rejoin/protocol"
)

// ReadEpochs is Read over all retained epochs, for folds: what a session adds
// up to does not begin anew with an epoch. Between two epochs, and before the
// first retained record, seqs may be missing; inside an epoch they are dense.
// Errors: ErrDamaged (*DamageError), ErrUnavailable, ctx's.
func (n *Node) ReadEpochs(ctx context.Context, l Log, after protocol.Seq, maxBytes int) ([]*Record, error) {
	rec, err := n.newest(ctx, l)
	if err != nil || rec == nil || after >= rec.Last() {
		return nil, err
	}
	start, err := n.rd.locate(ctx, l, after+1, rec)
	if err != nil {
		return nil, err
	}
	recs, err := n.rd.forward(ctx, walk{log: l, start: start, from: after + 1, maxBytes: maxBytes})
	if len(recs) > 0 {
		return recs, nil // what is wrong behind them meets the next call
	}
	return nil, err
}
