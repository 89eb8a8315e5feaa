package agent

import "rejoin/protocol"

// An Adapter is what rejoin knows about one kind of child. Implementations have
// no state and are safe for concurrent use.
type Adapter interface {
	// Name is what configurations and start_session call it.
	Name() string
	// JSONLines reports whether the child prints one JSON value per line; false:
	// lines are text.
	JSONLines() bool
	// FoldVersion changes whenever Fold or Settle make another state of the same
	// events.
	FoldVersion() int
	// Fold folds one event into s: what the child printed, and those of the
	// broker's events (output, error, command) that the transcript needs. It is
	// pure and total: any event in any order is taken, and everything a later
	// Fold needs is in s. Neither e nor its body is kept. Seq, run and epoch of s
	// are set before.
	Fold(s *protocol.State, e *protocol.Event)
	// Settle closes what a run leaves open when e ends it: items that still grow
	// become interrupted. Turn, queue and pending are not its business.
	Settle(s *protocol.State, e *protocol.Event)
	// Drive returns the driver of one run.
	Drive(run protocol.Run) Driver
}
