package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Scale says how much of a row is done.
type Scale struct {
	Quick bool // enough to see that it works
}

func (s Scale) of(full, quick int) int {
	if s.Quick {
		return quick
	}
	return full
}

func (s Scale) lasting(full time.Duration) time.Duration {
	if s.Quick {
		return min(full, 300*time.Millisecond)
	}
	return full
}

// The rows that every Target can do.
const (
	rowFan      = "fan"
	rowFan20    = "fan20"
	rowRate200  = "rate200"
	rowRate2000 = "rate2000"
	rowIdle     = "idle"
	rowResume   = "resume"
	rowReplay   = "replay"

	rssPerObserver = "server RSS per observer"
	caughtUp       = "all caught up"
	replayed       = "replayed"
)

const (
	observerBuffer = 64 << 10
	idleBuffer     = 1 << 10 // of an observer that only waits
	emitLines      = 32      // of one write of a publisher that is held back
	warmLines      = 32
	diallers       = 64
)

// A CommonRow is one that every Target can do.
type CommonRow struct {
	Name string
	Do   func(ctx context.Context, t Target, sc Scale) ([]Figure, error)
}

// Common are those rows, in order.
var Common = []CommonRow{
	{rowFan, func(ctx context.Context, t Target, sc Scale) ([]Figure, error) {
		return saturate(ctx, t, sc, 1, 100, 512)
	}},
	{rowFan20, func(ctx context.Context, t Target, sc Scale) ([]Figure, error) {
		return saturate(ctx, t, sc, 20, 10, 128)
	}},
	{rowRate200, func(ctx context.Context, t Target, sc Scale) ([]Figure, error) { return atRate(ctx, t, sc, 200) }},
	{rowRate2000, func(ctx context.Context, t Target, sc Scale) ([]Figure, error) { return atRate(ctx, t, sc, 2000) }},
	{rowIdle, func(ctx context.Context, t Target, sc Scale) ([]Figure, error) {
		return idleOf(ctx, t, sc, sc.of(5000, 200))
	}},
	{rowResume, resume},
	{rowReplay, replay},
}

// each calls f for 0 to n−1, so many at a time, and returns what went wrong.
func each(n, atOnce int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	gate := make(chan struct{}, atOnce)
	for i := range n {
		gate <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-gate
		})
	}
	wg.Wait()
	return firstOf(errs)
}

// firstOf is the first error and how many there are: a thousand clients that fail
// fail alike.
func firstOf(errs []error) error {
	var first error
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
			if first == nil {
				first = err
			}
		}
	}
	if n > 1 {
		return fmt.Errorf("%d of %d: %w", n, len(errs), first)
	}
	return first
}

// join subscribes all.
func join(ctx context.Context, s Stream, all []*Observer, bufferBytes, atOnce int) error {
	return each(len(all), atOnce, func(i int) error { return s.Subscribe(ctx, all[i], bufferBytes) })
}

func leave(all []*Observer) {
	for _, o := range all {
		o.Leave()
	}
}

// reach waits until all have seen line n, and returns when the last one had.
func reach(ctx context.Context, all []*Observer, n int64) (time.Time, error) {
	goals := make([]*goal, len(all))
	for i, o := range all {
		goals[i] = o.reach(n)
	}
	var last time.Time
	for i, g := range goals {
		select {
		case <-g.reached:
		case <-all[i].done:
			select {
			case <-g.reached: // and then its connection ended
			default:
				return last, errors.Join(errLink, all[i].fault)
			}
		case <-ctx.Done():
			return last, fmt.Errorf("%w: %d of %d came: %w", errGap, all[i].seen.Load(), n, context.Cause(ctx))
		}
		if g.at.After(last) {
			last = g.at
		}
	}
	return last, nil
}

// settled waits until all have seen everything that s was told to publish, ends
// them and compares what they saw with it.
func settled(ctx context.Context, s Stream, all []*Observer) error {
	d, err := s.Digest(ctx)
	if err != nil {
		return err
	}
	_, err = reach(ctx, all, d.Lines)
	leave(all)
	if err != nil {
		return err
	}
	return each(len(all), 1, func(i int) error { return all[i].Check(ctx, d) })
}

// meter is the processor time of a server since it was made.
type meter struct {
	t    Target
	cpu  time.Duration
	from time.Time
}

func newMeter(t Target) (meter, error) {
	cpu, err := cpuTime(t.PIDs())
	return meter{t, cpu, time.Now()}, err
}

func (m meter) read() (cpu, elapsed time.Duration, err error) {
	cpu, err = cpuTime(m.t.PIDs())
	return cpu - m.cpu, time.Since(m.from), err
}

// per is d for each of n, in µs.
func per(d time.Duration, n int64) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(max(1, n))
}

// publish keeps at most window lines per observer in flight until stop is closed.
func (c *counted) publish(observers, window int64, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if c.sent*observers-c.total.Load() > window*observers {
			select {
			case <-stop:
				return nil
			case <-c.wake:
			}
			continue
		}
		if err := c.Emit(emitLines); err != nil {
			return err
		}
		c.sent += emitLines
	}
}

// crowd is streams with observers.
type crowd struct {
	streams   []*counted
	observers [][]*Observer // by stream
}

// gather makes streams and subscribes observers to each; lines is how many timed
// ones each stream will have, 0 for none.
func gather(ctx context.Context, t Target, streams, observers, lines int) (*crowd, error) {
	c := &crowd{observers: make([][]*Observer, streams)}
	for i := range streams {
		s, err := newCounted(ctx, t)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.streams = append(c.streams, s)
		for range observers {
			o := s.observer()
			if lines > 0 {
				o.Timed, o.Late, o.Half = new(Histogram), new(Histogram), warmLines+int64(lines)/2
			}
			c.observers[i] = append(c.observers[i], o)
		}
		if err := join(ctx, s, c.observers[i], observerBuffer, diallers); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *crowd) total() (n int64) {
	for _, s := range c.streams {
		n += s.total.Load()
	}
	return n
}

func (c *crowd) settled(ctx context.Context) error {
	return each(len(c.streams), len(c.streams), func(i int) error { return settled(ctx, c.streams[i], c.observers[i]) })
}

func (c *crowd) close() error {
	var errs []error
	for i, s := range c.streams {
		leave(c.observers[i])
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// saturate: streams that publish as fast as their observers read.
func saturate(ctx context.Context, t Target, sc Scale, streams, observers int, window int64) (_ []Figure, err error) {
	c, err := gather(ctx, t, streams, observers, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	stop := make(chan struct{})
	published := make(chan error, 1)
	go func() {
		published <- each(streams, streams, func(i int) error { return c.streams[i].publish(int64(observers), window, stop) })
	}()
	wait(ctx, sc.lasting(500*time.Millisecond))
	m, err := newMeter(t)
	before := c.total()
	if err == nil {
		wait(ctx, sc.lasting(2*time.Second))
	}
	n := c.total() - before
	cpu, elapsed, e := m.read()
	rss, e2 := memory(t.PIDs(), "VmRSS")
	close(stop)
	if err := errors.Join(err, e, e2, <-published, c.settled(ctx)); err != nil {
		return nil, err
	}
	return []Figure{
		{Name: deliveries, Unit: perSecond, Value: float64(n) / elapsed.Seconds()},
		{Name: cpuPerDelivery, Unit: micros, Value: per(cpu, n)},
		{Name: serverRSS, Unit: mib, Value: rss / (1 << 20)},
	}, nil
}

// wait lets time pass, which is what is measured.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// atRate: one stream of so many events a second to 100 observers.
func atRate(ctx context.Context, t Target, sc Scale, rate int) (_ []Figure, err error) {
	observers := sc.of(100, 20)
	n := rate * sc.of(4000, 300) / 1000
	c, err := gather(ctx, t, 1, observers, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	m, err := newMeter(t)
	if err != nil {
		return nil, err
	}
	if err := c.streams[0].Pace(ctx, n, rate, 1); err != nil {
		return nil, err
	}
	_, err = reach(ctx, c.observers[0], warmLines+int64(n))
	cpu, _, e := m.read()
	if err := errors.Join(err, e, c.settled(ctx)); err != nil {
		return nil, err
	}
	return append(c.latency(), Figure{Name: cpuPerDelivery, Unit: micros, Value: per(cpu, int64(n*observers))}), nil
}

// warm publishes a few lines and waits for them.
func (c *crowd) warm(ctx context.Context) error {
	return each(len(c.streams), len(c.streams), func(i int) error {
		if err := c.streams[i].Emit(warmLines); err != nil {
			return err
		}
		_, err := reach(ctx, c.observers[i], warmLines)
		return err
	})
}

// latency is that of all observers. They have left.
func (c *crowd) latency() []Figure {
	var all, late Histogram
	for _, s := range c.observers {
		for _, o := range s {
			all.merge(o.Timed)
			late.merge(o.Late)
		}
	}
	return []Figure{
		{Name: p50, Unit: millis, Value: all.quantile(0.5)},
		{Name: p99, Unit: millis, Value: all.quantile(0.99)},
		{Name: "p50 of the later half", Unit: millis, Value: late.quantile(0.5)}, // far above p50: a backlog grows
	}
}

// idleOf : n observers that only wait.
func idleOf(ctx context.Context, t Target, sc Scale, n int) (_ []Figure, err error) {
	s, err := newCounted(ctx, t)
	if err != nil {
		return nil, err
	}
	all := make([]*Observer, n)
	for i := range all {
		all[i] = s.observer()
	}
	defer func() {
		leave(all)
		err = errors.Join(err, s.Close())
	}()
	before, err := memory(t.PIDs(), "VmRSS")
	if err != nil {
		return nil, err
	}
	m, err := newMeter(t)
	if err != nil {
		return nil, err
	}
	if err := join(ctx, s, all, idleBuffer, 2*diallers); err != nil {
		return nil, err
	}
	cpu, _, err := m.read()
	if err != nil {
		return nil, err
	}
	wait(ctx, sc.lasting(2*time.Second))
	after, err := memory(t.PIDs(), "VmRSS")
	if err != nil {
		return nil, err
	}
	if err := s.Emit(1); err != nil { // they live
		return nil, err
	}
	if err := settled(ctx, s, all); err != nil {
		return nil, err
	}
	return []Figure{
		{Name: rssPerObserver, Unit: kib, Value: (after - before) / float64(n) / 1024},
		{Name: "server CPU per connect", Unit: micros, Value: per(cpu, int64(n))},
	}, nil
}

// resume: observers that lost their connections all come back at once.
func resume(ctx context.Context, t Target, sc Scale) (_ []Figure, err error) {
	observers, missed := sc.of(200, 20), sc.of(5000, 500)
	c, err := gather(ctx, t, 1, observers, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	s, all := c.streams[0], c.observers[0]
	leave(all)
	if err := s.fill(ctx, missed); err != nil {
		return nil, err
	}
	m, err := newMeter(t)
	if err != nil {
		return nil, err
	}
	if err := join(ctx, s, all, observerBuffer, observers); err != nil {
		return nil, err
	}
	last, err := reach(ctx, all, warmLines+int64(missed))
	cpu, _, e := m.read()
	if err := errors.Join(err, e, settled(ctx, s, all)); err != nil {
		return nil, err
	}
	return []Figure{
		{Name: caughtUp, Unit: seconds, Value: last.Sub(m.from).Seconds()},
		{Name: cpuInAll, Unit: seconds, Value: cpu.Seconds()},
	}, nil
}

// fill publishes n lines and waits until they can be read.
func (c *counted) fill(ctx context.Context, n int) error {
	d, err := c.Digest(ctx)
	if err != nil {
		return err
	}
	witness := []*Observer{NewObserver(LineBytes)}
	if err := join(ctx, c, witness, observerBuffer, 1); err != nil {
		return err
	}
	for left := n; left > 0; left -= emitLines {
		if err := c.Emit(min(left, emitLines)); err != nil {
			return err
		}
	}
	_, err = reach(ctx, witness, d.Lines+int64(n))
	leave(witness)
	return err
}

// replay: one observer reads a long history from its start.
func replay(ctx context.Context, t Target, sc Scale) (_ []Figure, err error) {
	n := sc.of(100_000, 5000)
	s, err := newCounted(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.fill(ctx, n); err != nil {
		return nil, err
	}
	var took []time.Duration
	var cpus time.Duration
	rounds := sc.of(5, 2)
	for range rounds {
		one := []*Observer{s.observer()}
		m, err := newMeter(t)
		if err != nil {
			return nil, err
		}
		if err := join(ctx, s, one, observerBuffer, 1); err != nil {
			return nil, err
		}
		at, err := reach(ctx, one, int64(n))
		cpu, _, e := m.read()
		if err := errors.Join(err, e, settled(ctx, s, one)); err != nil {
			return nil, err
		}
		took = append(took, at.Sub(m.from))
		cpus += cpu
	}
	return []Figure{
		{Name: replayed, Unit: millis, Value: median(took)},
		{Name: cpuPerEvent, Unit: micros, Value: per(cpus, int64(rounds*n))},
	}, nil
}
