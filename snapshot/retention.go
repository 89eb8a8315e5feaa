package snapshot

import (
	"time"

	"rejoin/protocol"
)

// Retention says how much of a session's log is kept. A zero field sets no
// bound; all zero is RetentionBytesDefault.
type Retention struct {
	MaxAge    time.Duration // events older than this may go
	MaxBytes  int64         // of event lines
	MaxEvents uint64
}

// RetentionBytesDefault bounds a session's log when nothing else does.
const RetentionBytesDefault = 1 << 30

func (r Retention) withDefaults() Retention {
	if r == (Retention{}) {
		r.MaxBytes = RetentionBytesDefault
	}
	return r
}

const (
	newestKept  = 3  // checkpoints that are always kept
	thinnedKept = 32 // at most between the anchor and those
)

// target returns the index of the checkpoint that the log is to be trimmed to,
// -1 for none. kept are verified checkpoints, rising. It is at most the second
// newest, so that one more than the anchor is left should that be damaged.
func (r Retention) target(kept []header, now int64) int {
	last := len(kept) - 1
	best := -1
	if last < 1 {
		return best
	}
	newest := &kept[last]
	within := func(ok func(h *header) bool) {
		i := 0
		for i < last-1 && !ok(&kept[i]) {
			i++
		}
		for i >= 0 && !kept[i].aligned() {
			i--
		}
		best = max(best, i)
	}
	if m := r.MaxBytes; m > 0 && newest.bytes > uint64(m) {
		within(func(h *header) bool { return newest.bytes-h.bytes <= uint64(m) })
	}
	if m := r.MaxEvents; m > 0 && uint64(newest.seq) > m {
		within(func(h *header) bool { return uint64(newest.seq-h.seq) <= m })
	}
	if r.MaxAge > 0 {
		oldest := now - r.MaxAge.Milliseconds()
		for i := last - 1; i >= 0; i-- {
			if kept[i].ts <= oldest && kept[i].aligned() {
				best = max(best, i)
				break
			}
		}
	}
	return best
}

// thin returns the indices of the checkpoints that may go: those before the
// anchor, and of the others but the newest three so many that at most
// thinnedKept are left, at distances of at least a power of two.
func thin(seqs []protocol.Seq, floor protocol.Seq) []int {
	anchor := 0
	for i, seq := range seqs {
		if seq < floor {
			anchor = i
		}
	}
	var gone []int
	for i := range anchor {
		gone = append(gone, i)
	}
	end := max(len(seqs)-newestKept, anchor+1)
	for gap := protocol.Seq(1); ; gap *= 2 {
		var drop []int
		last := seqAt(seqs, anchor)
		for i := anchor + 1; i < end; i++ {
			if seqs[i]-last < gap {
				drop = append(drop, i)
			} else {
				last = seqs[i]
			}
		}
		if end-(anchor+1)-len(drop) <= thinnedKept {
			return append(gone, drop...)
		}
	}
}

func seqAt(seqs []protocol.Seq, i int) protocol.Seq {
	if i < len(seqs) {
		return seqs[i]
	}
	return 0
}
