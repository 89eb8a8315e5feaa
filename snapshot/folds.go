package snapshot

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// versionsPerFold is how many versions an adapter's fold may have under one
// Version.
const versionsPerFold = 1000

// Folds are the adapters that this program can fold, by name. What is missing
// is folded minimally.
type Folds map[string]agent.Adapter

// Apply folds e into s by the adapter that s names.
func (f Folds) Apply(s *protocol.State, epoch protocol.Epoch, e *protocol.Event) {
	Apply(f[s.Agent.Adapter], s, epoch, e)
}

// VersionOf returns the fold that this program applies to sessions of an
// adapter.
func (f Folds) VersionOf(adapter string) protocol.FoldVersion {
	v := protocol.FoldVersion{Adapter: adapter, Version: Version * versionsPerFold}
	if a := f[adapter]; a != nil {
		v.Version += a.FoldVersion()
	}
	return v
}

// folder is the part of an agent.Adapter that folds.
type folder interface {
	Fold(s *protocol.State, e *protocol.Event)
	Settle(s *protocol.State, e *protocol.Event)
}

// minimal folds nothing of what a child says.
type minimal struct{}

func (minimal) Fold(*protocol.State, *protocol.Event)   {}
func (minimal) Settle(*protocol.State, *protocol.Event) {}
