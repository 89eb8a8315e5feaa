package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// A DamageError says where a log cannot be read. It is an ErrDamaged.
type DamageError struct {
	Log Log
	Seq protocol.Seq // the first seq that cannot be read, as far as known
	Why string
}

// Error names the session, the seq and what is wrong.
func (e *DamageError) Error() string {
	return "journal: damaged: " + e.Log.Key.String() + " at seq " + strconv.FormatUint(uint64(e.Seq), 10) + ": " + e.Why
}

// Is makes a DamageError an ErrDamaged.
func (e *DamageError) Is(err error) bool { return err == ErrDamaged }

// reader reads logs. Heads come from the leader, what lies below a known head
// from any replica. Safe for concurrent use.
type reader struct {
	n       *Node
	cluster bool       // a replica that answers may lag, or answer nothing
	leader  *nats.Conn // where leaders are asked
	reach   *reach     // of leader
	index   *index
	gets    atomic.Uint64 // direct gets of single messages, for tests

	mu     sync.Mutex
	starts map[epochStart]protocol.Seq // first seq of epochs that are not their log's first; bounded by epochStartsMax
}

type epochStart struct {
	log   Log
	epoch protocol.Epoch
}

// epochStartsMax bounds what is remembered; a full table starts anew.
const epochStartsMax = 4096

func newReader(n *Node, leader *nats.Conn, r *reach) *reader {
	return &reader{n: n, cluster: n.remote != nil, leader: leader, reach: r, index: newIndex(), starts: make(map[epochStart]protocol.Seq)}
}

// over returns a reader that asks leaders over another connection.
func (r *reader) over(leader *nats.Conn, reach *reach) *reader {
	o := newReader(r.n, leader, reach)
	o.index = r.index
	return o
}

// newest returns the newest complete record of l through the leader; nil of an
// empty log, or of one that holds only a cut-off set.
func (r *reader) newest(ctx context.Context, l Log) (*Record, error) {
	last, err := lastOver(ctx, r.leader, r.reach, l)
	if err != nil || last.rec == nil {
		return nil, err
	}
	rec, err := r.complete(ctx, l, last.rec)
	if err != nil {
		return nil, err
	}
	return rec, nil
}

// complete returns the newest complete record at or before message m,
// collecting the parts of a set and skipping sets that were cut off. nil: none.
func (r *reader) complete(ctx context.Context, l Log, m *Record) (*Record, error) {
	for {
		if m.whole() {
			return m, nil
		}
		if m.complete() {
			return r.collect(ctx, l, m)
		}
		if m.back == 0 {
			return nil, nil
		}
		p, err := r.predecessor(ctx, l, m)
		if err != nil {
			return nil, err
		}
		m = p
	}
}

// collect joins the set whose last part is m.
func (r *reader) collect(ctx context.Context, l Log, m *Record) (*Record, error) {
	set := make([]*Record, m.parts)
	for i := len(set) - 1; ; i-- {
		set[i] = m
		if i == 0 {
			break
		}
		p, err := r.predecessor(ctx, l, m)
		if err != nil {
			return nil, err
		}
		if !m.follows(p) {
			return nil, &DamageError{Log: l, Seq: m.base, Why: "a part is missing"}
		}
		m = p
	}
	rec, err := joinParts(set)
	if err != nil {
		return nil, &DamageError{Log: l, Seq: m.base, Why: err.Error()}
	}
	return rec, nil
}

// predecessor reads the message before m and checks the chain. Errors:
// ErrTrimmed when it is no longer there.
func (r *reader) predecessor(ctx context.Context, l Log, m *Record) (*Record, error) {
	raw, ok, err := r.at(ctx, l, m.back)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrTrimmed
	}
	p, err := raw.decode()
	if err != nil {
		return nil, &DamageError{Log: l, Seq: m.base - 1, Why: err.Error()}
	}
	if p.sum != m.prev {
		return nil, &DamageError{Log: l, Seq: m.base - 1, Why: "the chain is broken"}
	}
	return p, nil
}

// prior returns the complete record before rec, nil when rec is the first of
// its epoch that is retained.
func (r *reader) prior(ctx context.Context, l Log, rec *Record) (*Record, error) {
	if rec.back == 0 {
		return nil, nil
	}
	m := &Record{header: header{prev: rec.prev, base: rec.base}, back: rec.back}
	p, err := r.predecessor(ctx, l, m)
	if err == nil {
		p, err = r.complete(ctx, l, p)
	}
	switch {
	case errors.Is(err, ErrTrimmed):
		return nil, nil
	case err != nil || p == nil || p.epoch != rec.epoch:
		return nil, err
	case p.Last()+1 != rec.base:
		return nil, &DamageError{Log: l, Seq: p.Last() + 1, Why: "the seqs are not dense"}
	}
	return p, nil
}

// assembler makes records of messages in order: parts are joined, a set that
// another record cuts off is skipped.
type assembler struct{ set []*Record }

// add takes the next message and returns the record it completes, or nil.
func (a *assembler) add(m *Record) (*Record, error) {
	switch {
	case m.whole():
		a.set = nil
		return m, nil
	case m.part == 1:
		a.set = append(a.set[:0:0], m)
	case len(a.set) > 0 && m.follows(a.set[len(a.set)-1]):
		a.set = append(a.set, m)
	default:
		a.set = nil
		return nil, nil
	}
	if !m.complete() {
		return nil, nil
	}
	set := a.set
	a.set = nil
	return joinParts(set)
}

// walk is one forward read.
type walk struct {
	log      Log
	start    uint64         // stream sequence to begin at
	prev     *Record        // the complete record before start, when it is at hand
	from     protocol.Seq   // records that end before it are passed over
	epoch    protocol.Epoch // not "": only records of it
	maxBytes int
}

// forward reads the records of w, verified against each other. It returns what
// verifies together with what is wrong behind it.
func (r *reader) forward(ctx context.Context, w walk) ([]*Record, error) {
	var (
		out     []*Record
		asm     assembler
		chain   chainHash
		chained bool
		size    int
		asked   bool // the leader
	)
	prev := w.prev
	if prev != nil {
		chain, chained = prev.sum, true
	}
	singles := w.singles()
	for {
		msgs, more, err := r.some(ctx, w, singles > 0)
		if err != nil {
			return out, err
		}
		singles--
		if len(msgs) == 0 && len(out) == 0 && (!asked || r.cluster) {
			asked = true
			if msgs, err = r.leaderNext(ctx, w.log, w.start); err != nil {
				return out, err
			}
			more = len(msgs) > 0
		}
		for i := range msgs {
			m, err := msgs[i].decode()
			if err != nil {
				return out, r.unreadable(w, &msgs[i], prev, err)
			}
			if chained && m.prev != chain {
				return out, &DamageError{Log: w.log, Seq: after(prev, m), Why: "the chain is broken"}
			}
			chain, chained, w.start = m.sum, true, m.pos+1
			rec, err := asm.add(m)
			if err != nil {
				return out, &DamageError{Log: w.log, Seq: m.base, Why: err.Error()}
			}
			if rec == nil {
				continue
			}
			if prev != nil && (rec.epoch == prev.epoch && rec.base != prev.Last()+1 || rec.base <= prev.Last()) {
				return out, &DamageError{Log: w.log, Seq: prev.Last() + 1, Why: "the seqs are not dense"}
			}
			prev = rec
			if w.epoch != "" && rec.Epoch() != w.epoch {
				if len(out) > 0 || rec.Last() >= w.from {
					return out, nil
				}
				continue
			}
			if rec.Last() < w.from {
				continue
			}
			r.index.read(w.log, rec.base, rec.first, len(out))
			out = append(out, rec)
			if size += rec.Size(); size >= w.maxBytes {
				return out, nil
			}
		}
		if !more || singles < 0 && len(out) > 0 && len(asm.set) == 0 {
			return out, nil
		}
	}
}

// singles is how many messages are read one by one before batches: a batch
// makes the server count what is left on the subject, which on a stream not
// looked at for a while means reading its blocks from here to the end.
func (w *walk) singles() int {
	if w.maxBytes <= 128<<10 {
		return 256
	}
	return 16
}

// some reads the next message of w, or the next batch.
func (r *reader) some(ctx context.Context, w walk, single bool) (msgs []rawMsg, more bool, err error) {
	if !single {
		return r.batch(ctx, w.log, w.start, w.maxBytes)
	}
	m, ok, err := r.next(ctx, w.log, w.start)
	if err != nil || !ok {
		return nil, false, err
	}
	return []rawMsg{m}, true, nil
}

// after is the first seq that is missing between prev and m.
func after(prev, m *Record) protocol.Seq {
	if prev != nil {
		return prev.Last() + 1
	}
	return m.base
}

// unreadable says what a message that does not decode means for w.
func (r *reader) unreadable(w walk, m *rawMsg, prev *Record, err error) error {
	seq := w.from
	if h, err := decodeHeader(m.data); err == nil {
		seq = h.base
	} else if prev != nil {
		seq = prev.Last() + 1
	}
	return &DamageError{Log: w.log, Seq: seq, Why: err.Error()}
}

// leaderNext reads the first message of l at or after pos from the leader:
// none of it is missing there.
func (r *reader) leaderNext(ctx context.Context, l Log, pos uint64) ([]rawMsg, error) {
	m, ok, err := askLeader(ctx, r.leader, r.reach, shardStream(l.Shard), fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, max(pos, 1), subjectOf(l)))
	if err != nil || !ok {
		return nil, err
	}
	return []rawMsg{m}, nil
}

// follow returns what comes after prev, from the first record of the log when prev is nil.
func (r *reader) follow(ctx context.Context, l Log, prev *Record, maxBytes int) ([]*Record, error) {
	w := walk{log: l, start: 1, prev: prev, maxBytes: maxBytes}
	if prev != nil {
		w.start = prev.pos + 1
	}
	return r.forward(ctx, w)
}

// span returns records of epoch from the one that holds seq on; newest is a
// later record, or that one. Errors: ErrTrimmed, ErrDamaged, ErrUnavailable.
func (r *reader) span(ctx context.Context, l Log, epoch protocol.Epoch, seq protocol.Seq, newest *Record, maxBytes int) ([]*Record, error) {
	start, err := r.locate(ctx, l, seq, newest)
	if err != nil {
		return nil, err
	}
	recs, err := r.forward(ctx, walk{log: l, start: start, from: seq, epoch: epoch, maxBytes: maxBytes})
	if len(recs) > 0 && recs[0].base <= seq {
		if err := r.joinsPredecessor(ctx, l, recs[0]); err != nil {
			return nil, err
		}
		return recs, nil
	}
	if err != nil {
		return nil, err
	}
	floor, err := r.floorOf(ctx, l, newest)
	if err != nil {
		return nil, err
	}
	if seq < floor {
		return nil, ErrTrimmed
	}
	return nil, &DamageError{Log: l, Seq: seq, Why: "missing"}
}

// joinsPredecessor checks the chain before rec, where a read begins. A
// predecessor that is trimmed or does not decode proves nothing against rec.
func (r *reader) joinsPredecessor(ctx context.Context, l Log, rec *Record) error {
	if rec.back == 0 {
		return nil
	}
	raw, ok, err := r.at(ctx, l, rec.back)
	if err != nil || !ok {
		return err
	}
	if p, err := raw.decode(); err == nil && p.sum != rec.prev {
		return &DamageError{Log: l, Seq: rec.base, Why: "the chain is broken"}
	}
	return nil
}

// floorOf returns the first retained seq of newest's epoch: the base of the
// log's first record, or of the epoch's first one where older epochs precede.
func (r *reader) floorOf(ctx context.Context, l Log, newest *Record) (protocol.Seq, error) {
	first, ok, err := r.legible(ctx, l, 1, newest.first)
	if err != nil {
		return 0, err
	}
	if !ok {
		return newest.base, nil
	}
	if first.epoch == newest.epoch {
		return first.base, nil
	}
	key := epochStart{l, newest.Epoch()}
	r.mu.Lock()
	seq, ok := r.starts[key]
	r.mu.Unlock()
	if ok {
		return seq, nil
	}
	if seq, err = r.searchEpoch(ctx, l, first.pos, newest); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.starts) >= epochStartsMax {
		clear(r.starts)
	}
	r.starts[key] = seq
	return seq, nil
}

// searchEpoch finds the first record of newest's epoch, knowing that the
// message at older is of an earlier one.
func (r *reader) searchEpoch(ctx context.Context, l Log, older uint64, newest *Record) (protocol.Seq, error) {
	lo, hi, base := older, newest.first, newest.base // lo is older, at or after hi it is not
	for lo+1 < hi {
		mid := lo + (hi-lo)/2
		p, ok, err := r.legible(ctx, l, mid, hi)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			hi = mid
		case p.epoch == newest.epoch:
			hi, base = mid, p.base
		default:
			lo = p.pos
		}
	}
	return base, nil
}
