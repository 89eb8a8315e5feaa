package journal

import (
	"time"

	"rejoin/protocol"
)

// PullStatus is how a Pull ended.
type PullStatus uint8

// The ways a Pull ends.
const (
	PullMore    PullStatus = iota // stopped at max, limit or until; call again
	PullIdle                      // caught up: Wake comes with the next event
	PullWait                      // behind: a range read is under way, Wake comes
	PullTrimmed                   // the next seq can no longer be read
	PullEpoch                     // the cursor's epoch has ended; its events are not served any more
	PullDamaged                   // the next seq cannot be read: a record does not verify, or is missing
	PullFailed                    // the journal did not answer; Wake comes, call again
)

// pullBatch is how many records one look under the lock hands out.
const pullBatch = 16

// Pull appends whole notifications (prefix + stored line + LF) of the events
// after c to dst: at least one if there is one at hand, stopping before
// len(dst) passes max, after limit events (0: no limit) or at seq until (0:
// none). It returns the last seq appended (c.Seq if none). A cursor with an
// empty epoch is of any epoch. Pull never blocks on the journal, encodes
// nothing and keeps no reference to dst.
func (w *Watch) Pull(dst, prefix []byte, c protocol.Cursor, until protocol.Seq, max, limit int) (out []byte, last protocol.Seq, st PullStatus) {
	var recs [pullBatch]*Record
	last = c.Seq
	events := 0
	for {
		if until != 0 && last >= until || limit > 0 && events >= limit {
			return dst, last, PullMore
		}
		n, st := w.gather(recs[:], c.Epoch, last+1)
		if n == 0 {
			return dst, last, st
		}
		for _, r := range recs[:n] {
			for i := int(last + 1 - r.Base()); i < r.Len(); i++ {
				line := r.Line(i)
				if events > 0 && len(dst)+len(prefix)+len(line)+1 > max {
					return dst, last, PullMore
				}
				if until != 0 && last >= until || limit > 0 && events >= limit {
					return dst, last, PullMore
				}
				dst = append(dst, prefix...)
				dst = append(dst, line...)
				dst = append(dst, '\n')
				last++
				events++
			}
		}
	}
}

// gather copies consecutive records from the one that holds seq on into out,
// or says why there is none, after asking for what must be read.
func (w *Watch) gather(out []*Record, epoch protocol.Epoch, seq protocol.Seq) (int, PullStatus) {
	w.mu.Lock()
	if epoch != w.epoch && epoch != "" {
		w.mu.Unlock()
		return 0, PullEpoch
	}
	if seq > w.head {
		w.mu.Unlock()
		return 0, PullIdle
	}
	if seq < w.floor {
		w.mu.Unlock()
		return 0, PullTrimmed
	}
	if n := w.ring.take(seq, out); n > 0 {
		w.mu.Unlock()
		return n, PullMore
	}
	w.mu.Unlock()

	now := w.hub.now()
	n, ahead := w.hub.cache.take(w, seq, out)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoch != epoch && epoch != "" { // it ended in between: what was found may be of another
		return 0, PullEpoch
	}
	if n > 0 {
		if ahead != 0 && w.ranges.quiet() && ahead <= w.head && !w.ring.holds(ahead) {
			w.request(ahead, now)
		}
		return n, PullMore
	}
	if n := w.ring.take(seq, out); n > 0 {
		return n, PullMore
	}
	return 0, w.request(seq, now)
}

const (
	rangesMax    = 16 // range reads of one watch, queued or running
	verdictsMax  = 64 // seqs of one watch known not to be readable
	verdictFor   = 5 * time.Second
	rangeBytes   = 1 << 20 // of one range read
	prefetchUpTo = rangesMax / 2
)

// rangeTable is what a watch has asked the journal for, and what came of it.
type rangeTable struct {
	jobs     map[protocol.Seq]struct{} // queued or running, by the seq they start at
	verdicts map[protocol.Seq]verdict
	fail     retry // set: the journal did not answer; no range is asked for until then
}

// verdict says that a seq cannot be read, for a while.
type verdict struct {
	st    PullStatus
	until time.Time
}

func (t *rangeTable) quiet() bool { return len(t.jobs) < prefetchUpTo && t.fail.at.IsZero() }

func (t *rangeTable) forgetVerdicts() { clear(t.verdicts) }

// judge remembers that seq cannot be read. A full table forgets the others:
// who asks for them reads again.
func (t *rangeTable) judge(seq protocol.Seq, st PullStatus, now time.Time) {
	if t.verdicts == nil || len(t.verdicts) >= verdictsMax {
		t.verdicts = make(map[protocol.Seq]verdict)
	}
	t.verdicts[seq] = verdict{st, now.Add(verdictFor)}
}

// request asks for the range that starts at seq, once for all who want it.
// When the watch has enough under way nothing is queued: the end of any of
// them wakes everybody, who ask again.
func (w *Watch) request(seq protocol.Seq, now time.Time) PullStatus {
	t := &w.ranges
	if v, ok := t.verdicts[seq]; ok {
		if now.Before(v.until) {
			return v.st
		}
		delete(t.verdicts, seq)
	}
	if w.closed || !t.fail.at.IsZero() {
		return PullFailed
	}
	if _, ok := t.jobs[seq]; ok || len(t.jobs) >= rangesMax {
		return PullWait
	}
	if t.jobs == nil {
		t.jobs = make(map[protocol.Seq]struct{})
	}
	t.jobs[seq] = struct{}{}
	w.hub.lane(w.log).reads.put(rangeJob{w, seq, w.epoch})
	return PullWait
}
