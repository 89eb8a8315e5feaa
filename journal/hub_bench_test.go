package journal

import (
	"fmt"
	"testing"

	"rejoin/protocol"
)

// BenchmarkPull measures fan-out: each operation is one record fed and pulled
// by every subscriber, as a connection's writer does it.
func BenchmarkPull(b *testing.B) {
	for _, events := range []int{1, 16} {
		for _, subs := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("events=%d/subs=%d", events, subs), func(b *testing.B) {
				s := newSteps(b, hubBytes)
				s.watch()
				recs := []*Record{s.log.append(events, 250)}
				for len(recs) < 4096 {
					recs = append(recs, s.log.append(events, 250))
				}
				s.live(recs[0])
				cursors := make([]protocol.Cursor, subs)
				for i := range cursors {
					cursors[i] = protocol.Cursor{Epoch: s.w.epoch, Seq: recs[0].Last()}
				}
				prefix := []byte(`{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":7,"sessionId":"01jdz","`)
				buf := make([]byte, 0, 64<<10)
				next := 1
				deliveries := 0
				b.ReportAllocs()
				for b.Loop() {
					if next == len(recs) { // begin anew, outside what is measured per delivery
						b.StopTimer()
						s.w.restart(recs[0], 1)
						for i := range cursors {
							cursors[i].Seq = recs[0].Last()
						}
						next = 1
						b.StartTimer()
					}
					s.live(recs[next])
					next++
					for i := range cursors {
						out, last, _ := s.w.Pull(buf[:0], prefix, cursors[i], 0, 64<<10, 0)
						if last == cursors[i].Seq || len(out) == 0 {
							b.Fatal("nothing pulled")
						}
						cursors[i].Seq = last
					}
					deliveries += subs * events
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(deliveries), "ns/delivery")
			})
		}
	}
}

// BenchmarkReceive measures the feeder's work per live message: check, decode, apply.
func BenchmarkReceive(b *testing.B) {
	for _, events := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("events=%d", events), func(b *testing.B) {
			s := newSteps(b, hubBytes)
			w := s.watch()
			var prev *Record
			type msg struct {
				data []byte
				rec  *Record
			}
			msgs := make([]msg, 1024)
			seq := protocol.Seq(1)
			bytes := 0
			for i := range msgs {
				var body []byte
				for range events {
					body = append(fmt.Appendf(body, `"seq":%d,"ts":1764500000000,"run":1,"source":"child","event":{"text":"%0200d"}}}`, seq, seq), '\n')
					seq++
				}
				h := header{epoch: testEpoch(1), run: 1, base: seq - protocol.Seq(events), count: uint32(events), part: 1, parts: 1}
				if prev != nil {
					h.prev = prev.sum
				}
				data := appendRecord(nil, &h, body)
				rec, err := decodeStored(data, uint64(i+1))
				if err != nil {
					b.Fatal(err)
				}
				msgs[i], prev = msg{data, rec}, rec
				bytes += len(body)
			}
			s.hub.receive(w.subject, msgs[0].data, 1, 0)
			next := 1
			b.SetBytes(int64(bytes / len(msgs)))
			b.ReportAllocs()
			for b.Loop() {
				if next == len(msgs) {
					w.restart(msgs[0].rec, 1)
					next = 1
				}
				if s.hub.receive(w.subject, msgs[next].data, uint64(next+1), uint64(next)) == nil {
					b.Fatal("not applied")
				}
				next++
			}
			b.ReportMetric(float64(b.N*events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkWake measures telling 1,000 idle subscribers.
func BenchmarkWake(b *testing.B) {
	s := newSteps(b, hubBytes)
	w := s.watch()
	for range 1000 {
		w.Add(make(bell, 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		w.wakers.wake()
	}
}

// BenchmarkIndexNote measures what each acknowledgement pays for the index.
func BenchmarkIndexNote(b *testing.B) {
	x := newIndex()
	l := Log{Key: protocol.Key{Workspace: "w", Session: "s"}}
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		x.note(l, protocol.Seq(n), n*3)
	}
}
