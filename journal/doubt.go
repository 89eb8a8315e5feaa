package journal

import (
	"errors"
	"time"
)

// confirmFor is how long the leaders of a cluster must say the same before a writer
// believes that its log has lost something: one that was deposed may answer for a
// moment, with what it had.
const confirmFor = 10 * time.Second

// errDoubt: the log seems to have lost records, which may be a deposed leader's word.
var errDoubt = errors.New("journal: the log seems to have lost records: asked again")

// suspicion is what a writer was told that would end it, or have it repair its log, and
// does not believe yet.
type suspicion struct {
	since time.Time // zero: nothing
	pos   uint64    // of the newest record then; 0: there was none
	sum   chainHash
}

// confirm is how long a loss must be seen: a server of our own is believed at once.
func (n *Node) confirm() time.Duration {
	if n.remote == nil {
		return 0
	}
	return confirmFor
}

// believe reports whether the leaders have said for long enough that last is the
// newest record (nil: there is none). It belongs to the writer's goroutine.
func (w *Writer) believe(last *Record) bool {
	if w.confirm == 0 {
		return true
	}
	told := suspicion{since: w.clock()}
	if last != nil {
		told.pos, told.sum = last.pos, last.sum
	}
	if w.doubt.since.IsZero() || w.doubt.pos != told.pos || w.doubt.sum != told.sum {
		w.doubt = told
		return false
	}
	return told.since.Sub(w.doubt.since) >= w.confirm
}

// loss reports that a ruling says of the log that it is shorter than the writer
// knew it: what a deposed leader has is the beginning of the log.
func (r ruling) loss(m stand, last *Record) bool {
	switch r {
	case ruledMissing:
		return m.acked || m.expect != 0
	case ruledRolledBack:
		return true
	case ruledFenced:
		return last.run < m.run
	case ruledAgain, ruledMine, ruledRetake:
	}
	return false
}

// isLoss reports the errors of a takeover that say the same.
func isLoss(err error) bool { return errors.Is(err, ErrRolledBack) || errors.Is(err, ErrDamaged) }
