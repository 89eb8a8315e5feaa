package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
)

// When a checkpoint is due, unless StoreConfig says otherwise.
const (
	everyEvents = 10_000
	everyBytes  = 8 << 20
	everyAge    = time.Minute // with new events
	turnEvents  = 500         // at least since the last one, when a turn ends
	// soonest is the least time between two checkpoints of a session that a small
	// Retention asks for.
	soonest = 100 * time.Millisecond
	// idleAfter is how long a session says nothing until its log is brought within
	// a retention that a burst has passed.
	idleAfter = time.Second
	// trimPause is the least time between two trims of one shard: a trim holds up
	// the shard's writers for a moment.
	trimPause = 200 * time.Millisecond
)

// StoreConfig of NewStore. The zero value of each field is documented.
type StoreConfig struct {
	EveryEvents uint64           // a checkpoint is due after so many events; zero: 10,000
	EveryBytes  uint64           // after so many bytes of events; zero: 8 MiB
	EveryAge    time.Duration    // after so much time, at the next event; zero: 1 min
	TurnEvents  uint64           // when a turn ends and so many events have passed; zero: 500
	Soonest     time.Duration    // the least time between two checkpoints that a small Retention asks for; zero: 100 ms
	IdleAfter   time.Duration    // without an event until a log that is too large is checkpointed and trimmed; zero: 1 s
	TrimPause   time.Duration    // the least time between two trims of one shard; zero: 200 ms
	Now         func() time.Time // zero: time.Now
}

func (c StoreConfig) withDefaults() StoreConfig {
	if c.EveryEvents == 0 {
		c.EveryEvents = everyEvents
	}
	if c.EveryBytes == 0 {
		c.EveryBytes = everyBytes
	}
	if c.EveryAge == 0 {
		c.EveryAge = everyAge
	}
	if c.TurnEvents == 0 {
		c.TurnEvents = turnEvents
	}
	if c.Soonest == 0 {
		c.Soonest = soonest
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = idleAfter
	}
	if c.TrimPause == 0 {
		c.TrimPause = trimPause
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// A Store keeps checkpoints of logs and trims what they cover. Safe for
// concurrent use. A nil Store keeps none.
type Store struct {
	cfg   StoreConfig
	vault vault
	folds Folds
	log   *slog.Logger

	counters counters

	mu    sync.Mutex
	trims map[int]time.Time // when a shard may be trimmed again
}

// NewStore returns the store of checkpoints of the logs of n. A nil logger logs
// nothing.
func NewStore(n *journal.Node, folds Folds, logger *slog.Logger, cfg StoreConfig) *Store {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Store{cfg: cfg.withDefaults(), vault: newVault(n, logger), folds: folds, log: logger, trims: make(map[int]time.Time)}
}

// Keep returns the keeper of a run. bytesSoFar is History.Bytes of the log that
// the run continues, 0 of a new one. Close it.
func (st *Store) Keep(l journal.Log, w Writer, adapter agent.Adapter, r Retention, bytesSoFar uint64) *Keeper {
	if st == nil {
		return nil
	}
	folds := Folds{}
	if adapter != nil {
		folds[adapter.Name()] = adapter
	}
	return newKeeper(st, l, w, folds, r, bytesSoFar)
}

// Remove deletes every checkpoint and ledger page of a log. It may be repeated.
// Errors: journal.ErrUnavailable, ctx's.
func (st *Store) Remove(ctx context.Context, l journal.Log) error {
	if st == nil {
		return nil
	}
	return st.vault.snaps.DeleteAll(ctx, l)
}

// Retain applies a retention to the log of a session without an owner, at the
// time now. It returns the log's floor. Errors are those of reading and
// trimming.
func (st *Store) Retain(ctx context.Context, l journal.Log, r Retention) (floor protocol.Seq, err error) {
	if st == nil {
		return 0, nil
	}
	k := shelf{st: st, log: l, folds: st.folds, retention: r.withDefaults()}
	if err := k.open(ctx); err != nil {
		return 0, fmt.Errorf("look at the checkpoints of %s: %w", l.Key, err)
	}
	err = k.retain(ctx, st.cfg.Now().UnixMilli(), false)
	return k.floor, err
}

// mayTrim reports whether a shard may be trimmed now, and notes that it is.
func (st *Store) mayTrim(shard int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	now := st.cfg.Now()
	if now.Before(st.trims[shard]) {
		return false
	}
	st.trims[shard] = now.Add(st.cfg.TrimPause)
	return true
}

// awaitTrim waits until a shard may be trimmed, and notes that it is.
func (st *Store) awaitTrim(ctx context.Context, shard int) error {
	for !st.mayTrim(shard) {
		t := time.NewTimer(st.cfg.TrimPause / 4)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
	return nil
}
