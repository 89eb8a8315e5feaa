package client

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"rejoin/protocol"
)

// servers is where a client may find its sessions. All of its links share it:
// what one of them learns of a server, the others need not find out. Safe for
// concurrent use.
type servers struct {
	given []string // of Options, in their order

	mu    sync.Mutex
	order []string // the one to try next first; at least one, at most len(given) + protocol.ReconnectURLsMax
}

// newServers checks every URL of o. The error is a *DialError.
func newServers(o *Options) (*servers, error) {
	var given []string
	if o.URL != "" || len(o.URLs) == 0 {
		given = append(given, o.URL)
	}
	for _, url := range append(given, o.URLs...) {
		if _, _, err := ParseURL(url); err != nil {
			return nil, &DialError{URL: url, Err: err}
		}
		if !slices.Contains(given, url) {
			given = append(given, url)
		}
	}
	return &servers{given: given, order: slices.Clone(given)}, nil
}

// next is the server to try now.
func (s *servers) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order[0]
}

// count is how many there are to try.
func (s *servers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// failed puts a server behind the others. One that is not known is none of them.
func (s *servers) failed(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.order, url); i >= 0 {
		s.order = append(slices.Delete(s.order, i, i+1), url)
	}
}

// draining puts those that a draining server named in front: at first the ones
// that were given, too, which are sure to be spelled as this client reaches them.
// They take the place of what another server named earlier.
func (s *servers) draining(url string, named []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var known, others, last []string
	for _, n := range acceptable(url, named) {
		switch {
		case n == url || slices.Contains(known, n) || slices.Contains(others, n):
		case slices.Contains(s.given, n):
			known = append(known, n)
		default:
			others = append(others, n)
		}
	}
	order := append(known, others...)
	for _, g := range s.given {
		switch {
		case g == url:
			last = append(last, g)
		case !slices.Contains(order, g):
			order = append(order, g)
		}
	}
	if order = append(order, last...); len(order) > 0 {
		s.order = order
	}
}

// acceptable is what of named may be followed from url: nothing that leads from
// TLS into the clear, and no socket file, which is of another machine.
func acceptable(url string, named []string) []string {
	sealed := strings.HasPrefix(url, schemeTLS+":")
	var fit []string
	for _, n := range named {
		scheme, _, err := ParseURL(n)
		if err != nil || scheme == "unix" || sealed && scheme != schemeTLS {
			continue
		}
		if fit = append(fit, n); len(fit) == protocol.ReconnectURLsMax {
			break
		}
	}
	return fit
}

// methodDraining is the notification of a server that stops.
const methodDraining = "draining"

// drained takes the notification of the server at url.
func (s *servers) drained(url string, params json.RawMessage) {
	var p struct {
		Reconnect []string `json:"reconnect"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		p.Reconnect = nil // of a later version: that it stops is clear
	}
	s.draining(url, p.Reconnect)
}
