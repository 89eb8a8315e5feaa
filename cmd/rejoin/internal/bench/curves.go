package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Curve is a row at several sizes.
type Curve struct {
	Name   string
	What   string // what grows
	Row    string // that it is a form of; empty: of rejoin alone
	Points []int
	Quick  []int // instead of Points
	Do     func(ctx context.Context, t Target, sc Scale, x int) ([]Figure, error)
}

// Sizes are the points of a scale.
func (c *Curve) Sizes(sc Scale) []int {
	if sc.Quick {
		return c.Quick
	}
	return c.Points
}

// Curves are all of them, in order.
var Curves = []Curve{
	{"observers", "observers of one saturated session", rowFan, []int{1, 10, 100, 1000, 10_000}, []int{1, 10}, crowded},
	{"rate", "events/s of one session with 100 observers", rowRate2000, []int{10, 100, 500, 1000, 2000, 5000}, []int{100, 1000}, atRate},
	{"connections", "observers that wait", rowIdle, []int{100, 1000, 5000, 10_000}, []int{50, 100}, idleOf},
	{"sessions", "sessions whose child waits", "", []int{10, 100, 500, 1000}, []int{5, 10}, sessionsOf},
	{"history", "events that a session has", "", []int{1000, 10_000, 100_000, 1_000_000}, []int{500, 1000}, historyOf},
}

// crowded saturates one stream with observers; what is in flight to all of them together is bounded,
// so that the clients' buffers are not what is measured.
func crowded(ctx context.Context, t Target, sc Scale, observers int) ([]Figure, error) {
	const inFlight = 50_000
	return saturate(ctx, t, sc, 1, observers, min(512, max(2*emitLines, int64(inFlight/observers))))
}

// errOwn is the error of a curve of rejoin's own, asked of another server.
var errOwn = errors.New("bench: only rejoin can do that")

func ownEnv(t Target, sc Scale) (*env, error) {
	r, ok := t.(*rejoin)
	if !ok {
		return nil, errOwn
	}
	return &env{Scale: sc, s: r.Server, r: r}, nil
}

// sessionsOf is the memory of sessions that live.
func sessionsOf(ctx context.Context, t Target, sc Scale, n int) ([]Figure, error) {
	e, err := ownEnv(t, sc)
	if err != nil {
		return nil, err
	}
	before, err := memory(t.PIDs(), "VmRSS")
	if err != nil {
		return nil, err
	}
	if err := e.sessions(ctx, n, []string{"/bin/cat"}); err != nil {
		return nil, err
	}
	wait(ctx, sc.lasting(2*time.Second))
	after, err := memory(t.PIDs(), "VmRSS")
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: serverRSS, Unit: mib, Value: after / (1 << 20)},
		{Name: "server RSS per session", Unit: kib, Value: (after - before) / float64(n) / 1024},
	}, e.count(ctx, n)
}

// historyOf is what it costs to come to a session of n events: by snapshot, and
// behind all but its last 100 at a server that has just been started.
func historyOf(ctx context.Context, t Target, sc Scale, n int) (_ []Figure, err error) {
	e, err := ownEnv(t, sc)
	if err != nil {
		return nil, err
	}
	adapter := e.r.adapter
	e.r.adapter = "lines" // whose state has items
	joined, err := e.joinOne(ctx, n)
	if err != nil {
		return nil, err
	}
	e.r.adapter = adapter
	s, _, err := e.filled(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	rss, err := memory(t.PIDs(), "VmRSS")
	if err != nil {
		return nil, err
	}
	resumed, err := e.coldLasts(ctx, s, n)
	if err != nil {
		return nil, err
	}
	return []Figure{
		{Name: "join by snapshot", Unit: millis, Value: joined},
		{Name: fmt.Sprintf("resume of the last %d, cold", lastLines), Unit: millis, Value: resumed},
		{Name: serverRSS, Unit: mib, Value: rss / (1 << 20)},
	}, nil
}
