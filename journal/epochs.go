package journal

import (
	"context"
	"errors"

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

// ReadOver is ReadEpochs for whoever takes what is left of a damaged log: where
// the record that holds after+1 cannot be read it begins with the first one
// behind that can. Errors: ErrUnavailable, ErrDamaged when no head can be told,
// ctx's.
func (n *Node) ReadOver(ctx context.Context, l Log, after protocol.Seq, maxBytes int) ([]*Record, error) {
	newest, err := n.newest(ctx, l)
	if err != nil || newest == nil || after >= newest.Last() {
		return nil, err
	}
	start, err := n.rd.locate(ctx, l, after+1, newest)
	if err != nil {
		return nil, err
	}
	first, err := n.rd.sound(ctx, l, start, after+1)
	if err != nil {
		return nil, err
	}
	if first == nil { // what is behind the damage is the head, or nothing
		return []*Record{newest}, nil
	}
	recs, err := n.rd.forward(ctx, walk{log: l, start: first.first, from: first.base, maxBytes: maxBytes})
	if len(recs) > 0 {
		return recs, nil // what is wrong behind them meets the next call
	}
	return nil, err
}

// Behind returns the first event behind after+1, which cannot be read, that Read
// can: not ok says that there is none. Errors like ReadOver.
func (n *Node) Behind(ctx context.Context, l Log, after protocol.Seq) (seq protocol.Seq, ok bool, err error) {
	for seq = after + 1; ; {
		recs, err := n.ReadOver(ctx, l, seq, 1)
		if err != nil || len(recs) == 0 {
			return 0, false, err
		}
		if rec := recs[0]; rec.base > seq {
			seq = rec.base
		} else { // it decodes, and does not join what is before it
			seq = rec.Last() + 1
		}
		switch recs, err := n.Read(ctx, l, seq-1, 1); {
		case err == nil:
			return seq, len(recs) > 0, nil
		case !errors.Is(err, ErrDamaged):
			return 0, false, err
		}
	}
}

// sound returns the first record at or behind stream sequence pos that can be
// read and ends at or above seq; nil: none.
func (r *reader) sound(ctx context.Context, l Log, pos uint64, seq protocol.Seq) (*Record, error) {
	var asm assembler
	for {
		raw, ok, err := r.next(ctx, l, pos)
		if err != nil || !ok {
			return nil, err
		}
		pos = raw.pos + 1
		m, err := raw.decode()
		if err != nil {
			asm.set = nil
			continue
		}
		rec, err := asm.add(m)
		if err != nil { // a part of it is another's
			continue
		}
		if rec != nil && rec.Last() >= seq {
			return rec, nil
		}
	}
}

// Newest returns where the newest record of a log is: the head of its chain.
// ok is false of an empty log. Errors like Tail.
func (n *Node) Newest(ctx context.Context, l Log) (p Place, ok bool, err error) {
	rec, err := n.newest(ctx, l)
	if err != nil || rec == nil {
		return Place{}, false, err
	}
	return rec.Place(), true, nil
}
