package gateway

import (
	"context"
	"strconv"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// The modes of a subscription's start.
const (
	modeLive     = "live"
	modeReplay   = "replay"
	modeSnapshot = "snapshot"
)

// Why a snapshot comes.
const (
	reasonRequested = "requested"
	reasonEpoch     = "epoch"
	reasonFuture    = "future"
	reasonTrimmed   = "trimmed"
	reasonDamaged   = "damaged"
)

// syncTimeout bounds the wait for the journal's word on a log's head.
const syncTimeout = 15 * time.Second

// wish is what a client wants to read from: at most one of the fields of its
// first line is set, and nothing means live.
type wish struct {
	hasAfter, start, snapshot bool
	after                     protocol.Seq
	epoch                     protocol.Epoch // with hasAfter; empty: any
}

// position is what the log can give for a wish.
type position struct {
	mode, reason string
	cursor       protocol.Cursor
	epoch        protocol.Epoch
	head         protocol.Seq
}

// decide places a wish in a log: live, the exact events after a cursor, or a
// snapshot with the first reason that holds.
func decide(w wish, at journal.Position) position {
	p := position{mode: modeLive, cursor: protocol.Cursor{Epoch: at.Epoch, Seq: at.Head}, epoch: at.Epoch, head: at.Head}
	if w.start {
		w.hasAfter, w.after = true, 0
	}
	switch {
	case w.snapshot:
		p.mode, p.reason = modeSnapshot, reasonRequested
	case !w.hasAfter:
	case w.epoch != "" && w.epoch != at.Epoch:
		p.mode, p.reason = modeSnapshot, reasonEpoch
	case w.after > at.Head:
		p.mode, p.reason = modeSnapshot, reasonFuture
	case w.after+1 < at.Floor:
		p.mode, p.reason = modeSnapshot, reasonTrimmed
	default:
		p.mode, p.cursor.Seq = modeReplay, w.after
	}
	return p
}

// parseAfter reads after and epoch, which subscribe and resync share.
func parseAfter(p protocol.Params) (wish, error) {
	var w wish
	after, ok, err := p.Uint("after")
	if err != nil {
		return w, err
	}
	w.hasAfter, w.after = ok, protocol.Seq(after)
	epoch, ok, err := p.String("epoch")
	if err != nil {
		return w, err
	}
	if ok && !w.hasAfter {
		return w, invalid("epoch needs after")
	}
	w.epoch = protocol.Epoch(epoch)
	return w, nil
}

func parseSubscribe(p protocol.Params) (w wish, until protocol.Seq, hasUntil bool, err error) {
	if w, err = parseAfter(p); err != nil {
		return w, 0, false, err
	}
	from, ok, err := p.String("from")
	if err != nil {
		return w, 0, false, err
	}
	if ok && w.hasAfter {
		return w, 0, false, invalid("after and from exclude each other")
	}
	if ok {
		switch from {
		case "start":
			w.start = true
		case "snapshot":
			w.snapshot = true
		case "now":
		default:
			return w, 0, false, invalid("from must be start, snapshot or now")
		}
	}
	n, hasUntil, err := p.Uint("until")
	return w, protocol.Seq(n), hasUntil, err
}

func subscribe(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	want, until, hasUntil, err := parseSubscribe(r.params)
	if err != nil {
		return reply{}, err
	}
	log, err := c.srv.sessions.Log(ctx, r.who, id)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	own := c.srv.census.space(r.who.Workspace)
	s := &subscription{c: c, id: own.lastID.Add(1), space: own, log: log, until: until, hasUntil: hasUntil}
	if s.w, err = c.srv.watches.Watch(ctx, log); err != nil {
		return reply{}, err
	}
	at, err := c.srv.attached(ctx, r.who, log, want, s.w)
	if err == nil && !c.add(s) {
		err = protocol.Errorf(protocol.ReasonOverloaded, "more than %d subscriptions on this connection", protocol.SubscriptionsMax).Met("SubscriptionsMax")
	}
	if err != nil {
		s.w.Release()
		return reply{}, err
	}
	s.prefix = protocol.AppendEventPrefix(nil, s.id, id, "")
	s.w.Add(s)
	p := decide(want, at)
	return reply{
		result: appendSubscribed(nil, s, p),
		then:   func() { c.place(s, p) },
		// A deletion before the activation told nobody about this subscription.
		after: func() { c.endIfDeleted(ctx, s, r) },
	}, nil
}

// endIfDeleted ends s when its session is no more.
func (c *conn) endIfDeleted(ctx context.Context, s *subscription, r *request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	_, err := c.srv.sessions.Log(ctx, r.who, s.log.Key.Session)
	if e, ok := protocol.AsError(err); ok && e.Reason == protocol.ReasonSessionNotFound {
		c.end(s, endDeleted)
	}
}

func appendSubscribed(dst []byte, s *subscription, p position) []byte {
	dst = append(dst, `{"subscriptionId":`...)
	dst = strconv.AppendUint(dst, s.id, 10)
	dst = append(dst, `,"sessionId":`...)
	dst = protocol.AppendString(dst, s.log.Key.Session)
	dst = append(dst, `,"status":"subscribed","mode":"`...)
	dst = append(dst, p.mode...)
	dst = append(dst, `","epoch":`...)
	dst = protocol.AppendString(dst, string(p.epoch))
	dst = append(dst, `,"after":`...)
	dst = strconv.AppendUint(dst, uint64(p.cursor.Seq), 10)
	dst = append(dst, `,"head":`...)
	dst = strconv.AppendUint(dst, uint64(p.head), 10)
	if p.reason != "" {
		dst = append(dst, `,"reason":"`...)
		dst = append(dst, p.reason...)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// errNoSubscription is what an id gets that this connection never had.
func errNoSubscription(id uint64) *protocol.Error {
	return invalid("subscription %d is not one of this connection", id)
}

func subscriptionID(p protocol.Params) (uint64, error) {
	id, ok, err := p.Uint("subscriptionId")
	if err == nil && !ok {
		err = protocol.Required("subscriptionId")
	}
	return id, err
}

func resync(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := subscriptionID(r.params)
	if err != nil {
		return reply{}, err
	}
	want, err := parseAfter(r.params)
	if err != nil {
		return reply{}, err
	}
	force, _, err := r.params.Bool("force")
	if err != nil {
		return reply{}, err
	}
	want.snapshot = force
	c.mu.Lock()
	s := c.subs[id]
	if s == nil {
		c.mu.Unlock()
		return reply{}, errNoSubscription(id)
	}
	s.acquire()
	c.park(s) // it must not end before its answer is there
	c.mu.Unlock()
	defer s.release()
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	at, err := c.srv.attached(ctx, r.who, s.log, want, s.w)
	if err != nil {
		c.unpark(s)
		return reply{}, err
	}
	p := decide(want, at)
	return reply{result: appendSubscribed(nil, s, p), then: func() { c.place(s, p) }}, nil
}

func unsubscribe(_ context.Context, c *conn, r *request) (reply, error) {
	id, err := subscriptionID(r.params)
	if err != nil {
		return reply{}, err
	}
	c.mu.Lock()
	s, had := c.subs[id], c.retired.has(id)
	watch := c.watching[id]
	removed := s != nil && c.remove(s)
	c.mu.Unlock()
	switch {
	case watch != nil:
		c.dropWatch(watch)
	case removed:
		s.release()
	case !had:
		return reply{}, errNoSubscription(id)
	}
	dst := append([]byte(nil), `{"subscriptionId":`...)
	dst = strconv.AppendUint(dst, id, 10)
	return reply{result: append(dst, `,"status":"unsubscribed"}`...)}, nil
}
