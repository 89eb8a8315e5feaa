package snapshot

import (
	"errors"
	"fmt"

	"rejoin/journal"
)

// Errors of the package. Trying again does not help.
var (
	// ErrDamaged: a checkpoint or a ledger page does not decode or verify. The
	// next older one is used instead.
	ErrDamaged = errors.New("snapshot: damaged")

	errNotCanonical = errors.New("not as it was encoded")
	// errNoBase: or a trim took both between two looks, so it is worth another.
	errNoBase = fmt.Errorf("snapshot: the log is not complete and no checkpoint can be read: %w", journal.ErrTrimmed)
)
