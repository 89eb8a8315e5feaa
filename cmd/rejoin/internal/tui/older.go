package tui

import (
	"context"
	"encoding/json"
	"errors"

	tea "charm.land/bubbletea/v2"

	"rejoin/client"
	"rejoin/protocol"
)

// olderMax bounds the items from before the state that are kept; of more the
// oldest go, and are fetched again when somebody goes back to them.
const olderMax = 5000

// older is what the user has paged back to: the items before those of the state.
type older struct {
	items    []protocol.Item
	dropped  uint64 // how many there are before items, as far as that is known
	known    bool   // dropped says something
	fetching bool
	end      bool // nothing before items can be had
}

// olderMsg brings a page of older items.
type olderMsg struct {
	epoch protocol.Epoch
	at    protocol.Seq
	state *protocol.State
	err   error
}

// first is the oldest item that is at hand.
func (m *model) first() *protocol.Item {
	if len(m.older.items) > 0 {
		return &m.older.items[0]
	}
	if s := m.view.State(); s != nil && len(s.Items) > 0 {
		return &s.Items[0]
	}
	return nil
}

// wantOlder fetches the items before the first one, if there are any.
func (m *model) wantOlder() tea.Cmd {
	s, first := m.view.State(), m.first()
	if s == nil || first == nil || m.older.fetching || m.older.end || first.FirstSeq <= 1 {
		return nil
	}
	if before := s.ItemsDropped; m.older.known && m.older.dropped == 0 || !m.older.known && before == 0 {
		return nil
	}
	m.older.fetching = true
	at, epoch, session := first.FirstSeq-1, s.Epoch, m.session
	return func() tea.Msg {
		st, err := stateAt(m.ctx, m.client, session, at, epoch)
		return olderMsg{epoch: epoch, at: at, state: st, err: err}
	}
}

// stateAt asks for the state as of a seq.
func stateAt(ctx context.Context, c *client.Client, session string, at protocol.Seq, epoch protocol.Epoch) (*protocol.State, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	raw, err := c.Call(ctx, "get_snapshot", map[string]any{"sessionId": session, "at": at, "epoch": epoch})
	if err != nil {
		return nil, err
	}
	var snap client.Snapshot
	if err := json.Unmarshal(raw, &snap); err != nil {
		return nil, err
	}
	return snap.Decode()
}

// takeOlder puts a page before what is at hand.
func (m *model) takeOlder(page olderMsg) {
	m.older.fetching = false
	s, first := m.view.State(), m.first()
	if s == nil || s.Epoch != page.epoch || first == nil || first.FirstSeq != page.at+1 {
		return // another page by now
	}
	if page.err != nil {
		var rpc *client.RPCError
		if errors.As(page.err, &rpc) && rpc.Code == protocol.CodeOutsideLog {
			m.older.end = true
			m.say("what was before is not kept")
			return
		}
		m.fail(page.err)
		return
	}
	items := page.state.Items
	for len(items) > 0 && items[len(items)-1].FirstSeq > page.at {
		items = items[:len(items)-1]
	}
	if len(items) == 0 {
		m.older.end = true
		return
	}
	m.older.items = append(items[:len(items):len(items)], m.older.items...)
	m.older.dropped, m.older.known = page.state.ItemsDropped, true
	if extra := len(m.older.items) - olderMax; extra > 0 {
		// The user reads at the top: what they have left behind goes.
		m.older.items = m.older.items[:olderMax]
		m.gap = true
	}
}

// keepDropped takes over the items that the state has dropped since before.
func (m *model) keepDropped(before []protocol.Item) {
	s := m.view.State()
	if len(m.older.items) == 0 || len(s.Items) == 0 {
		return
	}
	for i := range before {
		if before[i].FirstSeq >= s.Items[0].FirstSeq {
			break
		}
		m.older.items = append(m.older.items, before[i])
	}
	if extra := len(m.older.items) - olderMax; extra > 0 {
		m.older.items = append([]protocol.Item(nil), m.older.items[extra:]...)
		m.older.dropped += uint64(extra)
		m.older.end = false
	}
}

// forgetOlder drops what was paged back to.
func (m *model) forgetOlder() { m.older, m.gap = older{}, false }
