package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// A link is one authenticated connection to a rejoin server. Its reader parses no
// more of an event than it checks, so that a client costs little.
type link struct {
	conn net.Conn
	done chan struct{}
	now  time.Time // when the reader's last bytes came

	mu    sync.Mutex
	calls int
	waits map[int]func(answer, error) // by id; called by the reader

	// The reader's. A subscription is added by the answer that makes it.
	only    *tap // of a link with one subscription
	taps    map[uint64]*tap
	touched []*Observer
	note    func(line []byte, at time.Time) // of a snapshot; nil: none is expected
}

// tap is one subscription of a link.
type tap struct {
	o      *Observer
	prefix []byte // of its events, up to the epoch or the seq
}

// answer is a response.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *refusal        `json:"error"`
}

// refusal is the error of a response.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Retryable bool `json:"retryable"`
	} `json:"data"`
}

func (r *refusal) Error() string { return fmt.Sprintf("%s (%d)", r.Message, r.Code) }

// retryPause is what a client of a row waits before it asks again.
const retryPause = 50 * time.Millisecond

// retried asks again what was refused for the moment, as clients do: it costs the row
// its time, and is counted.
func retried(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var r *refusal
		if err == nil || !errors.As(err, &r) || !r.Data.Retryable || ctx.Err() != nil {
			return err
		}
		tally(ctx).retries.Add(1)
		wait(ctx, retryPause)
	}
}

var errLink = errors.New("bench: the server closed the connection")

// dialLink connects and authenticates.
func dialLink(ctx context.Context, address, token string, bufferBytes int, slow *brake) (*link, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, done: make(chan struct{}), waits: map[int]func(answer, error){}, taps: map[uint64]*tap{}}
	go l.read(bufferBytes, slow)
	if err := l.call(ctx, "authenticate", map[string]any{"token": token}, nil); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) close() {
	_ = l.conn.Close() // what was asked and not answered does not matter any more
	<-l.done
}

func (l *link) read(bufferBytes int, slow *brake) {
	defer close(l.done)
	err := pump(l.conn, bufferBytes, nil, slow, func(b []byte, now time.Time) (int, error) {
		l.now = now
		used, err := l.take(b)
		for _, o := range l.touched {
			o.flush()
		}
		l.touched = l.touched[:0]
		return used, err
	})
	if err != nil {
		for _, t := range l.taps {
			t.o.blame(err)
		}
	}
	l.mu.Lock()
	waits := l.waits
	l.waits = nil
	l.mu.Unlock()
	for _, f := range waits {
		f(answer{}, errors.Join(errLink, err))
	}
}

// call sends a request and waits for its answer; take, unless nil, sees the result
// on the reader's goroutine, before anything that comes after it is read.
func (l *link) call(ctx context.Context, method string, params any, take func(json.RawMessage) error) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	l.mu.Lock()
	if l.waits == nil {
		l.mu.Unlock()
		return errLink
	}
	l.calls++
	id := l.calls
	l.waits[id] = func(a answer, err error) {
		switch {
		case err != nil:
		case a.Error != nil:
			err = fmt.Errorf("%s: %w", method, a.Error)
		case take != nil:
			err = take(a.Result)
		}
		done <- err
	}
	l.mu.Unlock()
	if _, err := fmt.Fprintf(l.conn, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, p); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask is call with a decoded result.
func (l *link) ask(ctx context.Context, method string, params, result any) error {
	return l.call(ctx, method, params, func(raw json.RawMessage) error {
		if result == nil {
			return nil
		}
		return json.Unmarshal(raw, result)
	})
}

// subscribe makes o a subscription of l, from its cursor or as params say.
func (l *link) subscribe(ctx context.Context, session string, o *Observer, params map[string]any) error {
	if params == nil {
		params = map[string]any{"after": o.seq}
		if o.epoch != "" {
			params["epoch"] = o.epoch
		}
	}
	params["sessionId"] = session
	return l.call(ctx, "subscribe", params, func(raw json.RawMessage) error {
		var r struct {
			SubscriptionID uint64
			Epoch          string
			After          uint64
			Mode           string
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if o.epoch != "" && o.epoch != r.Epoch {
			return errEpoch
		}
		if r.Mode == "snapshot" && params["from"] == nil {
			return fmt.Errorf("%w: a snapshot was offered for a cursor", errSeq)
		}
		o.epoch, o.seq = r.Epoch, r.After
		t := &tap{o: o, prefix: fmt.Appendf(nil, `%s%d,"sessionId":%q,`, eventStart, r.SubscriptionID, session)}
		l.taps[r.SubscriptionID] = t
		l.only = t
		if len(l.taps) > 1 {
			l.only = nil
		}
		return nil
	})
}

const (
	answerStart   = `{"jsonrpc":"2.0","id":`
	eventStart    = `{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":`
	snapshotStart = `{"jsonrpc":"2.0","method":"snapshot"`
	seqKey        = `"seq":`
	epochKey      = `"epoch":"`
	childKey      = `"source":"child",`
	eventKey      = `"event":`
	eventEnd      = `}}`
	epochBytes    = 26
)

// take is told what has come and uses its whole lines.
func (l *link) take(b []byte) (int, error) {
	used := 0
	for {
		i := bytes.IndexByte(b[used:], '\n')
		if i < 0 {
			return used, nil
		}
		line := b[used : used+i]
		used += i + 1
		if err := l.line(line); err != nil {
			return used, err
		}
	}
}

func (l *link) line(b []byte) error {
	if t := l.only; t != nil && bytes.HasPrefix(b, t.prefix) {
		return l.event(t, b[len(t.prefix):])
	}
	switch {
	case bytes.HasPrefix(b, []byte(eventStart)):
		rest := b[len(eventStart):]
		digits := bytes.IndexByte(rest, ',')
		id, err := strconv.ParseUint(string(rest[:max(0, digits)]), 10, 64)
		if err != nil {
			return fmt.Errorf("event: %w", err)
		}
		t := l.taps[id]
		if t == nil || !bytes.HasPrefix(b, t.prefix) {
			return fmt.Errorf("an event of subscription %d, which is not this connection's", id)
		}
		return l.event(t, b[len(t.prefix):])
	case bytes.HasPrefix(b, []byte(answerStart)):
		return l.answered(b)
	case bytes.HasPrefix(b, []byte(snapshotStart)):
		if l.note != nil {
			l.note(b, time.Now())
		}
	}
	return nil
}

func (l *link) answered(b []byte) error {
	rest := b[len(answerStart):]
	id, err := strconv.Atoi(string(rest[:max(0, bytes.IndexByte(rest, ','))]))
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	l.mu.Lock()
	f := l.waits[id]
	delete(l.waits, id)
	l.mu.Unlock()
	if f != nil {
		f(a, nil)
	}
	return nil
}

// event checks epoch and density and hands the child's lines to the observer. b
// is what follows the prefix.
func (l *link) event(t *tap, b []byte) error {
	o := t.o
	if bytes.HasPrefix(b, []byte(epochKey)) {
		epoch := b[len(epochKey):]
		if len(epoch) < epochBytes || string(epoch[:epochBytes]) != o.epoch {
			return errEpoch
		}
		b = epoch[epochBytes+len(`",`):]
	}
	if !bytes.HasPrefix(b, []byte(seqKey)) {
		return fmt.Errorf("%w: an event without seq", errSeq)
	}
	seq, at := uint64(0), len(seqKey)
	for ; at < len(b) && b[at] >= '0' && b[at] <= '9'; at++ {
		seq = seq*10 + uint64(b[at]-'0')
	}
	if seq != o.seq+1 {
		return fmt.Errorf("%w: %d after %d", errSeq, seq, o.seq)
	}
	o.seq = seq
	body := bytes.Index(b, []byte(eventKey))
	if body < 0 || !bytes.HasSuffix(b, []byte(eventEnd)) {
		return errForm
	}
	if !bytes.HasSuffix(b[:body], []byte(childKey)) {
		return nil // rejoin's own: it counts as a seq
	}
	o.now = l.now
	o.line(b[body+len(eventKey) : len(b)-len(eventEnd)])
	if n := len(l.touched); n == 0 || l.touched[n-1] != o {
		l.touched = append(l.touched, o)
	}
	return nil
}
