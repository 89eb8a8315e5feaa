package broker

import "rejoin/protocol"

// Stats is what a Broker has counted since it was made, and what it has now.
type Stats struct {
	Sessions map[string]int // by state: running, exited, interrupted
	Restarts uint64         // that a policy asked for and that came about
	Spent    uint64         // that a policy asked for in vain: too many within protocol.RestartWindow
}

// Stats counts. It looks at every session once. Safe for concurrent use.
func (b *Broker) Stats() Stats {
	st := Stats{Sessions: map[string]int{"running": 0, "exited": 0, "interrupted": 0}, Restarts: b.restarted.Load(), Spent: b.restarts.refused.Load()}
	b.registry.records(func(r *protocol.SessionRecord) bool {
		if !r.Deleting && !r.Deleted {
			st.Sessions[r.Status.State()]++
		}
		return false
	})
	return st
}
