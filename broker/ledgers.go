package broker

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// Bounds of the ledgers that are kept of sessions without an owner. When a new
// one passes them the least recently used ones go.
const (
	ledgersMax       = 64
	ledgerEntriesMax = 1 << 20 // command ids over all of them; one ledger alone may hold more
)

// ledgers folds ledgers out of logs and keeps some. Safe for concurrent use.
type ledgers struct {
	folds *snapshot.Reader

	mu      sync.Mutex
	kept    map[journal.Log]*list.Element // of *keptLedger
	lru     *list.List                    // newest first
	entries int                           // over all of lru
}

// keptLedger is the ledger of a log up to head. turn (capacity one, full while
// held) guards ledger and head; weight is guarded by ledgers.mu.
type keptLedger struct {
	log    journal.Log
	turn   chan struct{}
	ledger *snapshot.Ledger
	head   protocol.Cursor
	weight int
}

func newLedgers(folds *snapshot.Reader) *ledgers {
	return &ledgers{folds: folds, kept: make(map[journal.Log]*list.Element), lru: list.New()}
}

// lookup returns what the log knows of a command.
func (l *ledgers) lookup(ctx context.Context, node *journal.Node, at journal.Log, id string) (known snapshot.Admitted, ok bool, err error) {
	err = l.with(ctx, node, at, func(g *snapshot.Ledger) { known, ok = g.Lookup(id) })
	return known, ok, err
}

// statuses returns what the log knows of some commands.
func (l *ledgers) statuses(ctx context.Context, node *journal.Node, at journal.Log, ids []string) ([]protocol.CommandStatus, error) {
	out := make([]protocol.CommandStatus, 0, len(ids))
	err := l.with(ctx, node, at, func(g *snapshot.Ledger) {
		for _, id := range ids {
			out = append(out, g.Status(id))
		}
	})
	return out, err
}

// with calls f with the ledger of the log up to its head.
func (l *ledgers) with(ctx context.Context, node *journal.Node, at journal.Log, f func(*snapshot.Ledger)) error {
	k := l.get(at)
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	tail, err := node.Tail(ctx, at)
	if err != nil {
		return fmt.Errorf("read the head of %s: %w", at.Key, err)
	}
	if head := (protocol.Cursor{Epoch: tail.Epoch, Seq: tail.Head}); k.ledger == nil || k.head != head {
		h := &snapshot.History{Ledger: snapshot.NewLedger()}
		if !tail.Empty {
			if h, err = l.folds.Load(ctx, at, tail.Head); err != nil {
				return err
			}
		}
		k.ledger, k.head = h.Ledger, head
		l.weigh(k)
	}
	f(k.ledger)
	return nil
}

// get returns the kept ledger of a log, the newest from now on.
func (l *ledgers) get(at journal.Log) *keptLedger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.kept[at]; ok {
		l.lru.MoveToFront(e)
		return e.Value.(*keptLedger)
	}
	k := &keptLedger{log: at, turn: make(chan struct{}, 1)}
	l.kept[at] = l.lru.PushFront(k)
	l.shrink()
	return k
}

// weigh counts a ledger that was folded anew.
func (l *ledgers) weigh(k *keptLedger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.kept[k.log]; !ok || e.Value != any(k) {
		return // dropped meanwhile: it serves its caller and goes
	}
	l.entries += k.ledger.Len() - k.weight
	k.weight = k.ledger.Len()
	l.shrink()
}

func (l *ledgers) shrink() {
	for l.lru.Len() > 1 && (l.lru.Len() > ledgersMax || l.entries > ledgerEntriesMax) {
		k := l.lru.Remove(l.lru.Back()).(*keptLedger)
		l.entries -= k.weight
		delete(l.kept, k.log)
	}
}
