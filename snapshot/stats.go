package snapshot

import "sync/atomic"

// counters are what a Store counts.
type counters struct {
	stored, failed atomic.Uint64
}

// Stats is what a Store has counted since it was made.
type Stats struct {
	Checkpoints uint64 // stored and verified
	Failed      uint64 // that were not; the next one tries again
}

// Stats counts. Safe for concurrent use.
func (st *Store) Stats() Stats {
	if st == nil {
		return Stats{}
	}
	return Stats{Checkpoints: st.counters.stored.Load(), Failed: st.counters.failed.Load()}
}
