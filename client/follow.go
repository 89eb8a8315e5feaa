package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"rejoin/protocol"
)

// followBufferBytes is the read buffer of a subscription: one system call takes
// many events.
const followBufferBytes = 32 << 10

// A follower is the reading side of a Subscription, for its goroutine only. It
// knows which event must come next and turns lines into batches of messages.
type follower struct {
	sub        *Subscription
	opts       *Options
	subscribed chan struct{} // closed at the first response
	answered   bool
	lastErr    error

	cursor  protocol.Cursor // everything up to here is in a batch
	known   bool            // cursor says something: the server has answered once
	awaits  bool            // a snapshot must come before any event
	broken  *gapError       // the newest violation
	prefix  []byte          // how the notifications of this subscription begin
	id      uint64          // subscription id on the current link
	link    *link
	batch   []Message
	bytes   int
	last    int // length of the batch before: a guess at this one's
	memory  arena
	backoff backoff
}

func newFollower(s *Subscription) *follower {
	c := s.client
	return &follower{sub: s, opts: &c.opts, subscribed: make(chan struct{}), backoff: newBackoff(&c.opts).among(c.servers)}
}

// gapError says that something else came than the event after at.
type gapError struct {
	at   protocol.Cursor
	what string
}

func (e *gapError) Error() string {
	return fmt.Sprintf("client: after event %d of epoch %s: %s", e.at.Seq, e.at.Epoch, e.what)
}

func (f *follower) violation(format string, args ...any) error {
	return &gapError{at: f.cursor, what: fmt.Sprintf(format, args...)}
}

// run follows until ctx ends (ErrClosed) or the subscription cannot go on.
func (f *follower) run(ctx context.Context) error {
	for {
		f.notify(Link{State: LinkConnecting})
		err := f.follow(ctx)
		f.lastErr = err
		f.flush(ctx)
		if ctx.Err() != nil {
			return ErrClosed
		}
		var gap *gapError
		if errors.As(err, &gap) {
			if f.broken != nil && f.broken.at == gap.at {
				return fmt.Errorf("%w: %w", ErrGap, gap)
			}
			f.broken = gap
			f.opts.Logger.Warn("events do not follow each other, subscribing again",
				protocol.LogSession, f.sub.session, protocol.LogError, err)
		}
		if terminal(err) {
			return err
		}
		if f.link != nil { // else openLink has seen to it
			f.sub.client.servers.failed(f.link.url)
		}
		wait := f.backoff.next()
		f.opts.Logger.Debug("link lost", protocol.LogSession, f.sub.session, protocol.LogError, err, "wait", wait)
		f.notify(Link{State: LinkLost, Err: err, Wait: wait})
		if !pause(ctx, wait) {
			return ErrClosed
		}
	}
}

func (f *follower) notify(l Link) {
	if f.sub.opts.OnLink != nil {
		l.Cursor = f.cursor
		f.sub.opts.OnLink(l)
	}
}

// follow serves one link until it ends.
func (f *follower) follow(ctx context.Context) error {
	f.link = nil
	l, err := f.sub.client.openLink(ctx, ctx, followBufferBytes)
	if err != nil {
		return err
	}
	defer func() { _ = l.conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	f.link = l
	if err := f.subscribe(ctx); err != nil {
		return err
	}
	for {
		line, err := l.read()
		if err != nil {
			return err
		}
		if err := f.line(line); err != nil {
			return err
		}
		if len(f.batch) > 0 && (len(f.batch) == batchMessages || f.bytes >= batchBytes || !l.lines.Ready()) && !f.flush(ctx) {
			return context.Cause(ctx)
		}
	}
}

// flush hands the batch over; it blocks while the consumer is slow, and so does
// the socket. False when ctx ended first.
func (f *follower) flush(ctx context.Context) bool {
	if len(f.batch) == 0 {
		return true
	}
	c := f.cursor
	f.sub.at.Store(&c)
	select {
	case f.sub.batches <- f.batch:
		f.last, f.batch, f.bytes = len(f.batch), nil, 0
		return true
	case <-ctx.Done():
		return false
	}
}

const idSubscribe = `"subscribe"`

type subscribeParams struct {
	SessionID string         `json:"sessionId"`
	After     *protocol.Seq  `json:"after,omitempty"`
	Epoch     protocol.Epoch `json:"epoch,omitempty"`
	From      string         `json:"from,omitempty"`
	Until     protocol.Seq   `json:"until,omitempty"`
}

type subscribed struct {
	SubscriptionID uint64         `json:"subscriptionId"`
	Mode           string         `json:"mode"`
	Epoch          protocol.Epoch `json:"epoch"`
	After          protocol.Seq   `json:"after"`
	Head           protocol.Seq   `json:"head"`
}

// subscribe asks for what comes after the cursor, or the first time for what the
// caller wanted, and takes its place from the answer.
func (f *follower) subscribe(ctx context.Context) error {
	o := &f.sub.opts
	p := subscribeParams{SessionID: f.sub.session, After: o.After, Epoch: o.Epoch, From: o.From, Until: o.Until}
	if f.known {
		p.After, p.Epoch, p.From = &f.cursor.Seq, f.cursor.Epoch, ""
	}
	params, err := encode(p)
	if err != nil {
		return err
	}
	if err := f.link.send(ctx, requestLine(idSubscribe, "subscribe", params)); err != nil {
		return err
	}
	result, err := f.link.answer(idSubscribe)
	if err != nil {
		return err
	}
	var r subscribed
	if err := json.Unmarshal(result, &r); err != nil {
		return fmt.Errorf("client: answer of subscribe: %w", err)
	}
	if r.Mode == "replay" && ((p.After != nil && r.After != *p.After) || (p.Epoch != "" && r.Epoch != p.Epoch)) {
		return f.violation("the server goes on after event %d of epoch %s", r.After, r.Epoch)
	}
	f.id = r.SubscriptionID
	f.prefix = protocol.AppendEventPrefix(f.prefix[:0], r.SubscriptionID, f.sub.session, "")
	f.awaits = r.Mode == "snapshot"
	if !f.known && !f.awaits {
		f.moved(protocol.Cursor{Epoch: r.Epoch, Seq: r.After})
	}
	f.notify(Link{State: LinkConnected, URL: f.link.url, Mode: r.Mode})
	if !f.answered {
		f.answered = true
		close(f.subscribed)
	}
	return nil
}

// moved sets the cursor to a new place.
func (f *follower) moved(c protocol.Cursor) {
	if !f.known || c.Epoch != f.cursor.Epoch {
		f.sub.epoch.Store(&c.Epoch)
	}
	f.cursor, f.known = c, true
}

// line takes one line of the server.
func (f *follower) line(line []byte) error {
	if rest, ok := bytes.CutPrefix(line, f.prefix); ok {
		e, err := parseEvent(rest)
		if err != nil {
			return err
		}
		return f.event(e)
	}
	m, err := parseEnvelope(line)
	if err != nil {
		return err
	}
	switch m.Method {
	case "event":
		e, err := decodeEvent(m.Params)
		if err != nil {
			return err
		}
		return f.event(e)
	case "snapshot":
		return f.snapshot(m.Params)
	case "synced":
		return f.synced(m.Params)
	case "subscription_end":
		return f.end(m.Params)
	case methodDraining:
		f.sub.client.servers.drained(f.link.url, m.Params)
		return errDraining // the next server sends what this one still owes
	case "":
		if string(m.ID) == idPing {
			return f.pong(m.Result)
		}
		if m.Error != nil {
			return m.Error.rpc()
		}
	}
	return nil // a notification of a later version
}

// event checks that e is the one that comes next (I-J4) and keeps it.
func (f *follower) event(e Event) error {
	switch {
	case f.awaits:
		return f.violation("event %d before the snapshot", e.Seq)
	case e.Epoch != "" && e.Epoch != f.cursor.Epoch:
		return f.violation("an event of epoch %s", e.Epoch)
	case e.Seq != f.cursor.Seq+1:
		return f.violation("event %d", e.Seq)
	}
	e.Epoch = f.cursor.Epoch
	f.cursor.Seq = e.Seq
	e.Body = f.memory.copy(e.Body)
	f.link.pulse.event()
	f.keep(Message{Kind: KindEvent, Seq: e.Seq, Event: e}, len(e.Body))
	return nil
}

// snapshot replaces the cursor.
func (f *follower) snapshot(params json.RawMessage) error {
	s := &Snapshot{}
	if err := json.Unmarshal(params, s); err != nil {
		return fmt.Errorf("client: snapshot: %w", err)
	}
	f.awaits = false
	f.moved(protocol.Cursor{Epoch: s.Epoch, Seq: s.Seq})
	f.link.pulse.event()
	f.keep(Message{Kind: KindSnapshot, Seq: s.Seq, Snapshot: s}, len(s.State))
	return nil
}

// synced must tell the place where this reader is.
func (f *follower) synced(params json.RawMessage) error {
	var p struct {
		Seq protocol.Seq `json:"seq"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return fmt.Errorf("client: synced: %w", err)
	}
	if f.awaits || p.Seq != f.cursor.Seq {
		return f.violation("synced at event %d", p.Seq)
	}
	f.keep(Message{Kind: KindSynced, Seq: p.Seq}, 0)
	return nil
}

func (f *follower) end(params json.RawMessage) error {
	e := &End{}
	if err := json.Unmarshal(params, e); err != nil {
		return fmt.Errorf("client: subscription_end: %w", err)
	}
	f.keep(Message{Kind: KindEnd, Seq: e.Seq, End: e}, 0)
	return io.EOF
}

// pong compares the journal's head with what has arrived. Responses overtake
// events, so that a difference is a gap only when it stays.
func (f *follower) pong(result json.RawMessage) error {
	var p struct {
		Heads map[string]protocol.Seq `json:"heads"`
	}
	if err := json.Unmarshal(result, &p); err != nil {
		return fmt.Errorf("client: pong: %w", err)
	}
	head := p.Heads[strconv.FormatUint(f.id, 10)]
	if u := f.sub.opts.Until; u > 0 {
		head = min(head, u)
	}
	if head > f.cursor.Seq {
		f.link.pulse.behind()
	}
	return nil
}

// keep adds a message to the batch; anything delivered is progress.
func (f *follower) keep(m Message, size int) {
	if f.batch == nil {
		f.batch = make([]Message, 0, max(1, f.last))
	}
	f.batch = append(f.batch, m)
	f.bytes += size
	f.backoff.reset()
}
