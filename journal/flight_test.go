package journal

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// flightOf returns a flight over the bus of a node, whose other end the test holds:
// what it is asked to store comes from the channel.
func flightOf(t *testing.T) (*flight, *reach, <-chan *nats.Msg) {
	t.Helper()
	ctx := testContext(t)
	n := startNode(ctx, t)
	asked := make(chan *nats.Msg, 8)
	if _, err := n.bus.ChanSubscribe("store.>", asked); err != nil {
		t.Fatal(err)
	}
	r := &reach{leave: func() {}}
	r.begin(ctx)
	f, err := n.flights.take(n.bus)
	if err != nil {
		t.Fatal(err)
	}
	return f, r, asked
}

func answer(t *testing.T, m *nats.Msg, with string) {
	t.Helper()
	if err := m.Respond([]byte(with)); err != nil {
		t.Error(err)
	}
}

// The answer to an attempt that was given up is not that to the next one.
func TestFlightLateAnswer(t *testing.T) {
	f, r, asked := flightOf(t)
	ctx := testContext(t)
	if _, err := f.store(ctx, r, time.Millisecond, "store.a", []byte("1"), 0); !errors.Is(err, errNoAck) {
		t.Fatalf("without an answer: %v", err)
	}
	if r.silent.Load() == nil {
		t.Error("no silence is noted")
	}
	first := <-asked
	go func() {
		second := <-asked
		answer(t, first, `{"stream":"S","seq":7}`)
		answer(t, second, `{"stream":"S","seq":9}`)
	}()
	pos, err := f.store(ctx, r, time.Minute, "store.a", []byte("2"), 7)
	if err != nil || pos != 9 {
		t.Errorf("position %d, %v, want 9", pos, err)
	}
	if r.silent.Load() != nil {
		t.Error("an answer did not end the silence")
	}
}

// Whatever ends an attempt says so at once, and the flight can be used again.
func TestFlightEnds(t *testing.T) {
	f, r, asked := flightOf(t)
	ctx := testContext(t)
	if _, err := f.store(ctx, r, time.Minute, "nobody", []byte("1"), 0); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody there: %v", err)
	}
	gone, end := context.WithCancel(ctx)
	go func() {
		<-asked
		end()
	}()
	if _, err := f.store(gone, r, time.Minute, "store.a", []byte("1"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended by the caller: %v", err)
	}
	go func() {
		<-asked
		r.lost()
	}()
	if _, err := f.store(ctx, r, time.Minute, "store.a", []byte("1"), 0); !errors.Is(err, errAway) {
		t.Errorf("the server was lost: %v", err)
	}
	r.begin(ctx)
	go func() {
		m := <-asked
		if m.Header.Get(headerExpected) != "3" || string(m.Data) != "1" {
			t.Errorf("asked to store %q behind %q", m.Data, m.Header.Get(headerExpected))
		}
		answer(t, m, `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"},"stream":"S","seq":0}`)
	}()
	if _, err := f.store(ctx, r, time.Minute, "store.a", []byte("1"), 3); !isWrongLast(err) {
		t.Errorf("refused: %v", err)
	}
}

// Flights are used again: there are never more than are in flight at once.
func TestFlightsBounded(t *testing.T) {
	ctx := testContext(t)
	n := startNode(ctx, t)
	for run := range 3 * turnsPerShard {
		cfg := testConfig(protocol.Run(run + 1))
		if run > 0 {
			cfg.Epoch = ""
		}
		w, err := n.OpenWriter(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := w.Append(&protocol.Event{Source: protocol.SourceChild, Body: []byte(`{}`)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if held := len(n.flights.free); held == 0 || held > turnsPerShard {
		t.Errorf("%d flights, want 1 to %d", held, turnsPerShard)
	}
}

// plainAck takes nothing that a decoder of JSON would read differently.
func FuzzPlainAck(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"S","seq":7}`, `{"stream":"S","seq":7,"duplicate":true}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":-1}`, `{"stream":"S","seq":+1}`,
		`{"stream":"S","seq":18446744073709551615}`, `{"stream":"S","seq":18446744073709551616}`, `{"stream":"a\\","seq":7}`, `{"stream":"S","seq":1_0}`,
		`{"error":{"code":400},"stream":"S","seq":7}`, `{"stream":"S","seq":}`, ``, `{"stream":"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pos, ok := plainAck(data)
		if !ok {
			return
		}
		var ack struct {
			Error  json.RawMessage `json:"error"`
			Stream string          `json:"stream"`
			Seq    uint64          `json:"seq"`
		}
		if err := json.Unmarshal(data, &ack); err != nil || ack.Error != nil || ack.Seq != pos || pos == 0 {
			t.Errorf("%q is read as %d, a decoder says %+v, %v", data, pos, ack, err)
		}
	})
}

func BenchmarkStored(b *testing.B) {
	ack := []byte(`{"stream":"RJ_00","seq":1234567}`)
	b.ReportAllocs()
	for b.Loop() {
		if pos, err := stored(ack); pos != 1234567 || err != nil {
			b.Fatal(pos, err)
		}
	}
}
