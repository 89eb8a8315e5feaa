package bench

import (
	"context"
	"errors"
	"time"
)

// Rows about what others notice of one that takes too much, and of one that takes
// nothing.
const (
	rowSlow  = "slow"
	rowFair  = "fair"
	rowQuiet = "quiet"

	slowRatio  = "fast ones, with to without"
	slowMemory = "server memory per stalled reader"
)

// slowRow: a reader of 10 KB/s beside 50 fast ones.
func slowRow(ctx context.Context, e *env) ([]Figure, error) {
	var without, with []float64
	var cpuWithout, cpuWith []float64
	for range e.of(3, 1) {
		rate, cpu, err := e.beside(ctx, false)
		if err != nil {
			return nil, err
		}
		without, cpuWithout = append(without, rate), append(cpuWithout, cpu)
		if rate, cpu, err = e.beside(ctx, true); err != nil {
			return nil, err
		}
		with, cpuWith = append(with, rate), append(cpuWith, cpu)
	}
	held, err := e.stalled(ctx)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: slowRatio, Unit: ratio, Value: Median(with) / Median(without)},
		{Name: deliveries, Unit: perSecond, Value: Median(with)},
		{Name: cpuPerDelivery + ", with", Unit: micros, Value: Median(cpuWith)},
		{Name: cpuPerDelivery + ", without", Unit: micros, Value: Median(cpuWithout)},
		{Name: slowMemory, Unit: kib, Value: held},
	}, nil
}

// beside is the rate of the fast ones, and the server's time per delivery to them.
func (e *env) beside(ctx context.Context, withSlow bool) (rate, cpu float64, err error) {
	fast, n := e.of(50, 10), e.of(24_000, 3000)
	c, err := gather(ctx, e.r, 1, fast, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	s := c.streams[0]
	var slow []*Observer
	if withSlow {
		o := NewObserver(LineBytes)
		o.slow = newBrake(10_000)
		slow = append(slow, o)
		if err := join(ctx, s, slow, observerBuffer, 1); err != nil {
			return 0, 0, err
		}
	}
	if err := c.warm(ctx); err != nil {
		return 0, 0, err
	}
	s.sent = warmLines
	m, err := newMeter(e.r)
	if err != nil {
		return 0, 0, err
	}
	stop := make(chan struct{})
	published := make(chan error, 1)
	go func() { published <- s.publish(int64(fast), 512, stop) }()
	_, err = reach(ctx, c.observers[0], int64(n))
	used, elapsed, e2 := m.read()
	close(stop)
	delivered := s.total.Load() - int64(fast*warmLines)
	if err := errors.Join(err, e2, <-published); err != nil {
		return 0, 0, err
	}
	if withSlow {
		close(slow[0].slow.off) // now it may have the rest, and must
	}
	if err := errors.Join(c.settled(ctx), settled(ctx, s, slow)); err != nil {
		return 0, 0, err
	}
	return float64(delivered) / elapsed.Seconds(), per(used, delivered), nil
}

// stalled is what the server's heap holds for each reader that has stopped reading
// in the middle of a history that no socket takes whole. What the first of them
// share, the part of the journal that they stand at, is not the others'.
func (e *env) stalled(ctx context.Context) (_ float64, err error) {
	first, more := e.of(8, 2), e.of(32, 4)
	s, err := newCounted(ctx, e.r)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.fill(ctx, e.of(100_000, 40_000)); err != nil { // 33 MB
		return 0, err
	}
	all := make([]*Observer, first+more)
	for i := range all {
		all[i] = NewObserver(LineBytes)
		all[i].slow = newBrake(10)
	}
	few, err := e.heapBeside(ctx, s, all[:first])
	if err != nil {
		return 0, err
	}
	many, err := e.heapBeside(ctx, s, all[first:])
	if err != nil {
		return 0, err
	}
	for _, o := range all {
		close(o.slow.off)
	}
	return max(0, many-few) / float64(more) / 1024, settled(ctx, s, all)
}

// heapBeside is the server's heap once these stalled readers have come.
func (e *env) heapBeside(ctx context.Context, s Stream, stalled []*Observer) (float64, error) {
	if err := join(ctx, s, stalled, observerBuffer, len(stalled)); err != nil {
		return 0, err
	}
	wait(ctx, time.Second) // until the server has filled what it can
	return e.s.heap(ctx)
}

// fair: sessions of a moderate rate, alone and while another one floods.
func fair(ctx context.Context, e *env) (_ []Figure, err error) {
	const rate = 20
	streams, n := e.of(50, 5), e.of(4*rate, rate/2)
	var figures []Figure
	for _, flooded := range []bool{false, true} {
		got, err := e.besideFlood(ctx, flooded, func() ([]Figure, error) {
			c, err := gather(ctx, e.r, streams, 1, n)
			if err != nil {
				return nil, err
			}
			err = c.warm(ctx)
			if err == nil {
				err = each(streams, streams, func(i int) error { return c.streams[i].Pace(ctx, n, rate, 1) })
			}
			if err := errors.Join(err, c.settled(ctx), c.close()); err != nil {
				return nil, err
			}
			return c.latency()[:2], nil
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, got...)
	}
	return figures, nil
}

// besideFlood does something while, if so, a session floods and is observed.
func (e *env) besideFlood(ctx context.Context, flooded bool, do func() ([]Figure, error)) (_ []Figure, err error) {
	if !flooded {
		return do()
	}
	s, err := newCounted(ctx, e.r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	one := []*Observer{s.observer()}
	if err := join(ctx, s, one, observerBuffer, 1); err != nil {
		return nil, err
	}
	stop, err := s.Stream.(*session).flood(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	figures, err := do()
	rate := float64(s.total.Load()) / time.Since(began).Seconds()
	if err := errors.Join(err, stop(), settled(ctx, s, one)); err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].Name += " beside a flood"
	}
	return append(figures, Figure{Name: "the flood", Unit: perSecond, Value: rate}), nil
}

// quiet: subscriptions to quiet sessions on one connection, alone and with one to a
// session that floods.
func quiet(ctx context.Context, e *env) ([]Figure, error) {
	alone, err := e.oneConnection(ctx, false)
	if err != nil {
		return nil, err
	}
	beside, err := e.oneConnection(ctx, true)
	if err != nil {
		return nil, err
	}
	for i := range beside {
		beside[i].Name += " beside a flood"
	}
	return append(alone, beside...), nil
}

func (e *env) oneConnection(ctx context.Context, flooded bool) (_ []Figure, err error) {
	const rate = 10
	streams, n := e.of(20, 4), e.of(4*rate, rate/2)
	l, err := dialLink(ctx, e.s.address, e.s.token, observerBuffer, nil)
	if err != nil {
		return nil, err
	}
	defer l.close()
	sessions := make([]*session, streams)
	all := make([]*Observer, streams)
	defer func() {
		for _, s := range sessions {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for i := range sessions {
		if sessions[i], err = e.r.session(ctx, LineBytes); err != nil {
			return nil, err
		}
		all[i] = NewObserver(LineBytes)
		all[i].Timed, all[i].done = new(Histogram), l.done
		if err := l.subscribe(ctx, sessions[i].id, all[i], nil); err != nil {
			return nil, err
		}
	}
	stop := func() error { return nil }
	if flooded {
		s, err := e.r.session(ctx, LineBytes)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
		o := NewObserver(LineBytes)
		o.done = l.done
		all = append(all, o)
		if err := l.subscribe(ctx, s.id, o, nil); err != nil {
			return nil, err
		}
		if stop, err = s.flood(ctx); err != nil {
			return nil, err
		}
	}
	pings, err := e.pinged(ctx, l, func() error {
		return each(streams, streams, func(i int) error { return sessions[i].Pace(ctx, n, rate, 1) })
	})
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	var h Histogram
	for i, o := range all {
		d, err := sessions[i].Digest(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := reach(ctx, []*Observer{o}, d.Lines); err != nil {
			return nil, err
		}
	}
	l.close()
	for i, o := range all {
		d, err := sessions[i].Digest(ctx)
		if err == nil {
			err = o.Check(ctx, d)
		}
		if err != nil {
			return nil, err
		}
		if o.Timed != nil {
			h.merge(o.Timed)
		}
	}
	return []Figure{
		{Name: p50, Unit: millis, Value: h.quantile(0.5)},
		{Name: p99, Unit: millis, Value: h.quantile(0.99)},
		{Name: "ping p50", Unit: millis, Value: median(pings)},
		{Name: "ping p99", Unit: millis, Value: rank(pings, 0.99)},
	}, nil
}

// pinged pings over l while something is done.
func (e *env) pinged(ctx context.Context, l *link, do func() error) ([]time.Duration, error) {
	over := make(chan error, 1)
	go func() { over <- do() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var took []time.Duration
	for {
		select {
		case err := <-over:
			return took, err
		case <-tick.C:
		}
		began := time.Now()
		if err := l.ask(ctx, "ping", map[string]any{}, nil); err != nil {
			return took, errors.Join(err, <-over)
		}
		took = append(took, time.Since(began))
	}
}
