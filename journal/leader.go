package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// Error codes of the JetStream API that mean something to the journal.
const (
	apiWrongLast = 10071
	apiNoMessage = 10037
	apiNoMeta    = 10008
)

// errNoMeta: the server is in no cluster that works, or not yet.
var (
	errNoMeta = &apiError{Code: 503, ErrCode: apiNoMeta, Description: "JetStream system temporarily unavailable"}
	noMeta    = []byte(`"err_code":` + strconv.Itoa(apiNoMeta) + ",")
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
	return lastOver(ctx, n.read, n.reads, l)
}

// lastOver is last over a connection with its reach.
func lastOver(ctx context.Context, nc *nats.Conn, r *reach, l Log) (lastRecord, error) {
	m, ok, err := askLeader(ctx, nc, r, shardStream(l.Shard), `{"last_by_subj":"`+subjectOf(l)+`"}`)
	if err != nil || !ok {
		return lastRecord{}, err
	}
	rec, err := m.decode()
	if err != nil {
		return lastRecord{}, fmt.Errorf("newest record of %s: %w", l.Key, err)
	}
	return lastRecord{rec: rec}, nil
}

// askLeader reads one message of a stream through the leader API; ok is false when
// there is none. Errors: ErrUnavailable, ctx's.
func askLeader(ctx context.Context, nc *nats.Conn, r *reach, stream, req string) (m rawMsg, ok bool, err error) {
	ctx2, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	msg, err := r.askLeader(ctx2, nc, stream, req)
	if err != nil {
		return rawMsg{}, false, unavailable(ctx, err)
	}
	if m, ok, err = parseStored(msg.Data); err != nil {
		return rawMsg{}, false, fmt.Errorf("%w: read through the leader: %w", ErrUnavailable, err)
	}
	return m, ok, nil
}

// msgAnswer is what the leader says of one message of a stream that holds no records.
type msgAnswer struct {
	Error   *apiError `json:"error"`
	Message struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Hdrs    []byte `json:"hdrs"`
		Data    []byte `json:"data"`
	} `json:"message"`
}

// header returns the message's headers; ok is false when there is no message. Errors:
// ErrUnavailable.
func (a *msgAnswer) header() (hdr nats.Header, ok bool, err error) {
	switch {
	case a.Error != nil && a.Error.ErrCode == apiNoMessage:
		return nil, false, nil
	case a.Error != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrUnavailable, a.Error)
	case len(a.Message.Hdrs) == 0:
		return nats.Header{}, true, nil
	}
	if hdr, err = nats.DecodeHeadersMsg(a.Message.Hdrs); err != nil {
		return nil, false, fmt.Errorf("%w: decode headers: %w", ErrUnavailable, err)
	}
	return hdr, true, nil
}

// decodeStored decodes a record as read from the stream at pos, with its chain
// hash.
func decodeStored(data []byte, pos uint64) (*Record, error) {
	rec, err := decodeRecord(data)
	if err != nil {
		return nil, err
	}
	rec.pos, rec.first, rec.sum = pos, pos, hashRecord(data)
	rec.loosen()
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
// at most apiTimeout, in a cluster less for one that is not large. An *apiError says that the server refused; after any other
// error the outcome is unknown.
func (n *Node) publish(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error) {
	patience := apiTimeout
	if n.pubs.attempt > 0 && len(data) <= protocol.RecordBytesMax {
		patience = n.pubs.attempt
	}
	f, err := n.flights.take(n.pub)
	if err != nil {
		return 0, err
	}
	defer n.flights.give(f)
	return f.store(ctx, n.pubs, patience, subject, data, expect)
}

// expecting is the header of a message that is stored only where the newest one of
// its subject is at position expect.
func expecting(expect uint64) nats.Header {
	return nats.Header{headerExpected: []string{strconv.FormatUint(expect, 10)}}
}

// storeMsg is one attempt to have a message stored; publish has the errors.
func storeMsg(ctx context.Context, nc *nats.Conn, r *reach, patience time.Duration, msg *nats.Msg) (uint64, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	within, lost := r.mortal(within)
	defer lost()
	reply, err := nc.RequestMsgWithContext(within, msg)
	if late := errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil; err != nil && (late || unheard(err)) {
		r.answered(false)
	}
	if err != nil {
		return 0, inWords(err)
	}
	pos, err := stored(reply.Data)
	r.acknowledged(err)
	return pos, err
}

// unavailable turns an error of NATS into ErrUnavailable, unless ctx has ended.
func unavailable(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, inWords(err))
}

// errAway: the connection has no server now.
var errAway = errors.New("not connected")

// inWords says plainly what nats.go calls an exceeded buffer: we let it keep nothing.
func inWords(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errAway
	}
	return err
}
