// Package view keeps a session's state up to date on the client's side: it starts
// from a snapshot and folds what follows, with the folds of this program. It
// starts no goroutine.
package view

import (
	"errors"

	"rejoin/client"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// errNoSnapshot: an event came before the first snapshot.
var errNoSnapshot = errors.New("view: an event before the first snapshot")

// A View is what the messages of a subscription add up to. It is for one
// goroutine.
type View struct {
	folds snapshot.Folds
	state *protocol.State
	made  protocol.FoldVersion // of the snapshot
}

// New returns a View of a subscription that begins with a snapshot.
func New(folds snapshot.Folds) *View { return &View{folds: folds} }

// Take takes the next message in.
func (v *View) Take(m client.Message) error {
	switch m.Kind {
	case client.KindSnapshot:
		s, err := m.Snapshot.Decode()
		if err != nil {
			return err
		}
		v.state, v.made = s, m.Snapshot.Fold
	case client.KindEvent:
		if v.state == nil {
			return errNoSnapshot
		}
		v.folds.Apply(v.state, m.Event.Epoch, &m.Event.Event)
	case client.KindSynced, client.KindEnd:
	}
	return nil
}

// State is the state so far; nil before the first snapshot. It changes with Take.
func (v *View) State() *protocol.State { return v.state }

// Own reports whether the server folds like this program, so that State is what
// a snapshot of now would say.
func (v *View) Own() bool {
	return v.state != nil && v.made == v.folds.VersionOf(v.state.Agent.Adapter)
}

// Versions are the folds of the server's snapshot and of this program.
func (v *View) Versions() (server, here protocol.FoldVersion) {
	if v.state == nil {
		return v.made, here
	}
	return v.made, v.folds.VersionOf(v.state.Agent.Adapter)
}

// Hash is the stateHash of the state so far.
func (v *View) Hash() string { return snapshot.Hash(snapshot.Encode(v.state)) }
