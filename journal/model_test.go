package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

// modelLog is a log in memory that behaves as the reader does: what the hub is
// stepped against. Not safe for concurrent use.
type modelLog struct {
	recs   []*Record // stored, complete
	pos    uint64
	fail   int             // this many calls answer ErrUnavailable
	short  int             // this many follows find nothing
	broken map[uint64]bool // positions that do not verify
	reads  int             // spans asked for
	during func()          // runs inside the next follow, after it has looked
}

var errModelAway = fmt.Errorf("%w: model", ErrUnavailable)

func testEpoch(n int) ulid.ULID {
	var u ulid.ULID
	u[0], u[15] = 1, byte(n)
	return u
}

// record makes the stored record of events base… after prev, one line each of size bytes.
func record(prev *Record, epoch ulid.ULID, base protocol.Seq, events, size int, pos uint64) *Record {
	var body []byte
	for i := range events {
		line := fmt.Appendf(nil, `"seq":%d`, int(base)+i)
		for len(line) < size {
			line = append(line, '.')
		}
		body = append(append(body, line...), '\n')
	}
	h := header{epoch: epoch, run: 1, base: base, count: uint32(events), part: 1, parts: 1}
	var back uint64
	if prev != nil {
		h.prev, back = prev.sum, prev.pos
	}
	rec, err := decodeStored(appendRecord(nil, &h, body), pos)
	if err != nil {
		panic(err)
	}
	rec.back = back
	return rec
}

func (m *modelLog) last() *Record {
	if len(m.recs) == 0 {
		return nil
	}
	return m.recs[len(m.recs)-1]
}

// append stores a record of events in the log's epoch and returns it.
func (m *modelLog) append(events, size int) *Record {
	base, epoch := protocol.Seq(1), testEpoch(1)
	if p := m.last(); p != nil {
		base, epoch = p.Last()+1, p.epoch
	}
	m.pos += 3 // other logs are in between
	r := record(m.last(), epoch, base, events, size, m.pos)
	m.recs = append(m.recs, r)
	return r
}

// startEpoch stores the first record of epoch n, skip seqs above the head.
func (m *modelLog) startEpoch(n, skip int) *Record {
	base := protocol.Seq(1 + skip)
	if p := m.last(); p != nil {
		base += p.Last()
	}
	m.pos++
	r := record(m.last(), testEpoch(n), base, 1, 0, m.pos)
	m.recs = append(m.recs, r)
	return r
}

// trim drops the oldest n records, never the newest.
func (m *modelLog) trim(n int) { m.recs = m.recs[min(n, max(0, len(m.recs)-1)):] }

func (m *modelLog) away() bool {
	if m.fail == 0 {
		return false
	}
	m.fail--
	return true
}

func (m *modelLog) newest(context.Context, Log) (*Record, error) {
	if m.away() {
		return nil, errModelAway
	}
	if r := m.last(); r != nil && m.broken[r.pos] {
		return nil, &DamageError{Why: "model"}
	}
	return m.last(), nil
}

func (m *modelLog) floorOf(_ context.Context, _ Log, newest *Record) (protocol.Seq, error) {
	if m.away() {
		return 0, errModelAway
	}
	for _, r := range m.recs {
		if r.epoch == newest.epoch {
			return r.base, nil
		}
	}
	return newest.base, nil
}

func (m *modelLog) follow(_ context.Context, l Log, prev *Record, maxBytes int) (out []*Record, err error) {
	if m.away() {
		return nil, errModelAway
	}
	if m.short > 0 {
		m.short--
		return nil, nil
	}
	recs := m.recs
	if m.during != nil {
		f := m.during
		m.during = nil
		f()
	}
	size := 0
	for _, r := range recs {
		if prev != nil && r.pos <= prev.pos {
			continue
		}
		if m.broken[r.pos] || prev != nil && r.prev != prev.sum {
			return out, &DamageError{Log: l, Seq: r.base, Why: "model"}
		}
		out = append(out, r)
		prev = r
		if size += r.Size(); size >= maxBytes {
			break
		}
	}
	return out, nil
}

func (m *modelLog) span(_ context.Context, l Log, epoch protocol.Epoch, seq protocol.Seq, _ *Record, maxBytes int) (out []*Record, err error) {
	m.reads++
	if m.away() {
		return nil, errModelAway
	}
	size := 0
	for _, r := range m.recs {
		if r.Epoch() != epoch || r.Last() < seq {
			continue
		}
		if len(out) == 0 && r.base > seq {
			return nil, ErrTrimmed
		}
		if m.broken[r.pos] {
			return out, &DamageError{Log: l, Seq: r.base, Why: "model"}
		}
		out = append(out, r)
		if size += r.Size(); size >= maxBytes {
			break
		}
	}
	if len(out) == 0 {
		return nil, ErrTrimmed
	}
	return out, nil
}

// steps drives a hub without goroutines over one modelled log.
type steps struct {
	tb   testing.TB
	hub  *Hub
	log  modelLog
	w    *Watch
	time time.Time
	bell int // wakes seen
}

// Wake counts.
func (s *steps) Wake() { s.bell++ }

func newSteps(tb testing.TB, budget int) *steps {
	tb.Helper()
	s := &steps{tb: tb, time: time.Unix(1764500000, 0)}
	s.log.broken = make(map[uint64]bool)
	s.hub = newStillHub(tb.Context(), &s.log, budget, func() time.Time { return s.time }, slog.New(slog.DiscardHandler))
	return s
}

func (s *steps) watch() *Watch {
	s.tb.Helper()
	w, err := s.hub.Watch(s.tb.Context(), Log{Key: protocol.Key{Workspace: "w", Session: "s"}})
	if err != nil {
		s.tb.Fatalf("Watch: %v", err)
	}
	s.w = w
	w.Add(s)
	return w
}

// live hands a republished record to the hub, as the feeder does.
func (s *steps) live(r *Record) {
	if s.w.offer(r) {
		s.w.wakers.wake()
	}
}

// fill runs one queued fill step; false: there is none.
func (s *steps) fill() bool {
	w, ok := s.hub.lanes[0].fills.try()
	if ok && s.hub.fill(w) {
		w.wakers.wake()
	}
	return ok
}

// read runs one queued range read; false: there is none.
func (s *steps) read() bool {
	j, ok := s.hub.lanes[0].reads.try()
	if ok {
		s.hub.readRange(j)
		j.w.wakers.wake()
	}
	return ok
}

// settle runs everything that is queued or becomes due.
func (s *steps) settle() {
	for range 1000 {
		if !s.fill() && !s.read() {
			s.w.mu.Lock()
			busy := s.w.filling || len(s.w.ranges.jobs) > 0 || !s.w.ranges.fail.at.IsZero()
			s.w.mu.Unlock()
			if !busy {
				return
			}
			s.time = s.time.Add(time.Second)
			s.hub.tick(s.time)
		}
	}
	s.tb.Fatal("the hub does not settle")
}

func (s *steps) head() protocol.Seq { return s.w.Position().Head }

// pull pulls and returns the seqs found in the output.
func (s *steps) pull(c protocol.Cursor, until protocol.Seq, max, limit int) (seqs []protocol.Seq, last protocol.Seq, st PullStatus) {
	s.tb.Helper()
	out, last, st := s.w.Pull(nil, []byte("<"), c, until, max, limit)
	seqs, err := parsePulled(out)
	if err != nil {
		s.tb.Fatal(err)
	}
	return seqs, last, st
}

func parsePulled(out []byte) (seqs []protocol.Seq, err error) {
	for len(out) > 0 {
		end := 0
		for out[end] != '\n' {
			end++
		}
		var seq protocol.Seq
		if _, err := fmt.Sscanf(string(out[:end]), `<"seq":%d`, &seq); err != nil {
			return nil, fmt.Errorf("not a notification: %q", out[:end])
		}
		seqs = append(seqs, seq)
		out = out[end+1:]
	}
	return seqs, nil
}

// ---- what readers were promised, named as what broke

var (
	errBrokeOrdered   = errors.New("an event came after a later one")
	errBrokeUnique    = errors.New("an event came twice")
	errBrokeDense     = errors.New("an event is missing between two others")
	errBrokeResumable = errors.New("a reader did not go on where its cursor was")
)

// step is one thing that happened to a reader.
type step struct {
	jump bool // a snapshot or a new subscription placed the cursor at seq; else event seq was delivered
	seq  protocol.Seq
}

// validate checks what one reader saw, in order; head is where the log ended
// once everything had come to rest.
func validate(history []step, head protocol.Seq) error {
	at, placed := protocol.Seq(0), true
	for _, s := range history {
		switch {
		case s.jump:
			at, placed = s.seq, true
			continue
		case s.seq == at+1:
		case placed:
			return fmt.Errorf("%w: cursor %d, then %d", errBrokeResumable, at, s.seq)
		case s.seq == at:
			return fmt.Errorf("%w: %d", errBrokeUnique, s.seq)
		case s.seq < at:
			return fmt.Errorf("%w: %d after %d", errBrokeOrdered, s.seq, at)
		default:
			return fmt.Errorf("%w: %d after %d", errBrokeDense, s.seq, at)
		}
		at, placed = s.seq, false
	}
	if at != head {
		return fmt.Errorf("%w: stopped at %d of %d", errBrokeDense, at, head)
	}
	return nil
}

func TestValidateFindsBrokenHistories(t *testing.T) {
	ev := func(seqs ...protocol.Seq) (h []step) {
		for _, s := range seqs {
			h = append(h, step{seq: s})
		}
		return h
	}
	jump := func(seq protocol.Seq) []step { return []step{{jump: true, seq: seq}} }
	join := func(parts ...[]step) (h []step) {
		for _, p := range parts {
			h = append(h, p...)
		}
		return h
	}
	tests := []struct {
		name    string
		history []step
		head    protocol.Seq
		want    error
	}{
		{"good", ev(1, 2, 3), 3, nil},
		{"good with jump", join(ev(1, 2), jump(7), ev(8, 9)), 9, nil},
		{"hole", ev(1, 3), 3, errBrokeDense},
		{"tail lost", ev(1, 2), 3, errBrokeDense},
		{"twice", ev(1, 2, 2, 3), 3, errBrokeUnique},
		{"backwards", ev(1, 2, 3, 1), 3, errBrokeOrdered},
		{"resumed too late", join(ev(1, 2), jump(2), ev(4)), 4, errBrokeResumable},
		{"resumed too early", join(ev(1, 2), jump(2), ev(2)), 2, errBrokeResumable},
		{"first is missing", ev(2), 2, errBrokeResumable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := validate(tt.history, tt.head); !errors.Is(err, tt.want) {
				t.Errorf("validate = %v, want %v", err, tt.want)
			}
		})
	}
}
