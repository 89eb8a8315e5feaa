package lines

import (
	"rejoin/agent"
	"rejoin/protocol"
)

// FoldVersion is 1.
func (Adapter) FoldVersion() int { return 1 }

// Fold makes one item of the lines that the child prints, and begins another
// one before it would be cut.
func (Adapter) Fold(s *protocol.State, e *protocol.Event) {
	if e.Source != protocol.SourceBroker {
		return
	}
	p := agent.Object(e.Body)
	t := agent.Edit(s, e)
	switch agent.String(p, "type") {
	case protocol.TypeOutput:
		line := agent.String(p, "text") + "\n"
		it := t.Item(open)
		if it != nil && len(it.Text)+len(line) > protocol.ItemTextBytes {
			t.Close(open, protocol.ItemDone)
			it = nil
		}
		if it == nil {
			it = t.Open(open, protocol.ItemOutput)
		}
		t.Append(it, agent.Text, line)
	case protocol.TypeError:
		t.Close(open, protocol.ItemDone)
		t.Fault(p)
	}
}

// open names the item that grows.
const open = "output"

// Settle closes the item that grows: nothing of what the child printed is
// missing from it.
func (Adapter) Settle(s *protocol.State, e *protocol.Event) {
	agent.Edit(s, e).Close(open, protocol.ItemDone)
	agent.Settle(s, e)
}
