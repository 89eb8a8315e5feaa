package demo

import (
	"rejoin/agent"
	"rejoin/agent/pi"
	"rejoin/protocol"
)

// FoldVersion is that of pi's fold.
func (Adapter) FoldVersion() int { return pi.FoldVersion }

// Fold folds as for pi.
func (Adapter) Fold(s *protocol.State, e *protocol.Event) { pi.Fold(s, e) }

// Settle closes what a run leaves open.
func (Adapter) Settle(s *protocol.State, e *protocol.Event) { agent.Settle(s, e) }
