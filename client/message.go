package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"rejoin/protocol"
)

// A Kind says what a Message is.
type Kind uint8

// The kinds of messages.
const (
	KindEvent    Kind = iota + 1 // Event is set
	KindSnapshot                 // Snapshot is set: replace what you have
	KindSynced                   // everything that existed at (re)subscription has been delivered, up to Seq
	KindEnd                      // End is set: the server ended the subscription; it is the last message
)

// A Message is what a Subscription delivers.
type Message struct {
	Kind     Kind
	Seq      protocol.Seq // of the event, the snapshot, or the last one delivered
	Event    Event
	Snapshot *Snapshot
	End      *End
}

// An Event is one event of the session in its epoch. Body belongs to the receiver
// but shares memory with events near it: copy it to keep it for long.
type Event struct {
	protocol.Event
	Epoch protocol.Epoch
}

// A Snapshot is what all events up to Seq add up to. It replaces everything
// received before.
type Snapshot struct {
	SessionID string               `json:"sessionId"`
	Epoch     protocol.Epoch       `json:"epoch"`
	Seq       protocol.Seq         `json:"seq"`
	StateHash string               `json:"stateHash"`
	Fold      protocol.FoldVersion `json:"fold"`
	Reason    string               `json:"reason"` // requested, trimmed, epoch, future, damaged
	State     json.RawMessage      `json:"state"`  // the exact bytes that StateHash is of
}

// Decode returns the state that State spells, anew with each call. Members of
// later versions are left out.
func (s *Snapshot) Decode() (*protocol.State, error) {
	st := &protocol.State{
		Items: []protocol.Item{}, Pending: []protocol.Interaction{},
		Queue: protocol.Queue{Steering: []string{}, FollowUp: []string{}},
	}
	if err := json.Unmarshal(s.State, st); err != nil {
		return nil, fmt.Errorf("client: state of a snapshot: %w", err)
	}
	return st, nil
}

// End says why the server ended a subscription.
type End struct {
	Seq    protocol.Seq `json:"seq"`
	Reason string       `json:"reason"` // until, deleted, forbidden
}

// arenaBytes is how much memory the bodies of events near each other share.
const arenaBytes = 32 << 10

// arena copies bodies out of the read buffer with few allocations.
type arena struct{ room []byte }

func (a *arena) copy(b []byte) []byte {
	if len(b) > arenaBytes/4 {
		return bytes.Clone(b)
	}
	if len(b) > cap(a.room)-len(a.room) {
		a.room = make([]byte, 0, arenaBytes)
	}
	n := len(a.room)
	a.room = append(a.room, b...)
	return a.room[n:len(a.room):len(a.room)]
}

var (
	epochPrefix = []byte(`"epoch":"`)
	errShape    = errors.New("client: the server sent an event that is none")
)

// parseEvent takes the notification after its prefix apart: an optional epoch and
// the stored line. Body aliases rest.
func parseEvent(rest []byte) (Event, error) {
	var e Event
	if after, ok := bytes.CutPrefix(rest, epochPrefix); ok {
		end := bytes.IndexByte(after, '"')
		if end < 0 || end+1 >= len(after) || after[end+1] != ',' {
			return e, errShape
		}
		e.Epoch = protocol.Epoch(after[:end])
		rest = after[end+2:]
	}
	var err error
	e.Event, err = protocol.ParseEventLine(rest)
	if err != nil {
		return e, fmt.Errorf("%w: %w", errShape, err)
	}
	return e, nil
}

// decodeEvent is parseEvent for a notification that is spelled in another way.
func decodeEvent(params json.RawMessage) (Event, error) {
	var p struct {
		Epoch     protocol.Epoch   `json:"epoch"`
		Seq       protocol.Seq     `json:"seq"`
		TS        int64            `json:"ts"`
		Run       protocol.Run     `json:"run"`
		Source    string           `json:"source"`
		CommandID string           `json:"commandId"`
		Event     protocol.RawJSON `json:"event"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errShape, err)
	}
	e := Event{Epoch: p.Epoch, Event: protocol.Event{
		Seq: p.Seq, TS: p.TS, Run: p.Run, CommandID: p.CommandID, Body: p.Event,
	}}
	switch p.Source {
	case protocol.SourceChild.String():
		e.Source = protocol.SourceChild
	case protocol.SourceBroker.String():
		e.Source = protocol.SourceBroker
	default:
		return Event{}, errShape
	}
	return e, nil
}
