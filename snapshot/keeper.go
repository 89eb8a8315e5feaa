package snapshot

import (
	"context"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
)

// Retention says how much of a session's log is kept. A zero field sets no
// bound; all zero is RetentionBytesDefault.
type Retention struct {
	MaxAge    time.Duration // events older than this may go
	MaxBytes  int64         // of event lines
	MaxEvents uint64
}

// RetentionBytesDefault bounds a session's log when nothing else does.
const RetentionBytesDefault = 1 << 30

// Writer is the part of journal.Writer that a Keeper uses.
type Writer interface {
	// EndRecord makes seq, the newest event, the last one of its record.
	EndRecord(seq protocol.Seq)
	Flush(ctx context.Context) error
	Durable() protocol.Seq
}

// A Keeper takes the checkpoints of one run. A nil Keeper takes none: its
// methods do nothing.
type Keeper struct{}

// Keep returns the keeper of a run. bytesSoFar is History.Bytes of the log that
// the run continues, 0 of a new one. Close it.
func (st *Store) Keep(l journal.Log, w Writer, adapter agent.Adapter, r Retention, bytesSoFar uint64) *Keeper {
	if st == nil {
		return nil
	}
	return &Keeper{}
}

// Applied looks at s after e was folded into it and into ledger, and takes a
// checkpoint when one is due. It is called under the session's lock for every
// event, before or after its Append and before the next one's. It does not
// block.
func (k *Keeper) Applied(s *protocol.State, ledger *Ledger, e *protocol.Event) {}

// Floor returns the first retained seq as far as the keeper knows, 0 when it
// does not.
func (k *Keeper) Floor() protocol.Seq { return 0 }

// Close waits until the newest checkpoint is stored, or ctx ends.
func (k *Keeper) Close(ctx context.Context) error { return nil }
