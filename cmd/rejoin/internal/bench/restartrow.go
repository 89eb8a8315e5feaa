package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The row about starts.
const (
	rowRestart = "restart"

	startClean   = "start after a stop"
	startKilled  = "start after kill -9"
	heapPerEnded = "server memory per ended session"
	rssPerEnded  = "server RSS per ended session"

	// restSettles is how long a server that was started rests before its memory is
	// read: it then has given back what the start took.
	restSettles = 15 * time.Second
)

// restartRow: a server with many sessions is stopped, started, killed and started.
func restartRow(ctx context.Context, e *env) ([]Figure, error) {
	const large = 8 // that share the gigabyte: the log of one would be trimmed
	ended, live, lines := e.of(9000, 60)-large, e.of(1000, 20), e.of(450_000, 1000)
	if err := e.restart(ctx, e.s.Stop); err != nil {
		return nil, err
	}
	empty, err := e.rest(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := e.sessions(ctx, ended, []string{"/bin/echo", `{"n":1}`}); err != nil {
		return nil, err
	}
	starts := time.Since(began)
	written := make([]history, large)
	for i := range written {
		if written[i], err = e.history(ctx, lines); err != nil {
			return nil, err
		}
	}
	if err := e.restart(ctx, e.s.Stop); err != nil {
		return nil, err
	}
	clean := e.s.Started
	full, err := e.rest(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.sessions(ctx, live, []string{"/bin/cat"}); err != nil {
		return nil, err
	}
	if err := e.restart(ctx, e.s.Kill); err != nil {
		return nil, err
	}
	for _, h := range written {
		if err := e.reread(ctx, h); err != nil {
			return nil, err
		}
	}
	if err := e.count(ctx, ended+live+large); err != nil {
		return nil, err
	}
	return []Figure{
		{Name: startClean, Unit: seconds, Value: clean.Seconds()},
		{Name: startKilled, Unit: seconds, Value: e.s.Started.Seconds()},
		{Name: heapPerEnded, Unit: kib, Value: (full.heap - empty.heap) / float64(ended+large) / 1024},
		{Name: rssPerEnded, Unit: kib, Value: (full.rss - empty.rss) / float64(ended+large) / 1024},
		{Name: "sessions started", Unit: perSecond, Value: float64(ended) / starts.Seconds()},
	}, nil
}

// held is what a server at rest holds, in bytes.
type held struct{ rss, heap float64 }

// rest waits until the server is at rest. RSS is read first: the heap is collected
// for its figure.
func (e *env) rest(ctx context.Context) (h held, err error) {
	wait(ctx, e.lasting(restSettles))
	if h.rss, err = memory(e.r.PIDs(), "VmRSS"); err != nil {
		return h, err
	}
	h.heap, err = e.s.heap(ctx)
	return h, err
}

// history is a session that was written to, and what was.
type history struct {
	session string
	written Digest
}

// history makes a session with so many lines, whose child ends.
func (e *env) history(ctx context.Context, lines int) (history, error) {
	s, d, err := e.filled(ctx, lines)
	if err != nil {
		return history{}, err
	}
	return history{s.id, d}, s.Close()
}

// reread compares what is stored of a session with what was written.
func (e *env) reread(ctx context.Context, h history) error {
	one := NewObserver(LineBytes)
	if err := (&session{r: e.r, id: h.session}).Subscribe(ctx, one, observerBuffer); err != nil {
		return err
	}
	_, err := reach(ctx, []*Observer{one}, h.written.Lines)
	one.Leave()
	return errors.Join(err, one.Check(ctx, h.written))
}

// sessions starts n sessions of a program and waits until none is starting.
func (e *env) sessions(ctx context.Context, n int, argv []string) error {
	return each(n, 16, func(int) error {
		_, err := e.r.start(ctx, argv, "jsonl")
		return err
	})
}

// count checks that so many sessions are known.
func (e *env) count(ctx context.Context, want int) error {
	var list []struct{ ID string }
	if err := e.r.link.ask(ctx, "list_sessions", map[string]any{}, &list); err != nil {
		return err
	}
	if len(list) != want {
		return fmt.Errorf("%w: %d of %d sessions are known after kill -9", errGap, len(list), want)
	}
	return nil
}
