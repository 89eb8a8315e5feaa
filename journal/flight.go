package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// flightAnswers is what waits of answers to one flight: that of the attempt, and late
// ones of those before.
const flightAnswers = 4

// errNoAck: the server was asked to store something and has not said that it did.
var errNoAck = errors.New("no acknowledgement in time")

// flight takes one record at a time to the store. It has a subject for
// its answers, which come from the connection's reader straight to who waits: a
// request of nats.go wakes one goroutine more on the way, and allocates a subject, a
// channel and a context each time.
type flight struct {
	nc      *nats.Conn
	inbox   string // what the subjects of all answers begin with
	answers chan *nats.Msg
	attempt uint64 // number of the newest; the answer's subject ends with it
	timer   *time.Timer
}

// flights are those of one connection. Each shard uses turnsPerShard at most. Safe for
// concurrent use.
type flights struct {
	mu   sync.Mutex
	free []*flight
}

// take returns a flight that nobody else has.
func (fs *flights) take(nc *nats.Conn) (*flight, error) {
	fs.mu.Lock()
	if n := len(fs.free); n > 0 {
		f := fs.free[n-1]
		fs.free = fs.free[:n-1]
		fs.mu.Unlock()
		return f, nil
	}
	fs.mu.Unlock()
	f := &flight{nc: nc, inbox: nc.NewInbox() + ".", answers: make(chan *nats.Msg, flightAnswers), timer: time.NewTimer(apiTimeout)}
	f.timer.Stop()
	if _, err := nc.ChanSubscribe(f.inbox+"*", f.answers); err != nil { // until the connection ends
		return nil, inWords(err)
	}
	return f, nil
}

func (fs *flights) give(f *flight) {
	fs.mu.Lock()
	fs.free = append(fs.free, f)
	fs.mu.Unlock()
}

// store is one attempt to have data stored as the next record of subject; publish
// has the errors.
func (f *flight) store(ctx context.Context, r *reach, patience time.Duration, subject string, data []byte, expect uint64) (uint64, error) {
	for len(f.answers) > 0 {
		<-f.answers // to attempts that were given up
	}
	f.attempt++
	life := r.alive.Load().ctx
	reply := f.inbox + strconv.FormatUint(f.attempt, 10)
	if err := f.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: data, Header: expecting(expect)}); err != nil {
		return 0, inWords(err)
	}
	f.timer.Reset(patience)
	defer f.timer.Stop()
	for {
		select {
		case m := <-f.answers:
			if m.Subject != reply {
				continue
			}
			if len(m.Data) == 0 && m.Header.Get(headerStatus) == statusNoResponders {
				r.answered(false)
				return 0, nats.ErrNoResponders
			}
			pos, err := stored(m.Data)
			r.acknowledged(err)
			return pos, err
		case <-f.timer.C:
			r.answered(false)
			return 0, errNoAck
		case <-life.Done():
			return 0, errAway
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// stored reads an acknowledgement: the position, or why nothing was stored.
func stored(data []byte) (uint64, error) {
	if pos, ok := plainAck(data); ok {
		return pos, nil
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("read acknowledgement: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Seq == 0 {
		return 0, errors.New("acknowledgement without a sequence")
	}
	return ack.Seq, nil
}

// plainAck reads the acknowledgement that a server gives for nearly every record,
// {"stream":"NAME","seq":N}, and leaves all others to a decoder, which takes 5 % of
// what a record costs.
func plainAck(data []byte) (pos uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","seq":`))
	digits, end := bytes.CutSuffix(rest, []byte{'}'})
	if !ok || !end || bytes.ContainsFunc(name, noName) || len(digits) == 0 || digits[0] == '0' {
		return 0, false
	}
	pos, err := strconv.ParseUint(string(digits), 10, 64)
	return pos, err == nil && digits[0] != '+'
}

// noName reports a character that no name of a stream has and JSON escapes.
func noName(r rune) bool { return r < ' ' || r == '"' || r == '\\' }
