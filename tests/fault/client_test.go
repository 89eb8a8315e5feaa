package fault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rejoin/tests/harness"
)

// How long a gateway may take for the first answer, or for any, before a client
// tries the next one.
const (
	greetPatience  = 3 * time.Second
	answerPatience = 12 * time.Second
)

// connect makes a connection by a gateway's name, or, when that one does not
// answer, by another's.
func (s *system) connect(ctx context.Context, gateway string, rcvbuf int, tap func(*harness.Frame)) (*harness.Client, error) {
	first := max(0, slices.IndexFunc(s.gateways, func(m *member) bool { return m.name == gateway }))
	var all error
	for i := range s.gateways {
		network, address := s.gateways[(first+i)%len(s.gateways)].server.Addr()
		greeting, cancel := context.WithTimeout(ctx, greetPatience)
		c, err := harness.ConnectTap(greeting, network, address, token, rcvbuf, tap)
		cancel()
		if err == nil {
			s.linked(s.gateways[(first+i)%len(s.gateways)], c)
			return c, nil
		}
		all = errors.Join(all, err)
	}
	return nil, fmt.Errorf("%w: no gateway answers: %w", harness.ErrConnection, all)
}

// link is a connection that a client has, or had.
type link struct {
	to    *member
	c     *harness.Client
	since time.Time
}

// linked notes a connection.
func (s *system) linked(to *member, c *harness.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linkedTo = append(slices.DeleteFunc(s.linkedTo, func(l link) bool { return ended(l.c) }), link{to, c, time.Now()})
}

func ended(c *harness.Client) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// busiest is the gateway with most connections that have lasted: those of clients
// that stay. Those that are left out are others.
func (s *system) busiest(but ...*member) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[*member]int{}
	for _, l := range s.linkedTo {
		if !ended(l.c) && time.Since(l.since) > time.Second {
			count[l.to]++
		}
	}
	some := slices.DeleteFunc(slices.Clone(s.gateways), func(m *member) bool { return slices.Contains(but, m) })
	return slices.MaxFunc(some, func(a, b *member) int { return count[a] - count[b] })
}

// steadfast is a caller that asks again, here or there, until it is answered for
// good: what it asks may be asked twice.
type steadfast struct {
	s *system

	mu   sync.Mutex
	c    *harness.Client
	next int // of the gateways
}

// caller returns one that ends with the test.
func (s *system) caller() *steadfast {
	a := &steadfast{s: s}
	s.t.Cleanup(func() {
		if err := a.drop(); err != nil {
			s.t.Errorf("a gateway broke the protocol: %v", err)
		}
	})
	return a
}

func (a *steadfast) drop() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.c == nil {
		return nil
	}
	c := a.c
	a.c = nil
	return c.Close()
}

func (a *steadfast) client(ctx context.Context) (*harness.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.c != nil {
		return a.c, nil
	}
	a.next++
	c, err := a.s.connect(ctx, a.s.gateways[a.next%len(a.s.gateways)].name, 0, nil)
	a.c = c
	return c, err
}

// Call implements harness.Caller. An error is one that no other attempt changes,
// or the end of ctx with the last of the attempts.
func (a *steadfast) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	var last error
	for {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w; the last attempt: %w", context.Cause(ctx), last)
		}
		c, err := a.client(ctx)
		if err != nil {
			last = err
			harness.Pause(ctx, 50*time.Millisecond)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, answerPatience)
		result, err := c.Call(asking, method, params)
		cancel()
		var refused *harness.RPCError
		if err == nil || errors.As(err, &refused) && !refused.Data.Retryable {
			return result, err
		}
		last = err
		if refused == nil { // this gateway is gone, or does not answer
			if err := a.drop(); err != nil {
				return nil, err
			}
		}
		harness.Pause(ctx, 50*time.Millisecond)
	}
}
