package gateway

import (
	"container/list"
	"net/netip"
	"strings"
	"sync"
	"time"

	"rejoin/protocol"
)

// attempts knows from where wrong tokens came lately. A source with too many is
// refused unheard for a while, right tokens too. Safe for concurrent use.
type attempts struct {
	max int // failures of a source within protocol.AuthFailureWindow

	mu      sync.Mutex
	sources map[netip.Prefix]*list.Element
	recent  *list.List // of *source, the newest failure in front; at most protocol.AuthSourcesMax
}

// A source is an address, or the 64 bits of an IPv6 address that a network gives
// to one site.
type source struct {
	from     netip.Prefix
	failures int       // within the window
	until    time.Time // the window's end
}

func newAttempts(max int) *attempts {
	return &attempts{max: max, sources: make(map[netip.Prefix]*list.Element), recent: list.New()}
}

// sourceOf is the source of a pipe by its name; not ok where the kernel vouches
// for the peer, as on a Unix socket.
func sourceOf(name string) (netip.Prefix, bool) {
	_, address, _ := strings.Cut(name, " ")
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}, false
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	return p, err == nil
}

// banned reports whether nothing is to be heard from a source at now.
func (a *attempts) banned(from netip.Prefix, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.sources[from]
	if e == nil {
		return false
	}
	s := e.Value.(*source) //nolint:forcetypeassert // nothing else is in the list
	return s.failures >= a.max && now.Before(s.until)
}

// failed counts a wrong token. When the table is full the source whose failure is
// the oldest is forgotten, which it reports.
func (a *attempts) failed(from netip.Prefix, now time.Time) (forgot bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.sources[from]
	if e == nil {
		if len(a.sources) >= protocol.AuthSourcesMax {
			last := a.recent.Back()
			delete(a.sources, last.Value.(*source).from) //nolint:forcetypeassert // as above
			a.recent.Remove(last)
			forgot = true
		}
		e = a.recent.PushFront(&source{from: from})
		a.sources[from] = e
	}
	a.recent.MoveToFront(e)
	s := e.Value.(*source) //nolint:forcetypeassert // as above
	if !now.Before(s.until) {
		s.failures, s.until = 0, now.Add(protocol.AuthFailureWindow)
	}
	s.failures++
	return forgot
}
