package snapshot

import (
	"crypto/sha256"
	"slices"

	"rejoin/protocol"
)

// A Ledger knows which command ids a session has admitted and how each ended.
// It grows with the number of commands of a session and is not safe for
// concurrent use.
type Ledger struct {
	entries  map[string]*entry
	order    []*entry                       // in admission order, which pages cut into equal parts
	dirty    map[int]struct{}               // pages that changed since they were cut
	open     []string                       // ids without a terminal outcome, in admission order
	resolved []protocol.InteractionResolved // the newest ResolvedMax, oldest first
}

// ResolvedMax is how many resolved interactions a ledger remembers: a late answer
// to one of them is told who was first.
const ResolvedMax = 256

// Admitted is what a ledger knows of one command.
type Admitted struct {
	Hash    [32]byte         // PayloadHash of what was admitted
	Seq     protocol.Seq     // of its command event
	Outcome protocol.Outcome // admitted until a terminal one is applied; the first terminal one wins
	Result  protocol.RawJSON
	Held    bool // held back and not released yet: nothing of it has reached the child
}

// entry is one place in a ledger.
type entry struct {
	Admitted
	id   string
	page int
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: make(map[string]*entry), dirty: make(map[int]struct{})}
}

// Apply takes in command, command_released, command_outcome and
// interaction_resolved events; every other one, and one
// that cannot be read, is ignored. Nothing of e is kept but its strings.
func (l *Ledger) Apply(e *protocol.Event) { // I-B1: owner and rebuild go through here
	if e.Source != protocol.SourceBroker {
		return
	}
	switch eventType(e.Body) {
	case protocol.TypeCommand:
		var b protocol.CommandEvent
		if read(e.Body, &b) && b.CommandID != "" {
			l.admit(e.Seq, &b)
		}
	case protocol.TypeCommandOutcome:
		var b protocol.CommandOutcome
		if read(e.Body, &b) {
			l.settle(&b)
		}
	case protocol.TypeCommandReleased:
		var b protocol.CommandReleased
		if read(e.Body, &b) {
			if a, known := l.entries[b.CommandID]; known && a.Held {
				a.Held = false
				l.dirty[a.page] = struct{}{}
			}
		}
	case protocol.TypeInteraction:
		var b protocol.InteractionResolved
		if read(e.Body, &b) {
			l.resolve(b)
		}
	}
}

// resolve remembers a resolved interaction; of one that is named twice the first stands.
func (l *Ledger) resolve(b protocol.InteractionResolved) {
	if _, known := l.Resolved(func(id string) bool { return id == b.InteractionID }); known {
		return
	}
	if len(l.resolved) == ResolvedMax {
		l.resolved = slices.Delete(l.resolved, 0, 1)
	}
	l.resolved = append(l.resolved, b)
}

// Resolved returns how the interaction was resolved whose id is satisfies, the
// newest, if one is among the newest ResolvedMax.
func (l *Ledger) Resolved(is func(interaction string) bool) (protocol.InteractionResolved, bool) {
	for i := len(l.resolved) - 1; i >= 0; i-- {
		if is(l.resolved[i].InteractionID) {
			return l.resolved[i], true
		}
	}
	return protocol.InteractionResolved{}, false
}

func (l *Ledger) admit(seq protocol.Seq, b *protocol.CommandEvent) {
	if _, known := l.entries[b.CommandID]; known {
		return
	}
	value := b.Command
	if b.Verb != "" {
		value = b.Params
	}
	l.add(b.CommandID, Admitted{Hash: PayloadHash(b.Verb, value), Seq: seq, Outcome: protocol.OutcomeAdmitted, Held: b.Held})
}

// add appends an entry.
func (l *Ledger) add(id string, a Admitted) {
	e := &entry{Admitted: a, id: id, page: len(l.order) / pageEntries}
	l.entries[id] = e
	l.order = append(l.order, e)
	l.dirty[e.page] = struct{}{}
	if a.Outcome == protocol.OutcomeAdmitted {
		l.open = append(l.open, id)
	}
}

func (l *Ledger) settle(b *protocol.CommandOutcome) {
	a, known := l.entries[b.CommandID]
	if !known || a.Outcome != protocol.OutcomeAdmitted || !terminal(b.Outcome) {
		return
	}
	a.Outcome, a.Result = b.Outcome, b.Result
	l.dirty[a.page] = struct{}{}
	if i := slices.Index(l.open, b.CommandID); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

func terminal(o protocol.Outcome) bool {
	switch o {
	case protocol.OutcomeDone, protocol.OutcomeFailed, protocol.OutcomeDiscarded, protocol.OutcomeInterrupted:
		return true
	case protocol.OutcomeAdmitted, protocol.OutcomeUnknown:
	}
	return false
}

// Lookup returns what is known of a command id.
func (l *Ledger) Lookup(id string) (Admitted, bool) {
	a, ok := l.entries[id]
	if !ok {
		return Admitted{}, false
	}
	return a.Admitted, true
}

// Len returns how many command ids the ledger holds.
func (l *Ledger) Len() int { return len(l.entries) }

// sameCommands reports whether o has admitted the same commands in the same
// order. How they ended is not compared: a stored page may be newer than a
// checkpoint that needs it.
func (l *Ledger) sameCommands(o *Ledger) bool {
	return slices.EqualFunc(l.order, o.order, func(a, b *entry) bool {
		return a.id == b.id && a.Hash == b.Hash && a.Seq == b.Seq
	})
}

// Open returns the ids without a terminal outcome, in admission order.
func (l *Ledger) Open() []string { return slices.Clone(l.open) }

// Status returns the answer of command_status for one id.
func (l *Ledger) Status(id string) protocol.CommandStatus {
	a, ok := l.entries[id]
	if !ok {
		return protocol.CommandStatus{CommandID: id, Outcome: protocol.OutcomeUnknown}
	}
	return protocol.CommandStatus{CommandID: id, Outcome: a.Outcome, Seq: a.Seq, Result: a.Result}
}

// PayloadHash names the payload of a command: sha256 over the verb (empty for a
// raw send), a NUL and the JSON value without insignificant white space. Two
// commands of one id are the same command when their hashes are equal.
func PayloadHash(verb string, value protocol.RawJSON) [32]byte {
	b := make([]byte, 0, len(verb)+1+len(value))
	b = append(b, verb...)
	b = append(b, 0)
	return sha256.Sum256(protocol.Compact(b, value))
}
