package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Error codes of the JetStream API that mean something to the journal.
const (
	apiWrongLast = 10071
	apiNoMessage = 10037
)

// apiTimeout bounds one request to the server.
const apiTimeout = 3 * time.Second

// apiError is the error member of a JetStream answer.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error names the code, which is what one looks up.
func (e *apiError) Error() string {
	return "jetstream " + strconv.Itoa(e.ErrCode) + ": " + e.Description
}

// lastRecord is the newest record of a log; rec is nil when there is none.
type lastRecord struct {
	rec *Record // with pos and sum
}

// last reads the newest record of a log through the leader API. Errors:
// ErrDamaged when it does not decode, ErrUnavailable, ctx's.
func (n *Node) last(ctx context.Context, l Log) (lastRecord, error) {
	m, ok, err := n.askLeader(ctx, l, `{"last_by_subj":"`+subjectOf(l)+`"}`)
	if err != nil || !ok {
		return lastRecord{}, err
	}
	rec, err := m.decode()
	if err != nil {
		return lastRecord{}, fmt.Errorf("newest record of %s: %w", l.Key, err)
	}
	return lastRecord{rec: rec}, nil
}

// askLeader reads one message through the leader API; ok is false when there is
// none. Errors: ErrUnavailable, ctx's.
func (n *Node) askLeader(ctx context.Context, l Log, req string) (m rawMsg, ok bool, err error) {
	ctx2, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var msg *nats.Msg
	err = n.whileUp(ctx2, func(ctx context.Context) (err error) {
		msg, err = n.read.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+shardStream(l.Shard), []byte(req))
		return err
	})
	if err != nil {
		return rawMsg{}, false, unavailable(ctx, err)
	}
	if m, ok, err = parseStored(msg.Data); err != nil {
		return rawMsg{}, false, fmt.Errorf("%w: read through the leader: %w", ErrUnavailable, err)
	}
	return m, ok, nil
}

// decodeStored decodes a record as read from the stream at pos, with its chain
// hash.
func decodeStored(data []byte, pos uint64) (*Record, error) {
	rec, err := decodeRecord(data)
	if err != nil {
		return nil, err
	}
	rec.pos, rec.first, rec.sum = pos, pos, hashRecord(data)
	return rec, nil
}

// tail returns what a caller may know of the newest record.
func (r lastRecord) tail() Tail {
	if r.rec == nil {
		return Tail{Empty: true}
	}
	return Tail{Epoch: r.rec.Epoch(), Run: r.rec.Run(), Head: r.rec.head()}
}

// publish stores data as the next record of subject if the newest one there is
// at position expect (0: there is none), and returns its position. One attempt,
// at most apiTimeout. An *apiError says that the server refused; after any other
// error the outcome is unknown.
func (n *Node) publish(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	ctx, restarted := n.mortal(ctx)
	defer restarted()
	msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		"Nats-Expected-Last-Subject-Sequence": []string{strconv.FormatUint(expect, 10)},
	}}
	reply, err := n.pub.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
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

// unavailable turns an error of NATS into ErrUnavailable, unless ctx has ended.
func unavailable(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
