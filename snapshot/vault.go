package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"rejoin/journal"
	"rejoin/protocol"
)

// vault reads and writes what is stored of one log.
type vault struct {
	node  *journal.Node
	snaps *journal.Snaps
	log   *slog.Logger
}

func newVault(n *journal.Node, log *slog.Logger) vault {
	return vault{node: n, snaps: n.Snaps(), log: log}
}

// list returns the seqs of the stored checkpoints, rising.
func (v vault) list(ctx context.Context, l journal.Log) ([]protocol.Seq, error) {
	names, err := v.snaps.List(ctx, l)
	if err != nil {
		return nil, err
	}
	var seqs []protocol.Seq
	for _, name := range names {
		if seq, ok := checkpointSeq(name); ok {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// get returns a checkpoint. Errors: ErrDamaged, journal.ErrNoBlob,
// journal.ErrUnavailable, ctx's.
func (v vault) get(ctx context.Context, l journal.Log, seq protocol.Seq) (*checkpoint, error) {
	b, err := v.snaps.Get(ctx, l, checkpointName(seq))
	if err != nil {
		return nil, err
	}
	c, err := decodeCheckpoint(b)
	if err != nil {
		return nil, err
	}
	if c.seq != seq || c.state.SessionID != l.Key.Session {
		return nil, fmt.Errorf("%w: checkpoint %d is another one", ErrDamaged, seq)
	}
	return c, nil
}

// usable returns a checkpoint, or nil when it is gone or damaged, which is
// reported: then another one serves. Errors: journal.ErrUnavailable, ctx's.
func (v vault) usable(ctx context.Context, l journal.Log, seq protocol.Seq) (*checkpoint, error) {
	c, err := v.get(ctx, l, seq)
	switch {
	case errors.Is(err, ErrDamaged):
		v.report(l, seq, err)
		return nil, nil
	case errors.Is(err, journal.ErrNoBlob):
		return nil, nil // thinned out meanwhile
	}
	return c, err
}

func (v vault) report(l journal.Log, seq protocol.Seq, err error) {
	v.log.Warn("checkpoint is left out", slog.String(protocol.LogSession, l.Key.String()),
		slog.Uint64(protocol.LogSeq, uint64(seq)), slog.Any(protocol.LogError, err))
}

// page returns a page of a ledger. Errors: ErrDamaged (also when it is gone),
// journal.ErrUnavailable, ctx's.
func (v vault) page(ctx context.Context, l journal.Log, n int) ([]entry, error) {
	b, err := v.snaps.Get(ctx, l, pageName(n))
	if errors.Is(err, journal.ErrNoBlob) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var page []entry
	if err == nil {
		page, err = decodePage(b)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger page %d: %w", n, err)
	}
	return page, nil
}

// ledger builds the ledger of c. Errors: ErrDamaged, journal.ErrUnavailable, ctx's.
func (v vault) ledger(ctx context.Context, l journal.Log, c *checkpoint) (*Ledger, error) {
	g := NewLedger()
	for n := range c.pages {
		page, err := v.page(ctx, l, n)
		if err == nil {
			err = g.restore(page, true)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := g.restore(c.ledger.rest, false); err != nil {
		return nil, err
	}
	g.resolved = c.ledger.resolved
	return g, nil
}

// salvage builds what is left of the ledger of c. Its pages have other numbers
// than the stored ones: all are to be stored anew. Errors: journal.ErrUnavailable,
// ctx's.
func (v vault) salvage(ctx context.Context, l journal.Log, c *checkpoint) (*Ledger, error) {
	g := NewLedger()
	for n := range c.pages {
		page, err := v.page(ctx, l, n)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		g.take(page)
	}
	g.take(c.ledger.rest)
	g.resolved = c.ledger.resolved
	return g, nil
}

// draft is a checkpoint that is to be stored.
type draft struct {
	header
	state  []byte
	ledger ledgerCut
	last   bool // of its run, as far as can be told
}

// newDraft takes a checkpoint of a state and its ledger; it may be called under
// the session's lock. Redo are ledger pages of earlier drafts that were not
// stored.
func newDraft(f Folds, s *protocol.State, ledger *Ledger, ts int64, bytes uint64, redo map[int]struct{}) *draft {
	d := &draft{state: Encode(s), ledger: ledger.cut(redo)}
	d.header = header{
		epoch: s.Epoch, seq: s.Seq, run: s.Run, ts: ts, bytes: bytes,
		fold: f.VersionOf(s.Agent.Adapter), pages: d.ledger.pages,
	}
	return d
}

// put stores a draft, whose events must be durable, and verifies it: the pages
// of the ledger that it needs first. Errors: ErrDamaged, those of
// journal.Node.Place and journal.Snaps.
func (v vault) put(ctx context.Context, l journal.Log, d *draft) error {
	var err error
	if d.place, err = v.node.Place(ctx, l, d.seq); err != nil {
		return fmt.Errorf("find record: %w", err)
	}
	if d.place.Epoch != d.epoch {
		return fmt.Errorf("find record: %w: epoch %s has ended", journal.ErrTrimmed, d.epoch)
	}
	d.hash = sha256.Sum256(d.state)
	blob, err := encodeCheckpoint(&d.header, d.state, &d.ledger)
	if err != nil {
		return err
	}
	for n, page := range d.ledger.changed {
		if err := v.keep(ctx, l, pageName(n), encodePage(page), func(b []byte) error {
			_, err := decodePage(b)
			return err
		}); err != nil {
			return fmt.Errorf("ledger page %d: %w", n, err)
		}
	}
	return v.keep(ctx, l, checkpointName(d.seq), blob, func(b []byte) error {
		_, err := decodeCheckpoint(b)
		return err
	})
}

// keep stores a blob, reads it back and decodes it.
func (v vault) keep(ctx context.Context, l journal.Log, name string, blob []byte, decode func([]byte) error) error {
	if err := v.snaps.Put(ctx, l, name, blob); err != nil {
		return err
	}
	got, err := v.snaps.Get(ctx, l, name)
	if err == nil {
		err = verify(blob, got)
	}
	if err == nil {
		err = decode(got)
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// again stores a blob anew, as a message of this process. Errors: ErrDamaged when
// it cannot be read, or is gone; those of keep.
func (v vault) again(ctx context.Context, l journal.Log, name string, decode func([]byte) error) error {
	b, err := v.snaps.Get(ctx, l, name)
	if errors.Is(err, journal.ErrNoBlob) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err == nil {
		err = decode(b)
	}
	if err != nil {
		return err
	}
	return v.keep(ctx, l, name, b, decode)
}
