package blackbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

const otherEpoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// TestJoinWhileItPrints lets clients join in the middle of a burst, by a cursor and
// by a snapshot. The client checks density and order. Proves I-J4, I-S3 and I-G1.
func TestJoinWhileItPrints(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "ticks", "1500", "1", "count", "1501", "20000", "20", "echo")
	var joined sync.WaitGroup
	gap := time.NewTicker(90 * time.Millisecond)
	defer gap.Stop()
	for i := range 12 {
		c := harness.Dial(t, s)
		joined.Go(func() {
			if i%3 == 2 {
				follow(t, c, session, map[string]any{"from": "snapshot"}, 0)
				return
			}
			follow(t, c, session, fromStart, 1)
		})
		<-gap.C
	}
	joined.Wait()
}

// follow reads to n=20000; first is the child's number that must come first, or
// zero for whichever follows the snapshot.
func follow(t *testing.T, c *harness.Client, session string, params map[string]any, first int) {
	t.Helper()
	ctx := harness.Context(t)
	st, err := c.Subscribe(ctx, session, params)
	if err != nil {
		t.Errorf("subscribe %v: %v", params, err)
		return
	}
	want := first
	_, err = st.Until(ctx, func(e harness.Event) bool {
		if k := n(e); k != 0 {
			if want != 0 && k != want {
				t.Errorf("%v: n=%d came, want %d", params, k, want)
			}
			want = k + 1
		}
		return n(e) == 20000
	})
	if err != nil {
		t.Errorf("%v: %v", params, err)
	}
	if _, err := st.Synced(ctx); err != nil {
		t.Errorf("%v: %v", params, err)
	}
}

// TestCursors subscribes at every kind of place of a log. Proves I-J4 and I-S3.
func TestCursors(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "10", "0", "echo")
	first := subscribe(t, cl, session, fromStart)
	numbered(t, first, 1, 10)
	epoch, head := first.Cursor()
	for _, c := range []struct {
		name   string
		params map[string]any
		mode   string
		reason string
		next   uint64 // seq of the first event that comes after one more line
	}{
		{"nothing", map[string]any{}, "live", "", head + 1},
		{"now", map[string]any{"from": "now"}, "live", "", head + 1},
		{"start", map[string]any{"from": "start"}, "replay", "", 1},
		{"zero", map[string]any{"after": 0}, "replay", "", 1},
		{"the middle", map[string]any{"after": 4, "epoch": epoch}, "replay", "", 5},
		{"the head", map[string]any{"after": head, "epoch": epoch}, "replay", "", head + 1},
		{"the future", map[string]any{"after": head + 1, "epoch": epoch}, "snapshot", "future", head + 1},
		{"beyond 2^53", map[string]any{"after": uint64(9007199254740993)}, "snapshot", "future", head + 1},
		{"beyond 2^64", map[string]any{"after": json.RawMessage("18446744073709551616")}, "snapshot", "future", head + 1},
		{"another epoch", map[string]any{"after": 4, "epoch": otherEpoch}, "snapshot", "epoch", head + 1},
		{"another epoch's future", map[string]any{"after": 400, "epoch": otherEpoch}, "snapshot", "epoch", head + 1},
		{"a snapshot", map[string]any{"from": "snapshot"}, "snapshot", "requested", head + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := harness.Dial(t, s)
			st := subscribe(t, cl, session, c.params)
			a := st.Attached()
			if a.Mode != c.mode || a.Reason != c.reason || a.Epoch != epoch || a.Head != head {
				t.Fatalf("answered %+v, want mode %s, reason %q, epoch %s, head %d", a, c.mode, c.reason, epoch, head)
			}
			if c.mode == "snapshot" {
				snap, err := st.Snapshot(harness.Context(t), 0)
				if err != nil || snap.Seq != head || snap.Reason != c.reason || snap.Epoch != epoch {
					t.Fatalf("snapshot %+v, %v", snap, err)
				}
				var state struct {
					SessionID, Epoch, Status string
					Seq                      uint64
					Items, Pending           []any
				}
				if err := json.Unmarshal(snap.State, &state); err != nil || state.SessionID != session || state.Seq != head || state.Epoch != epoch || state.Items == nil || state.Pending == nil {
					t.Fatalf("state %s, %v", snap.State, err)
				}
			}
			if seq, err := st.Synced(harness.Context(t)); err != nil || seq != head {
				t.Fatalf("synced at %d, %v, want %d", seq, err, head)
			}
			if c.next <= head {
				if e := next(t, st); e.Seq != c.next {
					t.Fatalf("the first event is %d, want %d", e.Seq, c.next)
				}
			}
		})
	}
}

// TestBadCursors: a clear refusal each, nothing delivered, the connection lives.
func TestBadCursors(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "1", "0", "echo")
	for _, p := range []string{
		`"after":"bad"`, `"after":"1"`, `"after":-1`, `"after":1.5`, `"after":1.0`, `"after":1e3`, `"after":true`, `"after":{}`, `"after":[0]`,
		`"after":0,"epoch":5`, `"epoch":"` + otherEpoch + `"`, `"from":"middle"`, `"from":5`, `"from":"start","after":0`, `"until":-1`, `"until":"x"`,
	} {
		var params map[string]any
		if err := json.Unmarshal([]byte(`{"x":{`+p+`}}`), &params); err != nil {
			t.Fatal(err)
		}
		with := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(fmt.Sprintf(`{"sessionId":%q,%s}`, session, p)), &with); err != nil {
			t.Fatal(err)
		}
		all := map[string]any{}
		for k, v := range with {
			all[k] = v
		}
		refuse(t, cl, -32602, "subscribe", all)
	}
	refuse(t, cl, -32602, "subscribe", map[string]any{})
	refuse(t, cl, -32602, "subscribe", map[string]any{"sessionId": 5})
	refuse(t, cl, -32602, "read_events", map[string]any{"sessionId": session, "after": "x", "limit": 5})
	refuse(t, cl, -32602, "read_events", map[string]any{"sessionId": session, "after": 0, "limit": 1001})
	refuse(t, cl, -32602, "read_events", map[string]any{"sessionId": session, "after": 0, "before": 5})
	refuse(t, cl, -32602, "resync", map[string]any{"subscriptionId": 999, "after": 0})
	refuse(t, cl, -32602, "unsubscribe", map[string]any{"subscriptionId": "x"})
	for _, id := range []string{"none", "a.b", "../x", "*", strings.Repeat("x", 65)} {
		if e := refuse(t, cl, -32000, "subscribe", map[string]any{"sessionId": id, "after": 0}); e.Message != "session "+id+" not found" {
			t.Fatalf("message %q", e.Message)
		}
	}
	numbered(t, subscribe(t, cl, session, fromStart), 1, 1)
}

// TestEventsStayWithTheirSession runs two sessions and two clients; the client
// refuses an event of another session. Proves I-A1.
func TestEventsStayWithTheirSession(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	a, b := harness.Dial(t, s), harness.Dial(t, s)
	one := start(t, a, "ticks", "300", "1", "echo")
	two := start(t, b, "ticks", "300", "1", "echo")
	sa, sb := subscribe(t, a, one, fromStart), subscribe(t, b, two, fromStart)
	both := subscribe(t, a, two, fromStart)
	numbered(t, sa, 1, 300)
	numbered(t, sb, 1, 300)
	numbered(t, both, 1, 300)
}

// TestSubscriptionVerbs: until, resync, unsubscribe, two subscriptions of one
// session, someone else's subscription. Proves I-G1.
func TestSubscriptionVerbs(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "100", "0", "echo")
	st := subscribe(t, cl, session, fromStart)
	numbered(t, st, 1, 100)

	t.Run("until", func(t *testing.T) {
		u := subscribe(t, cl, session, map[string]any{"after": 10, "until": 20})
		for want := uint64(11); want <= 20; want++ {
			if e := next(t, u); e.Seq != want {
				t.Fatalf("event %d, want %d", e.Seq, want)
			}
		}
		end, err := u.End(harness.Context(t))
		if err != nil || end.Reason != "until" || end.Seq != 20 || end.SessionID != session {
			t.Fatalf("end %+v, %v", end, err)
		}
	})
	t.Run("resync", func(t *testing.T) {
		id := st.ID()
		if err := cl.Resync(harness.Context(t), st, map[string]any{"after": 50}); err != nil {
			t.Fatal(err)
		}
		if st.ID() != id {
			t.Fatalf("resync changed the id from %d to %d", id, st.ID())
		}
		if e := next(t, st); e.Seq != 51 {
			t.Fatalf("after resync came %d, want 51", e.Seq)
		}
	})
	t.Run("two of one session", func(t *testing.T) {
		x, y := subscribe(t, cl, session, fromStart), subscribe(t, cl, session, fromStart)
		if x.ID() == y.ID() {
			t.Fatal("one id twice")
		}
		numbered(t, x, 1, 100)
		numbered(t, y, 1, 100)
	})
	t.Run("unsubscribe", func(t *testing.T) {
		u := subscribe(t, cl, session, nil)
		if err := cl.Unsubscribe(harness.Context(t), u); err != nil {
			t.Fatal(err)
		}
		if err := cl.Unsubscribe(harness.Context(t), u); err != nil {
			t.Fatalf("again: %v", err)
		}
		send(t, cl, session, "after-unsubscribe", map[string]any{})
		if _, err := st.Until(harness.Context(t), func(e harness.Event) bool { return e.Type() == "got" }); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another connection's", func(t *testing.T) {
		other := harness.Dial(t, s)
		refuse(t, other, -32602, "unsubscribe", map[string]any{"subscriptionId": st.ID()})
		refuse(t, other, -32602, "resync", map[string]any{"subscriptionId": st.ID(), "after": 0})
	})
}

// TestReadEvents pages through a log both ways.
func TestReadEvents(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	session := start(t, cl, "count", "1", "2500", "30", "echo")
	numbered(t, subscribe(t, cl, session, fromStart), 1, 2500)
	type page struct {
		Events []struct {
			SessionID      string
			SubscriptionID *uint64
			Seq            uint64
		}
		Head, Floor uint64
		Epoch       string
		Next        *uint64
	}
	head := get(t, cl, session).Head
	var seqs []uint64
	for after := uint64(0); after < head; {
		p := harness.Do[page](t, cl, "read_events", map[string]any{"sessionId": session, "after": after, "limit": 700})
		if len(p.Events) == 0 || len(p.Events) > 700 || p.Head != head || p.Floor != 1 || p.Next == nil {
			t.Fatalf("page after %d: %d events, %+v", after, len(p.Events), p.Head)
		}
		for _, e := range p.Events {
			if e.SessionID != session || e.SubscriptionID != nil {
				t.Fatalf("event %+v", e)
			}
			seqs = append(seqs, e.Seq)
		}
		after = seqs[len(seqs)-1]
	}
	for i, seq := range seqs {
		if seq != uint64(i)+1 {
			t.Fatalf("forwards: place %d has seq %d", i, seq)
		}
	}
	want := head
	for want > 0 {
		p := harness.Do[page](t, cl, "read_events", map[string]any{"sessionId": session, "before": want + 1, "limit": 333})
		if len(p.Events) == 0 {
			t.Fatalf("nothing before %d", want+1)
		}
		for i := len(p.Events) - 1; i >= 0; i-- {
			if p.Events[i].Seq != want {
				t.Fatalf("backwards: %d, want %d", p.Events[i].Seq, want)
			}
			want--
		}
	}
	if p := harness.Do[page](t, cl, "read_events", map[string]any{"sessionId": session, "after": 0, "limit": 1000, "maxBytes": 1}); len(p.Events) != 1 {
		t.Fatalf("maxBytes 1 gave %d events, want one", len(p.Events))
	}
	if e := refuse(t, cl, -32010, "read_events", map[string]any{"sessionId": session, "after": 5, "limit": 1, "epoch": otherEpoch}); e.Data.Reason != "epoch" || e.Data.Head == nil || e.Data.Epoch == "" {
		t.Fatalf("another epoch: %+v", e)
	}
	refuse(t, cl, -32010, "read_events", map[string]any{"sessionId": session, "after": head + 1, "limit": 1})
}

// TestCursorSurvivesRestarts: SIGKILL and SIGTERM of the server; the old cursor
// goes on at the next event. Proves I-J2 and I-J3.
func TestCursorSurvivesRestarts(t *testing.T) {
	for _, durability := range []string{"always", "20ms"} {
		t.Run(durability, func(t *testing.T) {
			s := harness.Start(t, harness.Options{Listen: []string{harness.FixedPort(t)}, Args: []string{"--durability", durability}})
			cl := harness.Dial(t, s)
			session := start(t, cl, "count", "1", "500", "100", "echo")
			st := subscribe(t, cl, session, fromStart)
			numbered(t, st, 1, 500)
			epoch, seq := st.Cursor()
			for _, end := range []func(){s.Kill9, func() { s.Term() }} {
				end()
				s.Run()
				cl = harness.Dial(t, s)
				st = subscribe(t, cl, session, map[string]any{"after": seq, "epoch": epoch})
				if a := st.Attached(); a.Mode != "replay" {
					t.Fatalf("the old cursor was answered %+v", a)
				}
				before := get(t, cl, session)
				r := harness.Do[struct{ Session info }](t, cl, "resume_session", map[string]any{"sessionId": session})
				if r.Session.State != "running" || r.Session.Run <= before.Run || r.Session.Epoch != epoch {
					t.Fatalf("resumed from %+v to %+v", before, r.Session)
				}
				ofType(t, st, "session_resumed")
				numbered(t, st, 1, 500)
				_, seq = st.Cursor()
			}
		})
	}
}
