package broker

import (
	"fmt"
	"testing"

	"rejoin/protocol"
)

// A workspace has so many sessions, those on their way up with them; what is
// deleted makes room, a resume needs none, and another workspace has its own.
func TestSessionsKept(t *testing.T) {
	const kept = 3
	r := newRegistry(func(_, _ *protocol.SessionRecord) {})
	q := newQuota(100, kept, r)
	rev := uint64(0)
	put := func(id string, deleted bool) {
		rev++
		r.put(protocol.Key{Workspace: "w", Session: id}, &protocol.SessionRecord{Workspace: "w", ID: id, Status: protocol.StatusEnded, Deleted: deleted}, rev)
	}
	who := Principal{Name: "ann", Workspace: "w"}
	enter := func(workspace, id string) (func(), error) {
		return q.enter(who, protocol.Key{Workspace: workspace, Session: id})
	}
	for i := range kept - 1 {
		put(fmt.Sprint("s", i), false)
	}
	put("gone", true)
	leave, err := enter("w", "new")
	if err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	full := func(id string) {
		t.Helper()
		_, err := enter("w", id)
		e, ok := protocol.AsError(err)
		if !ok || e.Reason != protocol.ReasonOverloaded || e.Limit != "SessionsKeptDefault" || e.Message != "this workspace has 3 sessions, as many as it may: delete some" {
			t.Errorf("over the limit: %v", err)
		}
	}
	full("another") // while the last place is being taken
	put("new", false)
	leave()
	full("another")
	for where, id := range map[string]string{"w": "s0", "elsewhere": "another"} {
		leave, err := enter(where, id)
		if err != nil {
			t.Errorf("%s in %s: %v", id, where, err)
			continue
		}
		leave()
	}
	put("s0", true)
	if leave, err = enter("w", "another"); err != nil {
		t.Fatalf("after a delete: %v", err)
	}
	leave()
}
