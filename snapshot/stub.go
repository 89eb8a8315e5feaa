package snapshot

import (
	"context"

	"rejoin/journal"
	"rejoin/protocol"
)

// Version of the minimal fold. A golden hash that changes without a new version fails a test.
const Version = 1

// New returns the state before the first event.
func New(session string) *protocol.State { panic("stub") }

// Apply folds one event (pure, total, never panics). epoch is the epoch of the record that holds e.
func Apply(s *protocol.State, epoch protocol.Epoch, e *protocol.Event) { panic("stub") }

// Encode is the one deterministic encoder of State; Hash its sha256 in lower-case hex.
func Encode(s *protocol.State) []byte { panic("stub") }
func Hash(state []byte) string        { panic("stub") }

// Ledger: which command ids a session has admitted. Not safe for concurrent use.
type Ledger struct{ _ int }

// Admitted is one entry.
type Admitted struct {
	Hash    [32]byte // PayloadHash of what was admitted
	Seq     protocol.Seq
	Outcome protocol.Outcome // admitted until a terminal one is applied; the first terminal one wins
	Result  protocol.RawJSON
}

func NewLedger() *Ledger                                  { panic("stub") }
func (l *Ledger) Apply(e *protocol.Event)                 { panic("stub") } // command and command_outcome events; others are ignored
func (l *Ledger) Lookup(id string) (Admitted, bool)       { panic("stub") }
func (l *Ledger) Open() []string                          { panic("stub") } // ids without a terminal outcome, in admission order
func (l *Ledger) Status(id string) protocol.CommandStatus { panic("stub") }

// PayloadHash of a command: sha256 over verb, NUL, the value without insignificant white space.
func PayloadHash(verb string, value protocol.RawJSON) [32]byte { panic("stub") }

// Snapshot is a State ready for the wire.
type Snapshot struct {
	Epoch protocol.Epoch
	Seq   protocol.Seq
	State []byte // exact bytes
	Hash  string
	Fold  protocol.FoldVersion
}

// Reader folds logs for readers; keeps the newest folds (LRU, bounded) so that the next call folds only the tail. Safe for concurrent use.
type Reader struct{ _ int }

func NewReader(n *journal.Node, keep int) *Reader { panic("stub") }

// Latest folds the log up to its head as the leader knows it (or further, never less than atLeast).
func (r *Reader) Latest(ctx context.Context, l journal.Log, atLeast protocol.Seq) (Snapshot, error) {
	panic("stub")
}

// History is a log folded for whoever takes it over or answers for it without an owner.
type History struct {
	State  *protocol.State
	Ledger *Ledger
}

// Load folds state and ledger up to and including head (the newest record when 0). The caller owns the result.
func (r *Reader) Load(ctx context.Context, l journal.Log, head protocol.Seq) (*History, error) {
	panic("stub")
}
