package journal

import (
	"sync/atomic"
	"time"
)

// AppendBounds are the upper bounds of the classes of Stats.AppendLatency; the
// last class, above all of them, has none.
var AppendBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second,
}

// counters are what a Node counts: once per record, not per event.
type counters struct {
	records, events, bytes atomic.Uint64
	nanos                  atomic.Uint64
	classes                [len(AppendBounds) + 1]atomic.Uint64
	trims                  atomic.Uint64
}

// stored counts a record that took so long to become durable. A nil receiver
// counts nothing.
func (c *counters) stored(bytes int, took time.Duration) {
	if c == nil {
		return
	}
	i := 0
	for i < len(AppendBounds) && took > AppendBounds[i] {
		i++
	}
	c.classes[i].Add(1)
	c.records.Add(1)
	c.bytes.Add(uint64(bytes))
	c.nanos.Add(uint64(took))
}

// durable counts events.
func (c *counters) durable(events int) {
	if c != nil {
		c.events.Add(uint64(events))
	}
}

// Stats is what a Node has counted since it started, and what it has now.
type Stats struct {
	Records       uint64 // stored; the parts of a large event are one each
	Events        uint64 // stored
	Bytes         uint64 // of records, as stored
	AppendLatency [len(AppendBounds) + 1]uint64
	AppendTime    time.Duration // of all appends together
	Trims         uint64        // logs that were shortened
	Writers       int           // open ones

	HubGaps    uint64 // live records that did not join what the hub had
	HubFills   uint64 // looks at the journal for what live records left out
	HubAsked   uint64 // questions to leaders, for subscribers that came
	HubHeld    uint64 // wakes of a log's observers that waited for more events
	HubBytes   int64  // of tail rings and of ranges that readers share
	HubWatches int    // logs that somebody reads
}

// Stats counts. Safe for concurrent use.
func (n *Node) Stats() Stats {
	c := &n.counters
	st := Stats{
		Records: c.records.Load(), Events: c.events.Load(), Bytes: c.bytes.Load(),
		AppendTime: time.Duration(c.nanos.Load()), Trims: c.trims.Load(),
		HubGaps: n.hub.gaps.Load(), HubFills: n.hub.filled.Load(), HubAsked: n.hub.asked.Load(), HubHeld: n.hub.held.Load(), HubBytes: n.hub.ringBytes.Load() + n.hub.cache.bytesUsed(),
	}
	for i := range c.classes {
		st.AppendLatency[i] = c.classes[i].Load()
	}
	n.mu.Lock()
	st.Writers = len(n.writers)
	n.mu.Unlock()
	n.hub.mu.RLock()
	st.HubWatches = len(n.hub.watches)
	n.hub.mu.RUnlock()
	return st
}
