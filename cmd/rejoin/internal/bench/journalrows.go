package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Rows about what happens before anybody observes it.
const (
	rowJournal  = "journal"
	rowFlood    = "flood"
	rowSessions = "sessions"
	rowCommand  = "command"

	cpuLone  = "server CPU per lone event"
	cpuBurst = "server CPU per event in bursts of 32"
)

// journalRow: what an event costs from the child to the disk, alone and in company.
func journalRow(ctx context.Context, e *env) (_ []Figure, err error) {
	s, err := e.r.session(ctx, LineBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const burst = 32
	lone, err := e.paced(ctx, s, e.of(4000, 200), 2000, 1)
	if err != nil {
		return nil, err
	}
	many, err := e.paced(ctx, s, e.of(800, 60), 400, burst)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: cpuLone, Unit: micros, Value: lone},
		{Name: cpuBurst, Unit: micros, Value: many},
	}, e.replayAll(ctx, s)
}

// paced is the server's time per event while a child prints at a rate.
func (e *env) paced(ctx context.Context, s *session, n, rate, burst int) (float64, error) {
	head, err := s.head(ctx)
	if err != nil {
		return 0, err
	}
	m, err := newMeter(e.r)
	if err != nil {
		return 0, err
	}
	if err := s.Pace(ctx, n, rate, burst); err != nil {
		return 0, err
	}
	if err := s.headReaches(ctx, head+uint64(n*burst)); err != nil {
		return 0, err
	}
	cpu, _, err := m.read()
	return per(cpu, int64(n*burst)), err
}

// replayAll reads the session from its start and compares it with what was printed.
func (e *env) replayAll(ctx context.Context, s *session) error {
	one := []*Observer{NewObserver(LineBytes)}
	if err := join(ctx, s, one, observerBuffer, 1); err != nil {
		return err
	}
	return settled(ctx, s, one)
}

// flood: a child prints as fast as it can, and nobody looks.
func flood(ctx context.Context, e *env) (_ []Figure, err error) {
	s, err := e.r.session(ctx, LineBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	stop, err := s.flood(ctx)
	if err != nil {
		return nil, err
	}
	wait(ctx, e.lasting(500*time.Millisecond))
	first, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	m, err := newMeter(e.r)
	if err != nil {
		return nil, err
	}
	wait(ctx, e.lasting(time.Second)) // not longer: all of it has to be within the default retention of 1 GiB, for replayAll
	last, err := s.head(ctx)
	if err != nil {
		return nil, err
	}
	cpu, elapsed, err := m.read()
	peak, e2 := memory(e.r.PIDs(), "VmHWM")
	if err := errors.Join(err, e2, stop(), e.replayAll(ctx, s)); err != nil {
		return nil, err
	}
	return []Figure{
		{Name: eventsRate, Unit: perSecond, Value: float64(last-first) / elapsed.Seconds()},
		{Name: cpuPerEvent, Unit: micros, Value: per(cpu, int64(last-first))},
		{Name: "peak of " + serverRSS, Unit: mib, Value: peak / (1 << 20)},
	}, nil
}

// sessionsRow: many sessions that print at a moderate rate, one observer each.
func sessionsRow(ctx context.Context, e *env) (_ []Figure, err error) {
	const rate = 100
	streams, n := e.of(50, 5), e.of(4*rate, rate/2)
	c, err := gather(ctx, e.r, streams, 1, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	m, err := newMeter(e.r)
	if err != nil {
		return nil, err
	}
	err = each(streams, streams, func(i int) error { return c.streams[i].Pace(ctx, n, rate, 1) })
	cpu, _, e2 := m.read()
	if err := errors.Join(err, e2, c.settled(ctx)); err != nil {
		return nil, err
	}
	return append(c.latency(), Figure{Name: cpuPerEvent, Unit: micros, Value: per(cpu, int64(streams*n))}), nil
}

// command: one command after the other, from the client to the child's stdin.
func command(ctx context.Context, e *env) (_ []Figure, err error) {
	s, err := e.r.session(ctx, LineBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := dialLink(ctx, e.s.address, e.s.token, controlBuffer, nil)
	if err != nil {
		return nil, err
	}
	defer l.close()
	sent := NewLines(LineBytes)
	var admitted, heard []time.Duration
	for i := range e.of(1000, 50) {
		line := sent.Append(nil, time.Now().UnixNano())
		var a struct{ Status string }
		began := time.Now()
		if err := l.ask(ctx, "send", map[string]any{"sessionId": s.id, "command": json.RawMessage(line)}, &a); err != nil {
			return nil, err
		}
		admitted = append(admitted, time.Since(began))
		h, err := s.hears(ctx, int64(i+1))
		if err != nil {
			return nil, err
		}
		if want := sent.Digest().Sum; h.sum != want {
			return nil, fmt.Errorf("%w: SHA-256 of %d commands", errForm, i+1)
		}
		heard = append(heard, h.at.Sub(began))
	}
	return []Figure{
		{Name: p50, Unit: millis, Value: median(heard)},
		{Name: p99, Unit: millis, Value: rank(heard, 0.99)},
		{Name: "answered, p50", Unit: millis, Value: median(admitted)},
		{Name: "answered, p99", Unit: millis, Value: rank(admitted, 0.99)},
	}, e.replayAll(ctx, s)
}
