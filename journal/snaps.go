package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

const (
	snapStream   = "SNAP"
	snapShare    = 8        // SNAP may hold an eighth of what the shards may
	snapBytesMin = 64 << 20 // and at least this
	snapPrefix   = "snap."
	snapPart     = protocol.PartBytesMax
	headerParts  = "Rejoin-Parts"
)

// ErrNoBlob says that there is no blob of that name, or not all of it.
var ErrNoBlob = errors.New("journal: no such blob")

// Snaps keeps blobs beside logs, under names of their own, on a connection of
// their own: bulk there does not delay records. Safe for concurrent use.
type Snaps struct {
	n     *Node
	nc    *nats.Conn
	js    jetstream.JetStream
	fresh *freshness
	log   *slog.Logger
}

// Snaps returns the node's blobs.
func (n *Node) Snaps() *Snaps {
	return &Snaps{n: n, nc: n.snap, js: n.snapjs, fresh: &n.snapFresh, log: n.log}
}

func snapConfig(maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              snapStream,
		Subjects:          []string{snapPrefix + ">"},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew, // no blob goes because of another
		MaxBytes:          maxBytes,
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        messageBytesMax,
		AllowDirect:       true,
		Replicas:          1,
	}
}

// subject is where a blob, or everything of a log (">"), is.
func (s *Snaps) subject(l Log, name string) (string, error) {
	if !protocol.ValidSessionID(l.Key.Workspace) || !protocol.ValidSessionID(l.Key.Session) {
		return "", fmt.Errorf("journal: invalid key %q", l.Key)
	}
	if name != ">" && name != "*" && !protocol.ValidSessionID(name) {
		return "", fmt.Errorf("journal: invalid name of a blob %q", name)
	}
	return snapPrefix + l.Key.Workspace + "." + l.Key.Session + "." + name, nil
}

// Put stores a blob under a name of up to 64 characters [A-Za-z0-9_-], in place
// of one that was there. It is durable when Put returns. A blob over 4 MiB is
// parts and a last message that makes them one. What one process puts shares no
// file with what an earlier one did, unless the store is too full for that (see
// freshness). Errors:
// ErrUnavailable (also when the store is full), ctx's.
func (s *Snaps) Put(ctx context.Context, l Log, name string, data []byte) error {
	subject, err := s.subject(l, name)
	if err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("begin a block of blobs: %w", err)
	}
	if len(data) <= snapPart {
		return s.publish(ctx, &nats.Msg{Subject: subject, Data: data})
	}
	n := 0
	for size := len(data); len(data) > 0; n++ {
		part := data[:min(snapPart, len(data))]
		data = data[len(part):]
		if err := s.publish(ctx, &nats.Msg{Subject: subject + "." + strconv.Itoa(n), Data: part}); err != nil {
			return fmt.Errorf("part %d of a blob of %d bytes: %w", n, size, err)
		}
	}
	return s.publish(ctx, &nats.Msg{Subject: subject, Header: nats.Header{headerParts: []string{strconv.Itoa(n)}}})
}

func (s *Snaps) publish(ctx context.Context, m *nats.Msg) error {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if _, err := s.js.PublishMsg(within, m); err != nil {
		return unavailable(ctx, err)
	}
	return nil
}

// Get returns a blob. Errors: ErrNoBlob, ErrUnavailable, ctx's.
func (s *Snaps) Get(ctx context.Context, l Log, name string) ([]byte, error) {
	subject, err := s.subject(l, name)
	if err != nil {
		return nil, err
	}
	m, err := s.get(ctx, subject)
	if err != nil {
		return nil, err
	}
	parts := headerNumber(m.Header, headerParts)
	if parts == 0 {
		return m.Data, nil
	}
	var data []byte
	for i := range parts {
		p, err := s.get(ctx, subject+"."+strconv.FormatUint(i, 10))
		if err != nil {
			return nil, err
		}
		data = append(data, p.Data...)
	}
	return data, nil
}

func (s *Snaps) get(ctx context.Context, subject string) (*nats.Msg, error) {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if s.n.remote != nil {
		return s.getFromLeader(ctx, within, subject)
	}
	m, err := s.nc.RequestWithContext(within, "$JS.API.DIRECT.GET."+snapStream+"."+subject, nil)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	switch status := m.Header.Get(headerStatus); status {
	case "":
		return m, nil
	case statusNotFound:
		return nil, ErrNoBlob
	default:
		return nil, fmt.Errorf("%w: direct get: status %s", ErrUnavailable, status)
	}
}

// getFromLeader is get where another replica may not have yet what was just put, or
// may have what was there before.
func (s *Snaps) getFromLeader(ctx, within context.Context, subject string) (*nats.Msg, error) {
	var a msgAnswer
	if err := askAPI(within, s.nc, "STREAM.MSG.GET."+snapStream, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject), &a); err != nil {
		return nil, unavailable(ctx, err)
	}
	hdr, ok, err := a.header()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrNoBlob
	}
	return &nats.Msg{Data: a.Message.Data, Header: hdr}, nil
}

// List returns the names of a log's blobs, in no order. Errors: ErrUnavailable,
// ctx's.
func (s *Snaps) List(ctx context.Context, l Log) ([]string, error) {
	filter, err := s.subject(l, "*")
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(filter, "*")
	var names []string
	err = eachSubject(ctx, s.nc, snapStream, filter, func(subject string, _ uint64) {
		names = append(names, strings.TrimPrefix(subject, prefix))
	})
	if err != nil {
		return nil, fmt.Errorf("list blobs of %s: %w", l.Key, err)
	}
	return names, nil
}

// Delete removes blobs by their names; what is not there is no error. Errors:
// ErrUnavailable, ctx's.
func (s *Snaps) Delete(ctx context.Context, l Log, names ...string) error {
	for _, name := range names {
		subject, err := s.subject(l, name)
		if err != nil {
			return err
		}
		if err := errors.Join(s.purge(ctx, subject), s.purge(ctx, subject+".>")); err != nil {
			return fmt.Errorf("delete blob %s of %s: %w", name, l.Key, err)
		}
	}
	return nil
}

// DeleteAll removes every blob of a log. Errors: ErrUnavailable, ctx's.
func (s *Snaps) DeleteAll(ctx context.Context, l Log) error {
	subject, err := s.subject(l, ">")
	if err != nil {
		return err
	}
	if err := s.purge(ctx, subject); err != nil {
		return fmt.Errorf("delete blobs of %s: %w", l.Key, err)
	}
	return nil
}

func (s *Snaps) purge(ctx context.Context, filter string) error {
	var answer struct {
		Error *apiError `json:"error"`
	}
	if err := askAPI(ctx, s.nc, "STREAM.PURGE."+snapStream, fmt.Appendf(nil, `{"filter":%q}`, filter), &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, answer.Error)
	}
	return nil
}
