package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers of stored, republished and directly read messages.
const (
	headerSequence = "Nats-Sequence"
	headerLastSeq  = "Nats-Last-Sequence"
	headerSubject  = "Nats-Subject"
	headerPending  = "Nats-Num-Pending"
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerStatus   = "Status"

	statusEnd          = "204" // end of a batch
	statusNotFound     = "404"
	statusNoResponders = "503"
)

// replicaTimeout is how long any replica of a cluster may take; its leader has
// apiTimeout.
const replicaTimeout = time.Second

// batchMessages bounds the messages of one batched direct get.
const batchMessages = 2048

// rawMsg is one stored message of a log.
type rawMsg struct {
	data []byte
	pos  uint64 // its stream sequence
	back uint64 // that of the message before it on the subject; 0: none
}

// decode verifies the record in m.
func (m *rawMsg) decode() (*Record, error) {
	rec, err := decodeStored(m.data, m.pos)
	if err != nil {
		return nil, err
	}
	rec.back = m.back
	return rec, nil
}

// headerNumber returns a numeric header, 0 when it is missing or none.
func headerNumber(h nats.Header, name string) uint64 {
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// backOf returns the back-link in the header block of a stored message.
func backOf(hdrs []byte) uint64 {
	_, rest, ok := strings.Cut(string(hdrs), headerExpected+":")
	if !ok {
		return 0
	}
	value, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func rawOf(m *nats.Msg) rawMsg {
	return rawMsg{m.Data, headerNumber(m.Header, headerSequence), headerNumber(m.Header, headerExpected)}
}

// at reads the message at stream sequence pos, which must be one of l's. ok is
// false when there is none.
func (r *reader) at(ctx context.Context, l Log, pos uint64) (m rawMsg, ok bool, err error) {
	return r.get(ctx, l, `{"seq":`+strconv.FormatUint(pos, 10)+`}`)
}

// next reads the first message of l at or after stream sequence pos.
func (r *reader) next(ctx context.Context, l Log, pos uint64) (m rawMsg, ok bool, err error) {
	return r.get(ctx, l, `{"seq":`+strconv.FormatUint(pos, 10)+`,"next_by_subj":"`+subjectOf(l)+`"}`)
}

// get is one direct get: any replica may answer. In a cluster one that lags knows
// less, and one that is frozen says nothing: then the leader is asked.
func (r *reader) get(ctx context.Context, l Log, req string) (rawMsg, bool, error) {
	m, ok, err := r.direct(ctx, l, req)
	if ok || !r.cluster || err != nil && !errors.Is(err, ErrUnavailable) {
		return m, ok, err
	}
	return askLeader(ctx, r.leader, r.reach, shardStream(l.Shard), req)
}

// patience is how long any replica may take to answer.
func (r *reader) patience() time.Duration {
	if r.cluster {
		return replicaTimeout
	}
	return apiTimeout
}

func (r *reader) direct(ctx context.Context, l Log, req string) (rawMsg, bool, error) {
	r.gets.Add(1)
	ctx2, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	var m *nats.Msg
	err := r.n.reads.whileUp(ctx2, func(ctx context.Context) (err error) {
		m, err = r.n.read.RequestWithContext(ctx, directSubject(l), []byte(req))
		return err
	})
	if err != nil {
		return rawMsg{}, false, unavailable(ctx, err)
	}
	switch status := m.Header.Get(headerStatus); status {
	case "":
	case statusNotFound:
		return rawMsg{}, false, nil
	default:
		return rawMsg{}, false, fmt.Errorf("%w: direct get: status %s", ErrUnavailable, status)
	}
	if m.Header.Get(headerSubject) != subjectOf(l) {
		return rawMsg{}, false, nil
	}
	return rawOf(m), true, nil
}

func directSubject(l Log) string { return "$JS.API.DIRECT.GET." + shardStream(l.Shard) }

// batch reads messages of l from stream sequence start on, in order: at most
// batchMessages, stopping once maxBytes are passed. more reports that the log
// goes on behind them. In a cluster a replica that does not answer has none.
func (r *reader) batch(ctx context.Context, l Log, start uint64, maxBytes int) (msgs []rawMsg, more bool, err error) {
	req := fmt.Sprintf(`{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, max(start, 1), subjectOf(l), batchMessages, max(maxBytes, 1))
	within, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	var got []*nats.Msg
	err = r.n.reads.whileUp(within, func(ctx context.Context) (err error) {
		got, more, err = directBatch(ctx, r.n.read, directSubject(l), req)
		return err
	})
	if err != nil && r.cluster && ctx.Err() == nil {
		return nil, false, nil
	}
	for _, m := range got {
		msgs = append(msgs, rawOf(m))
	}
	return msgs, more, err
}

// directBatch asks for messages of a stream, in order. more reports that there are
// others behind them. The answer is a message each, then an empty one with status
// 204; 404 alone means there are none. Each message names the sequence of the one
// before it in the batch, so that a lost one shows. Errors: ErrUnavailable.
func directBatch(ctx context.Context, nc *nats.Conn, subject, req string) (msgs []*nats.Msg, more bool, err error) {
	inbox := nc.NewRespInbox()
	ch := make(chan *nats.Msg, batchMessages+1)
	sub, err := nc.ChanSubscribe(inbox, ch)
	if err != nil {
		return nil, false, unavailable(ctx, err)
	}
	defer func() {
		// Only a closed connection refuses, and that has no subscriptions.
		_ = sub.Unsubscribe()
	}()
	if err := nc.PublishRequest(subject, inbox, []byte(req)); err != nil {
		return nil, false, unavailable(ctx, err)
	}
	last := uint64(0)
	for {
		select {
		case m := <-ch:
			switch status := m.Header.Get(headerStatus); status {
			case "":
				if headerNumber(m.Header, headerLastSeq) != last {
					return nil, false, fmt.Errorf("%w: a message of a batch was lost", ErrUnavailable)
				}
				last = headerNumber(m.Header, headerSequence)
				msgs = append(msgs, m)
			case statusEnd:
				if headerNumber(m.Header, headerLastSeq) != last {
					return nil, false, fmt.Errorf("%w: the end of a batch was lost", ErrUnavailable)
				}
				return msgs, headerNumber(m.Header, headerPending) > 0, nil
			case statusNotFound:
				return nil, false, nil
			default:
				return nil, false, fmt.Errorf("%w: batched direct get: status %s", ErrUnavailable, status)
			}
		case <-ctx.Done():
			return nil, false, fmt.Errorf("%w: batched direct get: %w", ErrUnavailable, ctx.Err())
		}
	}
}
