package gateway

import (
	"sync"
	"sync/atomic"

	"rejoin/broker"
)

// census counts what each workspace and each token has open. Nothing that a
// client is shown comes from a count over workspaces: it would tell one of them
// what the others do. Safe for concurrent use.
type census struct {
	mu     sync.Mutex
	spaces map[string]*space // by workspace; bounded by the workspaces that tokens ever named
	tokens map[string]int    // connections by token id; none of the server's own token
}

// A space is one workspace's share.
type space struct {
	connections   atomic.Int64
	subscriptions atomic.Int64
	lastID        atomic.Uint64 // of subscriptions and watches; never reused in this process
}

func newCensus() *census {
	return &census{spaces: make(map[string]*space), tokens: make(map[string]int)}
}

func (n *census) space(workspace string) *space {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spaceLocked(workspace)
}

func (n *census) spaceLocked(workspace string) *space {
	s := n.spaces[workspace]
	if s == nil {
		s = &space{}
		n.spaces[workspace] = s
	}
	return s
}

// enter counts a connection of p; false when its token has max already.
func (n *census) enter(p broker.Principal, max int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.Token != "" {
		if n.tokens[p.Token] >= max {
			return false
		}
		n.tokens[p.Token]++
	}
	n.spaceLocked(p.Workspace).connections.Add(1)
	return true
}

// leave is the end of what enter began.
func (n *census) leave(p broker.Principal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spaceLocked(p.Workspace).connections.Add(-1)
	if p.Token == "" {
		return
	}
	if n.tokens[p.Token]--; n.tokens[p.Token] == 0 {
		delete(n.tokens, p.Token)
	}
}
