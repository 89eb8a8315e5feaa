package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"rejoin/tests/harness"
)

// Hash names everything that a client can tell of an event.
type Hash [16]byte

// Event is one event of a log.
type Event struct {
	Seq       uint64
	TS        int64
	Run       uint64
	Source    string // child or broker
	CommandID string
	Body      json.RawMessage
}

// Hash of the event.
func (e *Event) Hash() Hash {
	h := sha256.New()
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], e.Seq)
	binary.BigEndian.PutUint64(b[8:], uint64(e.TS))
	binary.BigEndian.PutUint64(b[16:], e.Run)
	h.Write(b[:])
	h.Write([]byte(e.Source))
	h.Write([]byte{0})
	h.Write([]byte(e.CommandID))
	h.Write([]byte{0})
	h.Write(e.Body)
	return Hash(h.Sum(nil)[:len(Hash{})])
}

// Type returns the body's "type", if it has one.
func (e *Event) Type() string { return (&harness.Event{Body: e.Body}).Type() }

// Log is what was read of one epoch of a session, from its floor to its head.
type Log struct {
	Epoch  string
	Floor  uint64
	Events []Event
}

// Head is the last seq of the log; floor−1 when it is empty.
func (l *Log) Head() uint64 { return l.Floor + uint64(len(l.Events)) - 1 }

// At returns the event of a seq, or nil.
func (l *Log) At(seq uint64) *Event {
	if seq < l.Floor || seq > l.Head() {
		return nil
	}
	return &l.Events[seq-l.Floor]
}

// Kind of a frame in a view.
type Kind uint8

// The kinds of frames.
const (
	Attached Kind = iota // the response of subscribe or resync
	Snapshot
	Item // an event
	Synced
	End          // subscription_end
	Unsubscribed // the response of unsubscribe
)

var kinds = [...]string{"response", "snapshot", "event", "synced", "subscription_end", "unsubscribed"}

// String names the kind.
func (k Kind) String() string { return kinds[k] }

// Frame is what a view keeps of one frame that belongs to a subscription.
type Frame struct {
	Kind    Kind
	Sub     uint64 // the subscription's id
	Session string
	Epoch   string // of a response, a snapshot; of an event only where it carries one
	Seq     uint64 // of a response: its after
	Head    uint64 // of a response
	Run     uint64
	Hash    Hash   // of an event
	Mode    string // of a response
	Reason  string // of a response, a snapshot, an end
	State   string // of a snapshot: its stateHash
}

// View is one subscription as one client saw it, in the order of arrival.
type View struct {
	Client    string
	Transport string // tcp, unix, proxy
	Asked     Asked
	Frames    []Frame
}

// Asked is what the client wanted.
type Asked struct {
	Session string
	After   uint64 // with Replay
	Epoch   string // with Replay; empty: none was given
	Replay  bool   // after was given
	Until   uint64 // zero: none
}

// Answer is one answer to a send.
type Answer struct {
	Seq       uint64 // of the command event; zero: refused
	Duplicate bool
	Code      int // of the refusal
	Reason    string
	Retryable bool
}

// Command is one command id and everything that was sent and answered under it.
type Command struct {
	ID      string
	Payload json.RawMessage
	Answers []Answer
}

// Acked returns the seq of the first acknowledgement, or zero.
func (c *Command) Acked() uint64 {
	for _, a := range c.Answers {
		if a.Seq != 0 {
			return a.Seq
		}
	}
	return 0
}

// StateAt is an answer of get_snapshot.
type StateAt struct {
	Epoch string
	Asked uint64 // the seq that was asked for; zero: the newest
	Seq   uint64
	Hash  string
}

// Loss is a stretch of the log whose loss the server announced: a snapshot with
// the reason damaged may lead across it, and nothing else may. Logs has its events
// all the same, as they were before: what was acknowledged and seen in it has
// happened, and may have to happen again.
type Loss struct {
	Epoch string
	From  uint64
	To    uint64
}

// History is everything that was seen of one session.
type History struct {
	Session  string
	Limit    int  // of a child's line, in bytes; zero: the default
	Alive    bool // a run may be going on: outcomes and output may be on their way
	Logs     []Log
	Views    []*View
	Commands map[string]*Command
	Books    []*Book // of the children, one per run; nil: the child keeps none
	Booked   bool    // the child keeps books
	States   []StateAt
	Orphans  []int    // processes of the session that were seen when none may be
	Secrets  []string // what may stand in no event
	Losses   []Loss

	folded int // CheckState's count
}

// log returns the log of an epoch, or nil.
func (h *History) log(epoch string) *Log {
	for i := range h.Logs {
		if h.Logs[i].Epoch == epoch {
			return &h.Logs[i]
		}
	}
	return nil
}

// lost reports whether an event is in an announced loss.
func (h *History) lost(epoch string, seq uint64) bool {
	for _, l := range h.Losses {
		if l.Epoch == epoch && l.From <= seq && seq <= l.To {
			return true
		}
	}
	return false
}

// events calls do for every event of every epoch, in order, until it fails.
func (h *History) events(do func(l *Log, e *Event) error) error {
	for i := range h.Logs {
		l := &h.Logs[i]
		for j := range l.Events {
			if err := do(l, &l.Events[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// brokerEvent is what the checks read of a broker's event.
type brokerEvent struct {
	Type          string          `json:"type"`
	CommandID     string          `json:"commandId"`
	Command       json.RawMessage `json:"command"`
	Outcome       string          `json:"outcome"`
	PreviousEpoch string          `json:"previousEpoch"`
	PreviousHead  uint64          `json:"previousHead"`
	Reason        string          `json:"reason"`
	Bytes         int             `json:"bytes"`
	Error         string          `json:"error"`
	Base64        string          `json:"base64"`
}

func (e *Event) broker() (b brokerEvent, err error) {
	if e.Source != "broker" {
		return b, nil
	}
	if err := json.Unmarshal(e.Body, &b); err != nil {
		return b, fmt.Errorf("event %d of the broker cannot be read: %w", e.Seq, err)
	}
	return b, nil
}
