package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Rows about sessions with a long history.
const (
	rowJoin    = "join"
	rowLast100 = "last100"

	joinLargest = "slowest of them"
	joinSpread  = "slowest to fastest"
)

var errState = errors.New("bench: a snapshot is not of its seq or not of its hash")

// joinRow: a client gets the state of a session, however long its history is.
func joinRow(ctx context.Context, e *env) ([]Figure, error) {
	e.r.adapter = "lines" // its state has items: the newest 500 lines
	var figures []Figure
	fastest, slowest := 0.0, 0.0
	for _, n := range []int{e.of(1000, 1000), e.of(100_000, 2000), e.of(1_000_000, 5000)} {
		took, err := e.joinOne(ctx, n)
		if err != nil {
			return nil, err
		}
		figures = append(figures, Figure{Name: fmt.Sprintf("of %d events", n), Unit: millis, Value: took})
		if fastest == 0 || took < fastest {
			fastest = took
		}
		slowest = max(slowest, took)
	}
	return append(figures, Figure{Name: joinLargest, Unit: millis, Value: slowest}, Figure{Name: joinSpread, Unit: ratio, Value: slowest / fastest}), nil
}

// joinOne makes a session of n events and is how long it takes to join it.
func (e *env) joinOne(ctx context.Context, n int) (_ float64, err error) {
	s, _, err := e.filled(ctx, n)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return e.joins(ctx, s, n)
}

// filled makes a session whose journal has n lines, and returns what they are.
func (e *env) filled(ctx context.Context, n int) (_ *session, d Digest, err error) {
	s, err := e.r.session(ctx, LineBytes)
	if err != nil {
		return nil, d, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.Emit(n); err != nil {
		return nil, d, err
	}
	if d, err = s.Digest(ctx); err != nil { // it has printed them
		return nil, d, err
	}
	return s, d, s.headReaches(ctx, uint64(n+1)) // the first event is session_start
}

// joins is the median time from asking for a snapshot to having it.
func (e *env) joins(ctx context.Context, s *session, n int) (float64, error) {
	var took []time.Duration
	for range e.of(15, 3) {
		d, err := s.snapshot(ctx, uint64(n+1))
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	return median(took), nil
}

// headReaches waits until the journal has so many events of the session.
func (s *session) headReaches(ctx context.Context, seq uint64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		head, err := s.head(ctx)
		if err != nil || head >= seq {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the head is %d of %d: %w", head, seq, context.Cause(ctx))
		}
	}
}

// snapshot subscribes a fresh connection by snapshot and returns how long it took.
func (s *session) snapshot(ctx context.Context, seq uint64) (time.Duration, error) {
	l, err := dialLink(ctx, s.r.address, s.r.token, observerBuffer, nil)
	if err != nil {
		return 0, err
	}
	defer l.close()
	type came struct {
		err error
		at  time.Time
	}
	got := make(chan came, 1)
	l.note = func(line []byte, at time.Time) { got <- came{checkSnapshot(line, seq), at} }
	began := time.Now()
	if err := l.subscribe(ctx, s.id, NewObserver(LineBytes), map[string]any{"from": "snapshot"}); err != nil {
		return 0, err
	}
	select {
	case c := <-got:
		tally(ctx).states.Add(1)
		return c.at.Sub(began), c.err
	case <-l.done:
		return 0, errLink
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func checkSnapshot(line []byte, seq uint64) error {
	var m struct {
		Params struct {
			Seq       uint64
			StateHash string
			State     json.RawMessage
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("%w: %w", errState, err)
	}
	sum := sha256.Sum256(m.Params.State)
	if m.Params.Seq != seq || m.Params.StateHash != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%w: seq %d, wanted %d", errState, m.Params.Seq, seq)
	}
	return nil
}

// lastLines is how many lines last100 asks for.
const lastLines = 100

// last100 : a server that has just been started is asked for the last 100 events of
// a long session.
func last100(ctx context.Context, e *env) ([]Figure, error) {
	n := e.of(1_000_000, 5000)
	s, _, err := e.filled(ctx, n)
	if err != nil {
		return nil, err
	}
	took, err := e.coldLasts(ctx, s, n)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return []Figure{{Name: p50, Unit: millis, Value: took}, {Name: "start", Unit: seconds, Value: e.s.Started.Seconds()}}, nil
}

// coldLasts restarts the server and is asked for the last lines of a session of n,
// several times; the median.
func (e *env) coldLasts(ctx context.Context, s *session, n int) (float64, error) {
	one := NewObserver(LineBytes)
	if err := s.Subscribe(ctx, one, observerBuffer); err != nil { // for the epoch
		return 0, err
	}
	one.Leave()
	want := digestOf(int64(n-lastLines+1), int64(n), LineBytes)
	var took []time.Duration
	for range e.of(5, 2) {
		if err := e.restart(ctx, e.s.Stop); err != nil {
			return 0, err
		}
		d, err := e.lastOf(ctx, s.id, one.epoch, n, lastLines, want)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	return median(took), nil
}

// lastOf resumes before the last lines of a session and returns how long it took
// from the question to the last line.
func (e *env) lastOf(ctx context.Context, session, epoch string, n, last int, want Digest) (time.Duration, error) {
	l, err := dialLink(ctx, e.s.address, e.s.token, observerBuffer, nil)
	if err != nil {
		return 0, err
	}
	o := NewObserver(LineBytes)
	o.last, o.seq, o.epoch = int64(n-last), uint64(n-last+1), epoch
	o.conn, o.done = l.conn, l.done
	g := o.reach(int64(n))
	began := time.Now()
	if err := l.subscribe(ctx, session, o, nil); err != nil {
		l.close()
		return 0, err
	}
	select {
	case <-g.reached:
	case <-l.done:
	case <-ctx.Done():
	}
	o.Leave()
	return g.at.Sub(began), o.Check(ctx, want)
}
