package demo

import (
	"rejoin/agent"
	"rejoin/agent/pi"
	"rejoin/protocol"
)

// Name is what configurations call this adapter.
const Name = "demo"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

var _ agent.Adapter = Adapter{}

// Name returns "demo".
func (Adapter) Name() string { return Name }

// JSONLines is true.
func (Adapter) JSONLines() bool { return true }

// Drive returns a driver that speaks to the agent as to pi, less what a scripted
// agent has no use for: models and images.
func (Adapter) Drive(run protocol.Run) agent.Driver { return pi.Commands{Name: Name}.Drive(run) }
