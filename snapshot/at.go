package snapshot

import (
	"container/list"
	"context"
	"errors"
	"fmt"

	"rejoin/journal"
	"rejoin/protocol"
)

// pastStates are states of the past that somebody asked for, encoded. Guarded by
// Reader.mu.
type pastStates struct {
	logs  map[journal.Log]map[protocol.Seq]*list.Element // of *pastState, by the seq that was asked for
	lru   *list.List                                     // newest first; the oldest go when bytes pass keptBytesMax
	bytes int
}

type pastState struct {
	log   journal.Log
	asked protocol.Seq
	snap  Snapshot
	bytes uint64 // folding.bytes
	ts    int64
}

func newPastStates() pastStates {
	return pastStates{logs: make(map[journal.Log]map[protocol.Seq]*list.Element), lru: list.New()}
}

// nearest returns the kept state of the greatest seq at or below seq.
func (p *pastStates) nearest(l journal.Log, seq protocol.Seq) *pastState {
	var best *list.Element
	if e, ok := p.logs[l][seq]; ok {
		best = e
	} else {
		for asked, e := range p.logs[l] {
			if asked <= seq && (best == nil || asked > best.Value.(*pastState).asked) {
				best = e
			}
		}
	}
	if best == nil {
		return nil
	}
	p.lru.MoveToFront(best)
	return best.Value.(*pastState)
}

func (p *pastStates) put(s *pastState) {
	if p.logs[s.log] == nil {
		p.logs[s.log] = make(map[protocol.Seq]*list.Element)
	}
	if e, ok := p.logs[s.log][s.asked]; ok {
		p.remove(e)
	}
	if p.logs[s.log] == nil {
		p.logs[s.log] = make(map[protocol.Seq]*list.Element)
	}
	p.logs[s.log][s.asked] = p.lru.PushFront(s)
	p.bytes += len(s.snap.State)
	for p.lru.Len() > 1 && p.bytes > keptBytesMax {
		p.remove(p.lru.Back())
	}
}

func (p *pastStates) remove(e *list.Element) {
	s := p.lru.Remove(e).(*pastState)
	p.bytes -= len(s.snap.State)
	delete(p.logs[s.log], s.asked)
	if len(p.logs[s.log]) == 0 {
		delete(p.logs, s.log)
	}
}

// At returns the state as of seq, which lies in the newest epoch or is the one
// before it. Where no event has that seq (between two epochs), it is the state
// after the newest one before. Errors: journal.ErrTrimmed below floor−1 and
// above the head; those of journal.Node.Tail, Floor and ReadEpochs.
func (r *Reader) At(ctx context.Context, l journal.Log, seq protocol.Seq) (Snapshot, error) { // I-J6
	var snap Snapshot
	err := attempts(func(lossy bool) (err error) {
		snap, err = r.at(ctx, l, seq, lossy)
		return err
	})
	return snap, err
}

// errOutside: seq is not in the retained log; not even another try finds it.
var errOutside = errors.New("snapshot: outside the retained log")

func (r *Reader) at(ctx context.Context, l journal.Log, seq protocol.Seq, lossy bool) (Snapshot, error) {
	tail, err := r.node.Tail(ctx, l)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the head of %s: %w", l.Key, err)
	}
	floor, err := r.node.Floor(ctx, l)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the floor of %s: %w", l.Key, err)
	}
	if seq+1 < floor || seq > tail.Head {
		return Snapshot{}, fmt.Errorf("%s at %d: %w: %w", l.Key, seq, errOutside, journal.ErrTrimmed)
	}
	near := r.near(l, seq)
	if near != nil && near.asked == seq {
		return near.snap, nil
	}
	if near != nil && near.snap.Seq+1 < floor { // what follows it was trimmed
		near = nil
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	f, err := r.baseNear(ctx, l, tail, seq, near, lossy)
	if err != nil {
		return Snapshot{}, fmt.Errorf("fold %s: %w", l.Key, err)
	}
	if err := r.advance(ctx, l, f, seq, seq); err != nil {
		return Snapshot{}, err
	}
	if f.lost && f.state.Seq == 0 && seq+1 == floor { // what remains of the state there is the one asked for
		f.state.Epoch, f.state.Seq = tail.Epoch, seq
	}
	p := &pastState{log: l, asked: seq, snap: r.table.Take(f.state), bytes: f.bytes, ts: f.ts}
	p.snap.Damaged = f.lost
	r.tell(l, f)
	if p.snap.Epoch == "" { // no event is in it, which does not make it another session's
		p.snap.Epoch = tail.Epoch
		if p.snap.Fold, err = r.foldOf(ctx, l); err != nil {
			return Snapshot{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past.put(p)
	return p.snap, nil
}

// near returns the kept state nearest to seq.
func (r *Reader) near(l journal.Log, seq protocol.Seq) *pastState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.past.nearest(l, seq)
}

// nearBy is how near a kept state must be for checkpoints not to be looked at.
const nearBy = 1024

// baseNear is base, or the kept state where that is nearer.
func (r *Reader) baseNear(ctx context.Context, l journal.Log, tail journal.Tail, seq protocol.Seq, near *pastState, lossy bool) (*folding, error) {
	var f *folding
	if near == nil || near.asked+nearBy < seq {
		var err error
		if f, err = r.base(ctx, l, tail, seq, quest{lossy: lossy}); err != nil {
			return nil, err
		}
	}
	if near == nil || f != nil && f.state.Seq >= near.snap.Seq {
		return f, nil
	}
	s, err := Decode(near.snap.State)
	if err != nil {
		return nil, err
	}
	return &folding{state: s, bytes: near.bytes, ts: near.ts, lossy: lossy, lost: near.snap.Damaged}, nil
}

// foldOf returns the fold of a session as its first event, or the registry,
// names it.
func (r *Reader) foldOf(ctx context.Context, l journal.Log) (protocol.FoldVersion, error) {
	recs, err := r.read(ctx, l, 0, 1, true)
	if err != nil {
		return protocol.FoldVersion{}, fmt.Errorf("read the beginning of %s: %w", l.Key, err)
	}
	if len(recs) > 0 && recs[0].Base() == 1 {
		e, err := protocol.ParseEventLine(recs[0].Line(0))
		var b protocol.SessionStart
		if err == nil && e.Source == protocol.SourceBroker && eventType(e.Body) == protocol.TypeSessionStart && read(e.Body, &b) {
			return r.table.VersionOf(b.Adapter), nil
		}
	}
	o, _ := r.origin(l.Key)
	return r.table.VersionOf(o.Adapter), nil
}
