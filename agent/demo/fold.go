package demo

import "rejoin/protocol"

// FoldVersion is 1.
func (Adapter) FoldVersion() int { return 1 }

// Fold leaves s as it is: demo children have no transcript.
func (Adapter) Fold(*protocol.State, *protocol.Event) {}

// Settle leaves s as it is.
func (Adapter) Settle(*protocol.State, *protocol.Event) {}
