package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

// freshSubject is where the filler of a begun block is for a moment. No blob of
// a log is there: their subjects have two tokens more.
const freshSubject = snapPrefix + "fresh"

// apiMaxBytes: a stream is as large as it may be.
const apiMaxBytes = 10077

// A freshness makes a process write its blobs into blocks of its own. The server
// goes on with the last block of a stream that it finds, and when that block is
// damaged somewhere before its end, everything behind the damage vanishes at the
// start after the next, though it was read back. A message as large as a block
// closes the block that was found.
type freshness struct {
	turn chan struct{} // capacity one, full while somebody begins; made by Start
	done atomic.Bool
}

// begin closes the block that was found, once. Where the store is too full for
// that it goes on with it, and says so. Errors: ErrUnavailable, ctx's.
func (s *Snaps) begin(ctx context.Context) error {
	if s.fresh.done.Load() {
		return nil
	}
	select {
	case s.fresh.turn <- struct{}{}:
		defer func() { <-s.fresh.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.fresh.done.Load() {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	st, err := s.js.Stream(within, snapStream)
	if err != nil {
		return unavailable(ctx, err)
	}
	if st.CachedInfo().State.LastSeq > 0 {
		_, err = s.js.PublishMsg(within, &nats.Msg{Subject: freshSubject, Data: make([]byte, messageBytesMax)})
		var api *jetstream.APIError
		switch {
		case errors.As(err, &api) && api.ErrorCode == apiMaxBytes:
			s.log.Warn("no room to begin a block of checkpoints: it goes on in an old one", slog.Any(protocol.LogError, err))
		case err != nil:
			return unavailable(ctx, err)
		}
		if err := s.purge(ctx, freshSubject); err != nil {
			return fmt.Errorf("remove the filler: %w", err)
		}
	}
	s.fresh.done.Store(true)
	return nil
}
