package journal

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"rejoin/protocol"
)

// BenchmarkCold measures the first reads after a start of a session of
// 1,000,000 one-event records among 1,000 other sessions: the last 100 events,
// events from its middle, and a watch. The records are published as a writer
// would, but many at a time. REJOIN_COLD_EVENTS changes the number.
func BenchmarkCold(b *testing.B) {
	events := 1_000_000
	if v := os.Getenv("REJOIN_COLD_EVENTS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			b.Fatal(err)
		}
		events = n
	}
	ctx := b.Context()
	cfg := Config{Dir: b.TempDir(), Shards: 1, Durability: Durability{Interval: time.Second}, MaxBytes: 16 << 30}
	l := Log{Key: protocol.Key{Workspace: "w", Session: "long"}}
	n := coldStart(b, cfg)
	coldFill(b, n, l, events)
	if err := n.Close(ctx); err != nil {
		b.Fatal(err)
	}
	var gets uint64
	ops := []struct {
		name string
		do   func(n *Node) error
	}{
		{"last100", func(n *Node) error {
			recs, err := n.ReadBefore(ctx, l, protocol.Seq(events+1), 100, 1<<20)
			if err == nil && len(recs) != 100 {
				err = fmt.Errorf("%d records", len(recs))
			}
			return err
		}},
		{"middle100", func(n *Node) error {
			recs, err := n.Read(ctx, l, protocol.Seq(events/3), 64<<10)
			if err == nil && (len(recs) < 90 || recs[0].Base() != protocol.Seq(events/3+1)) {
				err = fmt.Errorf("%d records", len(recs))
			}
			return err
		}},
		{"watch", func(n *Node) error {
			w, err := n.Hub().Watch(ctx, l)
			if err == nil {
				w.Release()
			}
			return err
		}},
	}
	for _, op := range ops {
		b.Run(op.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				n := coldStart(b, cfg)
				b.StartTimer()
				err := op.do(n)
				b.StopTimer()
				gets = n.rd.gets.Load()
				if err != nil {
					b.Fatal(err)
				}
				if err := n.Close(ctx); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(gets), "gets")
		})
	}
}

func coldStart(b *testing.B, cfg Config) *Node {
	b.Helper()
	n, err := Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// coldFill stores the session's records, each after one of 1,000 others.
func coldFill(b *testing.B, n *Node, l Log, events int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	js, err := jetstream.New(n.pub, jetstream.WithPublishAsyncMaxPending(1024))
	if err != nil {
		b.Fatal(err)
	}
	type tip struct {
		pos  uint64
		seq  protocol.Seq
		prev chainHash
	}
	tips := make(map[string]tip)
	pos := uint64(0)
	put := func(session string) {
		s := Log{Key: protocol.Key{Workspace: "w", Session: session}}
		t := tips[session]
		pos++
		body := fmt.Appendf(nil, `"seq":%d,"ts":1764500000000,"run":1,"source":"child","event":{"text":"%0180d"}}}`+"\n", t.seq+1, t.seq+1)
		h := header{epoch: testEpoch(1), run: 1, base: t.seq + 1, count: 1, part: 1, parts: 1, prev: t.prev}
		data := appendRecord(nil, &h, body)
		msg := &nats.Msg{Subject: subjectOf(s), Data: data, Header: nats.Header{headerExpected: {strconv.FormatUint(t.pos, 10)}}}
		if _, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
		tips[session] = tip{pos, t.seq + 1, hashRecord(data)}
	}
	for i := range events {
		put(l.Key.Session)
		put("other" + strconv.Itoa(i*7919%1000))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		b.Fatal(ctx.Err())
	}
	tail, err := n.Tail(ctx, l)
	if err != nil || tail.Head != protocol.Seq(events) {
		b.Fatalf("Tail = %+v, %v", tail, err)
	}
}
