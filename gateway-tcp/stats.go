package gatewaytcp

import "sync/atomic"

// counters of a listener, its own atomics.
type counters struct {
	Accepted         atomic.Uint64
	AcceptRetries    atomic.Uint64
	HandshakesFailed atomic.Uint64
	PeersRefused     atomic.Uint64
}

// Stats is what a listener has counted since it was made.
type Stats struct {
	Accepted         uint64 // connections
	AcceptRetries    uint64 // times the system had no descriptor or memory for one
	HandshakesFailed uint64 // TLS handshakes that came to nothing
	HandshakesCut    uint64 // of those, for want of room: protocol.HandshakesMax
	PeersRefused     uint64 // processes of other users on a socket with auth=peer
}

// Stats returns the counts so far. Safe for concurrent use.
func (l *Listener) Stats() Stats {
	l.handshakes.mu.Lock()
	cut := l.handshakes.cut
	l.handshakes.mu.Unlock()
	return Stats{
		Accepted: l.stats.Accepted.Load(), AcceptRetries: l.stats.AcceptRetries.Load(),
		HandshakesFailed: l.stats.HandshakesFailed.Load(), HandshakesCut: cut, PeersRefused: l.stats.PeersRefused.Load(),
	}
}
