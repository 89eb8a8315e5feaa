package snapshot_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"rejoin/agent/pi"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

var piFolds = snapshot.Folds{"pi": pi.Adapter{}}

const piStart = `{"type":"session_start","agent":"pi","adapter":"pi","pid":1,"run":1,"title":"t"}`

// piEvents yields what pi prints of one turn after another: a text of 200
// deltas each.
func piEvents(n int, yield func(body []byte)) {
	head := `{"type":"message_update","assistantMessageEvent":{"type":"text_`
	for i := 0; i < n; {
		put := func(body []byte) {
			if i < n {
				yield(body)
				i++
			}
		}
		turn := i
		put([]byte(`{"type":"agent_start"}`))
		put([]byte(`{"type":"turn_start"}`))
		put([]byte(`{"type":"message_start","message":{"role":"assistant","content":[]}}`))
		put([]byte(head + `start","contentIndex":0}}`))
		text := ""
		for k := range 200 {
			word := fmt.Sprintf("word %d of the answer ", turn+k)
			text += word
			put(fmt.Appendf(nil, `%sdelta","contentIndex":0,"delta":%q,"pad":"%080d"}}`, head, word, k))
		}
		put(fmt.Appendf(nil, `%send","contentIndex":0,"content":%q}}`, head, text))
		put(fmt.Appendf(nil, `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":%q}],"stopReason":"stop"}}`, text))
		put([]byte(`{"type":"turn_end"}`))
		put([]byte(`{"type":"agent_end"}`))
	}
}

// fill writes a session of n events as its owner would, up to its end.
func fill(tb testing.TB, node *journal.Node, id string, n int) journal.Log {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	b := newBook(tb, node, id)
	b.ctx = ctx
	b.open(protocol.NewEpoch(time.Now()), 0, piStart)
	st := snapshot.NewStore(node, piFolds, nil, snapshot.StoreConfig{})
	k := keep(b, st, pi.Adapter{}, snapshot.Retention{}, snapshot.NewHistory(id))
	k.apply(&b.events[0])
	w, epoch := b.w, b.w.Epoch()
	add := func(source protocol.Source, body []byte) {
		e := &protocol.Event{Seq: w.Head() + 1, TS: time.Now().UnixMilli(), Run: 1, Source: source, Body: body}
		if e.Seq%64 == 0 {
			if err := w.WaitRoom(ctx); err != nil {
				tb.Fatal(err)
			}
		}
		snapshot.Apply(k.adapter, k.state, epoch, e)
		k.ledger.Apply(e)
		if _, err := w.Append(e, nil); err != nil {
			tb.Fatal(err)
		}
		k.keeper.Applied(k.state, k.ledger, e)
	}
	for i := range n - 2 { // two events make an item, so that all sizes fill a state
		if i%2 == 0 {
			add(protocol.SourceChild, fmt.Appendf(nil, `{"type":"tool_execution_start","toolCallId":"c%d","toolName":"bash","args":{"command":"ls %d"}}`, i, i))
		} else {
			add(protocol.SourceChild, fmt.Appendf(nil, `{"type":"tool_execution_end","toolCallId":"c%d","toolName":"bash","result":{"content":[{"type":"text","text":"file %0300d"}]},"isError":false}`, i-1, i))
		}
	}
	add(protocol.SourceBroker, []byte(sessionEnd))
	k.finish()
	return b.log
}

// TestJoinCost prints what joining by snapshot costs in sessions of 1k, 100k and
// (with SPEED=1) 1M events, and what states of the past cost. It fails only
// where a figure is out by far: the machine may be busy.
func TestJoinCost(t *testing.T) {
	sizes := []int{1_000, 30_000, 100_000}
	if os.Getenv("SPEED") == "1" {
		sizes = []int{1_000, 100_000, 1_000_000}
	}
	node := newNode(t)
	ctx := t.Context()
	var cold []time.Duration
	for _, n := range sizes {
		began := time.Now()
		l := fill(t, node, fmt.Sprintf("s%d", n), n)
		wrote := time.Since(began)
		var took []time.Duration
		for range 15 {
			r := snapshot.NewReader(node, piFolds, 0)
			began := time.Now()
			s, err := r.Latest(ctx, l, 0)
			took = append(took, time.Since(began))
			if err != nil || s.Seq != protocol.Seq(n) {
				t.Fatalf("seq %d, %v", s.Seq, err)
			}
		}
		slices.Sort(took)
		cold = append(cold, took[0])
		r := snapshot.NewReader(node, piFolds, 0)
		rnd := rand.New(rand.NewPCG(1, 2))
		var first, again time.Duration
		for range 10 {
			seq := protocol.Seq(rnd.IntN(n))
			began := time.Now()
			if _, err := r.At(ctx, l, seq); err != nil {
				t.Fatal(err)
			}
			first = max(first, time.Since(began))
			began = time.Now()
			if _, err := r.At(ctx, l, seq); err != nil {
				t.Fatal(err)
			}
			again = max(again, time.Since(began))
		}
		t.Logf("%8d events: written at %.0f/s with checkpoints; join %v, median %v (nothing in memory); state of the past %v at most, again %v",
			n, float64(n)/wrote.Seconds(), took[0].Round(time.Microsecond), took[len(took)/2].Round(time.Microsecond), first.Round(time.Microsecond), again.Round(time.Microsecond))
		if first > 20*time.Second || again > time.Second {
			t.Errorf("a state of the past costs %v, again %v", first, again)
		}
	}
	if lo, hi := slices.Min(cold), slices.Max(cold); hi > 4*lo {
		t.Errorf("joins cost from %v to %v", lo, hi)
	}
}

// BenchmarkFold folds what pi prints.
func BenchmarkFold(b *testing.B) {
	var bodies [][]byte
	piEvents(50_000, func(body []byte) { bodies = append(bodies, body) })
	s := snapshot.New("s")
	snapshot.Apply(pi.Adapter{}, s, "", &protocol.Event{Seq: 1, Run: 1, Source: protocol.SourceBroker, Body: []byte(piStart)})
	e := &protocol.Event{Run: 1}
	b.ReportAllocs()
	for b.Loop() {
		e.Seq, e.Body = s.Seq+1, bodies[int(s.Seq)%len(bodies)]
		snapshot.Apply(pi.Adapter{}, s, "", e)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
