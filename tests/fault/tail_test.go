package fault_test

import (
	"bytes"
	"context"
	"errors"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// tailEvents is how many events a view has before the fault, and how far back it
// resumes: fewer than a tail ring holds.
const tailEvents = 20

// view is a client at one gateway, and no other, that reads one session at its tail.
type view struct {
	at      *member
	u       *model.Subject
	clients []*harness.Client
	streams []*harness.Stream
	seen    []harness.Event // by the first stream
}

// views are of a session that is drawn, at each gateway; they end with the test.
func (s *suite) views() (all []*view) {
	s.t.Helper()
	u := s.world[s.rng.IntN(len(s.world))]
	for _, g := range s.system.gateways {
		v := &view{at: g, u: u}
		all = append(all, v)
		v.subscribe(s, map[string]any{"from": "now"})
		v.read(s, 0, tailEvents)
	}
	return all
}

// subscribe makes a connection of its own and subscribes; what is refused for the
// moment is asked again.
func (v *view) subscribe(s *suite, params map[string]any) *harness.Stream {
	s.t.Helper()
	network, address := v.at.server.Addr()
	c, err := harness.ConnectTap(harness.Context(s.t), network, address, token, 0, nil)
	if err != nil {
		s.t.Fatalf("%s takes no connection: %v", v.at.name, err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Errorf("%s broke the protocol: %v", v.at.name, err)
		}
	})
	var st *harness.Stream
	harness.Eventually(s.t, "a subscription at "+v.at.name, func() bool {
		s.site.Check()
		st, err = c.Subscribe(harness.Context(s.t), v.u.Session, params)
		var refused *harness.RPCError
		if err != nil && (!errors.As(err, &refused) || !refused.Data.Retryable) {
			s.t.Fatalf("%s: subscribe %v: %v", v.at.name, params, err)
		}
		return err == nil
	})
	v.clients, v.streams = append(v.clients, c), append(v.streams, st)
	return st
}

// read takes so many events from a stream, and returns them.
func (v *view) read(s *suite, stream, n int) (got []harness.Event) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*harness.Patience)
	defer cancel()
	for range n {
		e, err := v.streams[stream].Next(ctx)
		if err != nil {
			s.t.Fatalf("%s: the tail of %s: %v", v.at.name, v.u.Session, err)
		}
		got = append(got, e)
	}
	if stream == 0 {
		v.seen = append(v.seen, got...)
	}
	return got
}

// stays: whoever is at the tail keeps its connection, and has what came until then.
func (v *view) stays(s *suite) {
	s.t.Helper()
	if _, err := v.clients[0].Call(harness.Context(s.t), "ping", nil); err != nil {
		s.t.Fatalf("%s: a client at the tail of %s is not answered: %v", v.at.name, v.u.Session, err)
	}
	for {
		_, seq := v.streams[0].Cursor()
		last := v.seen[len(v.seen)-1].Seq
		if seq == last {
			return
		}
		v.read(s, 0, int(seq-last))
	}
}

// resumes: a client that comes back to where it was a moment ago gets what followed,
// as the other one has it.
func (v *view) resumes(s *suite) {
	s.t.Helper()
	want := v.seen[len(v.seen)-tailEvents+1:]
	st := v.subscribe(s, map[string]any{"after": want[0].Seq - 1, "epoch": want[0].Epoch})
	if how := st.Attached(); how.Mode != "replay" {
		s.t.Fatalf("broke I-J4: %s answers a resume of %s after %d by %+v", v.at.name, v.u.Session, want[0].Seq-1, how)
	}
	for i, e := range v.read(s, len(v.streams)-1, len(want)) {
		if e.Seq != want[i].Seq || !bytes.Equal(e.Body, want[i].Body) {
			s.t.Fatalf("broke I-J4: %s: event %d of %s is %s, before it was %s", v.at.name, e.Seq, v.u.Session, e.Body, want[i].Body)
		}
	}
}

// goesOn: both get what comes next, and the same.
func (v *view) goesOn(s *suite) {
	s.t.Helper()
	last := len(v.streams) - 1
	a, b := v.read(s, 0, tailEvents), v.read(s, last, tailEvents)
	for i := range a {
		if a[i].Seq != b[i].Seq || !bytes.Equal(a[i].Body, b[i].Body) {
			s.t.Fatalf("broke I-J4: %s tells two clients of %s different events %d and %d", v.at.name, v.u.Session, a[i].Seq, b[i].Seq)
		}
	}
	for _, c := range v.clients {
		if err := c.Close(); err != nil {
			s.t.Fatalf("%s broke the protocol: %v", v.at.name, err)
		}
	}
}
