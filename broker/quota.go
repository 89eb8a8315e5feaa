package broker

import (
	"sync"

	"rejoin/protocol"
)

// quota bounds the sessions that each token of a token file has live: those that
// it started or resumed last. Sessions on their way up count, so that starts at
// the same time cannot pass it together.
type quota struct {
	max      int
	registry *Registry

	mu     sync.Mutex
	rising map[protocol.Key]string // starts and resumes in work: by whose token
}

func newQuota(max int, r *Registry) *quota {
	return &quota{max: max, registry: r, rising: make(map[protocol.Key]string)}
}

// enter counts a start or resume by p; the caller calls leave when it is over.
func (q *quota) enter(p Principal, k protocol.Key) (leave func(), err error) {
	if p.Token == "" {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	live := 0
	for at, token := range q.rising {
		if token == p.Token && at != k {
			live++
		}
	}
	live += len(q.registry.records(func(r *protocol.SessionRecord) bool {
		_, counted := q.rising[r.Key()]
		return !counted && r.StartedBy == p.Token && running(r) && r.Key() != k
	}))
	if live >= q.max {
		return nil, protocol.Errorf(protocol.ReasonOverloaded, "more than %d live sessions of this token", q.max).Met("SessionsPerTokenDefault")
	}
	q.rising[k] = p.Token
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.rising, k)
	}, nil
}
