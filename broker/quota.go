package broker

import (
	"sync"

	"rejoin/protocol"
)

// quota bounds the sessions that each token of a token file has live, which are
// those that it started or resumed last, and the sessions that each workspace has
// at all. Sessions on their way up count, so that starts at the same time cannot
// pass a bound together. Safe for concurrent use.
type quota struct {
	max      int // live ones of a token
	kept     int // of a workspace
	registry *Registry

	mu     sync.Mutex
	rising map[protocol.Key]string // starts and resumes in work: by whose token; bounded by requests in work
}

func newQuota(max, kept int, r *Registry) *quota {
	return &quota{max: max, kept: kept, registry: r, rising: make(map[protocol.Key]string)}
}

// enter counts a start or resume by p; the caller calls leave when it is over.
func (q *quota) enter(p Principal, k protocol.Key) (leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.roomKept(k); err != nil {
		return nil, err
	}
	if err := q.roomLive(p, k); err != nil {
		return nil, err
	}
	q.rising[k] = p.Token
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.rising, k)
	}, nil
}

// roomKept refuses a new session where its workspace is full. Mu is held.
func (q *quota) roomKept(k protocol.Key) error {
	if q.registry.record(k) != nil { // a resume
		return nil
	}
	n := 0
	for at := range q.rising {
		if at.Workspace == k.Workspace && at != k {
			n++
		}
	}
	q.registry.records(func(r *protocol.SessionRecord) bool {
		if _, counted := q.rising[r.Key()]; !counted && r.Workspace == k.Workspace && !r.Deleted {
			n++
		}
		return false
	})
	if n >= q.kept {
		return protocol.Errorf(protocol.ReasonOverloaded, "this workspace has %d sessions, as many as it may: delete some", q.kept).Met("SessionsKeptDefault")
	}
	return nil
}

// roomLive refuses a session that would be one too many of p's token. Mu is held.
func (q *quota) roomLive(p Principal, k protocol.Key) error {
	if p.Token == "" {
		return nil
	}
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
		return protocol.Errorf(protocol.ReasonOverloaded, "more than %d live sessions of this token", q.max).Met("SessionsPerTokenDefault")
	}
	return nil
}
