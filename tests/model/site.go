package model

import (
	"context"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// Site is the service that subjects live in: how their clients reach it, and what
// they have in common. Its fields are set before the first subject; its methods
// are for the test's goroutine, but for broke.
type Site struct {
	T          *testing.T
	Seed       int           // draws what clients do
	Again      string        // how to run the test again, for its failure
	Books      string        // folder of the children's books
	Demo       []string      // command line of the demo agent, which a subject of that kind needs
	EventLimit int           // the longest line of a child that becomes an event, in bytes
	Secrets    []string      // what may stand in no event
	Transports []string      // ways by which clients reach the service
	Rest       time.Duration // of readers that begin anew, between two visits; zero: 200 ms

	// Connect makes a connection by one of them.
	Connect func(ctx context.Context, transport string, rcvbuf int, tap func(*harness.Frame)) (*harness.Client, error)
	// Acked is called at the first acknowledgement of a command; nil: nobody is.
	Acked func(u *Subject) error
	// Seen is called by readers that follow at every event; nil: nobody is.
	Seen func(r *Reader, e harness.Event)
	// Judged is called with every history that was found good; nil: nobody is.
	Judged func(u *Subject, h *History)

	names int // of commands that begin runs

	mu       sync.Mutex
	breaches []error
}

// broke notes a breach that a client met. Any goroutine may call it.
func (s *Site) broke(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaches = append(s.breaches, err)
}

// Check fails the test at once when a client met a breach.
func (s *Site) Check() {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.breaches {
		s.T.Error(err)
	}
	if len(s.breaches) > 0 {
		s.T.Fatalf("run again with %s", s.Again)
	}
}

// Name returns a number that this site has not given before.
func (s *Site) Name() int {
	s.names++
	return s.names
}

// Until waits until cond is done; it gives up when nothing has moved for as long
// as nothing can take: sum is what moves.
func (s *Site) Until(what string, cond func() (done bool, sum uint64)) {
	s.T.Helper()
	var last uint64
	for {
		moved := false
		harness.Eventually(s.T, what, func() bool {
			s.Check()
			done, sum := cond()
			moved = !done && sum != last
			last = sum
			return done || moved
		})
		if !moved {
			return
		}
	}
}

// Flow is how much was stored and acknowledged for one subject.
type Flow struct {
	Head uint64
	Acks int64
}

// Flows asks how much that is at the moment.
func Flows(c harness.Caller, world []*Subject) []Flow {
	all := make([]Flow, len(world))
	for i, u := range world {
		all[i] = Flow{u.Info(c).Head, u.acks.Load()}
	}
	return all
}

// Flowing waits until every subject has stored and acknowledged so many more than
// since, and returns by how much in all.
func (s *Site) Flowing(c harness.Caller, world []*Subject, since []Flow, leastEvents uint64, leastAcks int64, when string) (events uint64, acks int64) {
	s.T.Helper()
	s.Until("events and acknowledgements of every session "+when, func() (enough bool, sum uint64) {
		events, acks, enough = 0, 0, true
		for i, now := range Flows(c, world) {
			e, a := now.Head-since[i].Head, now.Acks-since[i].Acks
			enough = enough && e >= leastEvents && a >= leastAcks
			events, acks = events+e, acks+a
		}
		return enough, uint64(acks)
	})
	return events, acks
}
