package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// feed is the row's end of the socket over which its child takes orders. Emit and
// what is answered are for one goroutine each.
type feed struct {
	conn    net.Conn
	answers chan string // done and sum
	ended   chan struct{}

	mu    sync.Mutex
	heard map[int64]heard // by number of the line of stdin
	wake  chan struct{}
}

// heard is a line of stdin that the child had.
type heard struct {
	at  time.Time
	sum string // SHA-256 of all lines so far
}

// errChild: the child of a row is gone or says what it must not. No retry helps.
var errChild = errors.New("bench: the child of the row does not answer")

// feedSocket is where one child is awaited: an abstract Unix socket under a name
// that nobody guesses.
func feedSocket(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "unix", "@rejoin-bench-"+rand.Text())
}

// acceptFeed waits for the child.
func acceptFeed(ctx context.Context, l net.Listener) (*feed, error) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	conn, err := l.Accept()
	if err != nil {
		return nil, errors.Join(errChild, err, context.Cause(ctx))
	}
	f := &feed{conn: conn, answers: make(chan string, 1), ended: make(chan struct{}), heard: map[int64]heard{}, wake: make(chan struct{}, 1)}
	go f.read()
	return f, nil
}

func (f *feed) read() {
	defer close(f.ended)
	in := bufio.NewScanner(f.conn)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		if word != "in" {
			f.answers <- in.Text() // there is one order at a time that is answered
			continue
		}
		var n, at int64
		var h heard
		if _, err := fmt.Sscan(rest, &n, &at, &h.sum); err != nil {
			return
		}
		h.at = time.Unix(0, at)
		f.mu.Lock()
		f.heard[n] = h
		f.mu.Unlock()
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func (f *feed) order(format string, args ...any) error {
	_, err := io.WriteString(f.conn, fmt.Sprintf(format, args...)+"\n")
	return err
}

// answer waits for the answer to an order that has one.
func (f *feed) answer(ctx context.Context) (string, error) {
	select {
	case a := <-f.answers:
		return a, nil
	case <-f.ended:
		return "", errChild
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Emit has the child print n lines at once.
func (f *feed) Emit(n int) error { return f.order("emit %d", n) }

// Pace has it print burst timed lines n times at a rate, and waits until it has.
func (f *feed) Pace(ctx context.Context, n, rate, burst int) error {
	if err := f.order("pace %d %d %d", n, rate, burst); err != nil {
		return err
	}
	_, err := f.answer(ctx)
	return err
}

// flood has it print until the returned function is called, which waits.
func (f *feed) flood(ctx context.Context) (stop func() error, err error) {
	if err := f.order("flood"); err != nil {
		return nil, err
	}
	return func() error {
		if err := f.order("stop"); err != nil {
			return err
		}
		_, err := f.answer(ctx)
		return err
	}, nil
}

// Digest asks what was printed, after everything ordered so far.
func (f *feed) Digest(ctx context.Context) (Digest, error) {
	if err := f.order("sum"); err != nil {
		return Digest{}, err
	}
	a, err := f.answer(ctx)
	if err != nil {
		return Digest{}, err
	}
	var d Digest
	if _, err := fmt.Sscanf(a, "sum %d %s", &d.Lines, &d.Sum); err != nil {
		return d, fmt.Errorf("%w: %q", errChild, a)
	}
	return d, nil
}

// hears waits for the n-th line of stdin.
func (f *feed) hears(ctx context.Context, n int64) (heard, error) {
	for {
		f.mu.Lock()
		h, ok := f.heard[n]
		delete(f.heard, n)
		f.mu.Unlock()
		if ok {
			return h, nil
		}
		select {
		case <-f.wake:
		case <-f.ended:
			return heard{}, errChild
		case <-ctx.Done():
			return heard{}, context.Cause(ctx)
		}
	}
}

// close gives up the socket: the child ends.
func (f *feed) close() {
	_ = f.conn.Close() // nothing more is asked of it
	for {
		select {
		case <-f.answers: // for whoever stopped waiting
		case <-f.ended:
			return
		}
	}
}
