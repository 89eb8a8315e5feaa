package harness

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// The promises to a subscriber that a Stream checks; an error of one of them
// wraps it.
var (
	ErrBrokeDense   = errors.New("broke I-J1: seq is dense inside an epoch")
	ErrBrokeOnce    = errors.New("broke I-J4: every event after the cursor exactly once, in order")
	ErrBrokeAttach  = errors.New("broke I-S3: a snapshot, then the events from the next seq on")
	ErrBrokeOrder   = errors.New("broke I-G1: events follow their response in seq order")
	ErrBrokeRuns    = errors.New("broke I-J3: runs only grow")
	ErrBrokeIsolate = errors.New("broke I-A1: a subscription is told of its own session only")
	ErrBrokeShape   = errors.New("broke the shape of docs/protocol.md")
)

// Event is one event as a subscriber got it.
type Event struct {
	Epoch     string // the reader's: from the response or the newest snapshot
	Seq       uint64
	TS        int64
	Run       uint64
	Source    string
	CommandID string
	Body      json.RawMessage // the bytes on the wire
}

// Type returns the body's "type", if it has one.
func (e *Event) Type() string {
	var b struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(e.Body, &b) != nil {
		return "" // a child may print anything
	}
	return b.Type
}

// Snapshot is a snapshot notification.
type Snapshot struct {
	SessionID string
	Epoch     string
	Seq       uint64
	StateHash string
	Reason    string
	State     json.RawMessage
}

// Attached is the response of subscribe and resync.
type Attached struct {
	SubscriptionID uint64 `json:"subscriptionId"`
	SessionID      string `json:"sessionId"`
	Status         string `json:"status"`
	Mode           string `json:"mode"`
	Epoch          string `json:"epoch"`
	After          uint64 `json:"after"`
	Head           uint64 `json:"head"`
	Reason         string `json:"reason"`
}

// End is a subscription_end notification.
type End struct {
	SessionID string
	Seq       uint64
	Reason    string
}

// Stream is one subscription. The connection's reader feeds it and checks every
// message; tests take from it.
type Stream struct {
	session string
	sink    func(Event)

	mu        sync.Mutex
	changed   chan struct{} // closed and renewed at every change
	attached  Attached
	epoch     string
	next      uint64 // the seq that must come
	run       uint64
	wantSnap  bool
	wantEpoch bool // the next event carries its epoch
	counted   uint64
	events    []Event
	snapshots []Snapshot
	synced    *uint64
	end       *End
	err       error
}

// Subscribe subscribes with the params of the protocol besides sessionId. Events
// wait in the stream until Next takes them.
func (c *Client) Subscribe(ctx context.Context, session string, params map[string]any) (*Stream, error) {
	return c.SubscribeFunc(ctx, session, params, nil)
}

// SubscribeFunc hands each event to sink instead, on the connection's reader:
// sink delays every other message of the connection and may not call its methods.
func (c *Client) SubscribeFunc(ctx context.Context, session string, params map[string]any, sink func(Event)) (*Stream, error) {
	s := &Stream{session: session, sink: sink, changed: make(chan struct{})}
	all := map[string]any{"sessionId": session}
	for k, v := range params {
		all[k] = v
	}
	if _, err := c.call(ctx, "subscribe", all, &call{stream: s}); err != nil {
		return nil, err
	}
	return s, nil
}

// Resync repositions a stream; what waits in it of the old position is dropped.
func (c *Client) Resync(ctx context.Context, s *Stream, params map[string]any) error {
	all := map[string]any{"subscriptionId": s.ID()}
	for k, v := range params {
		all[k] = v
	}
	_, err := c.call(ctx, "resync", all, &call{stream: s})
	return err
}

// Unsubscribe ends a stream; that nothing follows the response is checked for
// the rest of the connection.
func (c *Client) Unsubscribe(ctx context.Context, s *Stream) error {
	_, err := c.call(ctx, "unsubscribe", map[string]any{"subscriptionId": s.ID()}, &call{drop: s.ID()})
	return err
}

// subscribed runs under the client's mu, before any later line is read.
func (c *Client) subscribed(s *Stream, result json.RawMessage) error {
	var a Attached
	if err := json.Unmarshal(result, &a); err != nil {
		return fmt.Errorf("%w: %w", ErrBrokeShape, err)
	}
	old, known := c.streams[a.SubscriptionID]
	if a.SubscriptionID == 0 || c.gone[a.SubscriptionID] || known && old != s {
		return fmt.Errorf("%w: subscription id %d is not new", ErrBrokeShape, a.SubscriptionID)
	}
	c.streams[a.SubscriptionID] = s
	return s.attach(a)
}

func (s *Stream) attach(a Attached) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if a.Status != "subscribed" || len(a.Epoch) != 26 || (a.Mode == "snapshot") != (a.Reason != "") {
		return fmt.Errorf("%w: subscribe answered %+v", ErrBrokeShape, a)
	}
	if a.SessionID != s.session {
		return fmt.Errorf("%w: asked for %s, got %s", ErrBrokeIsolate, s.session, a.SessionID)
	}
	s.attached, s.epoch, s.run = a, a.Epoch, 0
	s.events, s.snapshots, s.synced, s.wantSnap, s.wantEpoch, s.counted = nil, nil, nil, false, false, 0
	switch a.Mode {
	case "live":
		if a.After != a.Head {
			return fmt.Errorf("%w: live after %d at head %d", ErrBrokeShape, a.After, a.Head)
		}
		s.next = a.Head + 1
	case "replay":
		s.next = a.After + 1
	case "snapshot":
		s.wantSnap = true
	default:
		return fmt.Errorf("%w: mode %q", ErrBrokeShape, a.Mode)
	}
	return nil
}

// take checks one notification; over: the subscription has ended.
func (s *Stream) take(method string, p *Note) (over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if p.SessionID != s.session {
		err = fmt.Errorf("%w: %s of %q in a subscription of %s", ErrBrokeIsolate, method, p.SessionID, s.session)
		s.err = err
		return false, err
	}
	switch method {
	case "event":
		err = s.event(p)
	case "snapshot":
		err = s.snapshot(p)
	case "synced":
		err = s.sync(p)
	case "subscription_end":
		s.end = &End{SessionID: p.SessionID, Seq: p.Seq, Reason: p.Reason}
		over = true
	default:
		err = fmt.Errorf("%w: notification %s", ErrBrokeShape, method)
	}
	if err != nil && s.err == nil {
		s.err = err
	}
	return over, err
}

func (s *Stream) event(p *Note) error {
	switch {
	case s.wantSnap:
		return fmt.Errorf("%w: event %d came before the snapshot", ErrBrokeAttach, p.Seq)
	case p.Seq < s.next:
		return fmt.Errorf("%w: %d came again, %d was next", ErrBrokeOnce, p.Seq, s.next)
	case p.Seq > s.next && s.counted == 0 && len(s.snapshots) > 0:
		return fmt.Errorf("%w: snapshot at %d, then event %d", ErrBrokeAttach, s.next-1, p.Seq)
	case p.Seq > s.next:
		return fmt.Errorf("%w: %d came, %d was next", ErrBrokeDense, p.Seq, s.next)
	case s.wantEpoch != (p.Epoch != ""), p.Epoch != "" && p.Epoch != s.epoch:
		return fmt.Errorf("%w: event %d carries epoch %q in epoch %s", ErrBrokeShape, p.Seq, p.Epoch, s.epoch)
	case p.Run < s.run || p.Run == 0:
		return fmt.Errorf("%w: event %d of run %d follows run %d", ErrBrokeRuns, p.Seq, p.Run, s.run)
	case p.Event == nil || p.TS <= 0 || p.Source != "child" && p.Source != "broker":
		return fmt.Errorf("%w: event %d", ErrBrokeShape, p.Seq)
	}
	s.next, s.run, s.wantEpoch = p.Seq+1, p.Run, false
	s.counted++
	e := Event{Epoch: s.epoch, Seq: p.Seq, TS: p.TS, Run: p.Run, Source: p.Source, CommandID: p.CommandID, Body: p.Event}
	if s.sink != nil {
		s.sink(e)
	} else {
		s.events = append(s.events, e)
	}
	return nil
}

func (s *Stream) snapshot(p *Note) error {
	if len(p.Epoch) != 26 || fmt.Sprintf("%x", sha256.Sum256(p.State)) != p.StateHash {
		return fmt.Errorf("%w: snapshot at %d does not have its hash", ErrBrokeShape, p.Seq)
	}
	later := !s.wantSnap
	if later && p.Reason != "trimmed" && p.Reason != "epoch" && p.Reason != "damaged" {
		return fmt.Errorf("%w: a later snapshot because of %q", ErrBrokeAttach, p.Reason)
	}
	s.wantSnap, s.wantEpoch = false, later
	s.epoch, s.next, s.counted = p.Epoch, p.Seq+1, 0
	s.snapshots = append(s.snapshots, Snapshot{
		SessionID: p.SessionID, Epoch: p.Epoch, Seq: p.Seq, StateHash: p.StateHash, Reason: p.Reason, State: p.State,
	})
	return nil
}

func (s *Stream) sync(p *Note) error {
	switch {
	case s.synced != nil:
		return fmt.Errorf("%w: synced came twice", ErrBrokeOrder)
	case s.wantSnap || p.Seq != s.next-1 || s.epoch == s.attached.Epoch && p.Seq < s.attached.Head:
		return fmt.Errorf("%w: synced at %d, delivered up to %d, head was %d", ErrBrokeOrder, p.Seq, s.next-1, s.attached.Head)
	}
	s.synced = &p.Seq
	return nil
}

// wake runs under mu.
func (s *Stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// fail ends the stream with err unless it failed before.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.wake()
}

// ID returns the subscription id.
func (s *Stream) ID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached.SubscriptionID
}

// Attached returns the newest response of subscribe or resync.
func (s *Stream) Attached() Attached {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

// Cursor returns epoch and seq of the last event applied.
func (s *Stream) Cursor() (epoch string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.next - 1
}

// wait blocks until ok, called under mu, says so; else the stream's error or ctx's.
func (s *Stream) wait(ctx context.Context, what string, ok func() bool) error {
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return nil
		}
		err, changed, at := s.err, s.changed, s.next
		s.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s did not come (the next event would be %d): %w", what, at, context.Cause(ctx))
		}
	}
}

// Next takes the next event; after subscription_end the error is ErrEnded.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	var e Event
	var ended bool
	err := s.wait(ctx, "an event", func() bool {
		if len(s.events) > 0 {
			e, s.events = s.events[0], s.events[1:]
			return true
		}
		ended = s.end != nil
		return ended
	})
	if err == nil && ended {
		err = ErrEnded
	}
	return e, err
}

// ErrEnded is what Next returns after subscription_end.
var ErrEnded = errors.New("the subscription has ended")

// Until takes events up to and including the first that last accepts.
func (s *Stream) Until(ctx context.Context, last func(Event) bool) ([]Event, error) {
	var all []Event
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, e)
		if last(e) {
			return all, nil
		}
	}
}

// Synced waits for the synced notification.
func (s *Stream) Synced(ctx context.Context) (uint64, error) {
	var seq uint64
	err := s.wait(ctx, "synced", func() bool {
		if s.synced != nil {
			seq = *s.synced
		}
		return s.synced != nil
	})
	return seq, err
}

// Snapshot waits for the snapshot of the attach, or the n-th one (from 0).
func (s *Stream) Snapshot(ctx context.Context, n int) (Snapshot, error) {
	var snap Snapshot
	err := s.wait(ctx, "a snapshot", func() bool {
		if n < len(s.snapshots) {
			snap = s.snapshots[n]
			return true
		}
		return false
	})
	return snap, err
}

// End waits for subscription_end.
func (s *Stream) End(ctx context.Context) (End, error) {
	var end End
	err := s.wait(ctx, "subscription_end", func() bool {
		if s.end != nil {
			end = *s.end
		}
		return s.end != nil
	})
	return end, err
}
