package journal

import (
	"errors"
	"fmt"
)

// Errors of the journal. Only ErrUnavailable is worth a retry of the same call.
var (
	// ErrFenced: another run owns the session; kill the child, write nothing.
	ErrFenced = errors.New("journal: fenced by another owner")
	// ErrClosed: the writer, or the node under it, was closed.
	ErrClosed = errors.New("journal: closed")
	// ErrTrimmed: the wanted seq is no longer, or not yet, in the log.
	ErrTrimmed = errors.New("journal: outside the retained log")
	// ErrDamaged: a record does not verify, or the log has a hole.
	ErrDamaged = errors.New("journal: damaged")
	// ErrRolledBack: the log is shorter than what was acknowledged; only the
	// owner named in the registry may repair it.
	ErrRolledBack = errors.New("journal: rolled back")
	// ErrUnavailable: the journal did not answer.
	ErrUnavailable = errors.New("journal: unavailable")
	// ErrEventTooLarge: an event's line passes what a record set can hold (64 MiB).
	ErrEventTooLarge = errors.New("journal: event too large")
)

// A LockedError says that another process uses the data directory.
type LockedError struct {
	Dir string
	PID int // 0 when the owner did not say
}

// Error names the directory and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by process %d", e.Dir, e.PID)
}

// A FormatError says why a data directory cannot be used by this program.
type FormatError struct {
	Path   string
	Reason string
}

// Error names the file and the reason.
func (e *FormatError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Reason) }

// A RefusedError says why a cluster of NATS servers cannot be used; asking again
// does not help.
type RefusedError struct{ Why string }

// Error says why.
func (e *RefusedError) Error() string { return e.Why }

// A MissingStreamError says that a stream which this data directory, or this
// cluster, must have is not there. It is never created anew: that would forget every
// session in it.
type MissingStreamError struct {
	Stream string
	Dir    string // where its files should be; empty: the servers of a cluster have them
	Format string // the file, or the record of the cluster, that expects it
}

// Error names the stream, its directory and what to do.
func (e *MissingStreamError) Error() string {
	if e.Dir == "" {
		return fmt.Sprintf("stream %s is missing: the NATS servers do not have it, but %s expects it; nothing was created in its place. "+
			"Bring the servers back that hold it, or restore it from a backup", e.Stream, e.Format)
	}
	return fmt.Sprintf("stream %s is missing: %s holds no readable stream, but %s expects one; nothing was created in its place. "+
		"Put the directory back from a backup, or start with another --data-dir", e.Stream, e.Dir, e.Format)
}
