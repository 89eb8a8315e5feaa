package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// A client that stalls, wherever in a line that is, costs no buffer; when it reads
// on it gets every event once. Proves I-G2 and I-J5.
func TestStalledClientHoldsNoBuffer(t *testing.T) {
	for _, taken := range []int{0, 1, 500, 1091, 1092, 1093, 40_000} {
		t.Run(fmt.Sprint(taken), func(t *testing.T) {
			w := newFakeWorld("s", "quiet")
			const events = 300
			w.logs["s"].append(events, 1000)
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				l.result("subscribe", `{"sessionId":"quiet"}`)
				l.next() // synced
				l.result("subscribe", `{"sessionId":"s","after":0}`)
				var got bytes.Buffer
				got.WriteString(l.buffered())
				for i := range 3 {
					if _, err := io.CopyN(&got, l.out, int64(taken+i)); err != nil {
						t.Fatal(err)
					}
					<-time.After(2 * stallPatience)
					synctest.Wait()
					if n := s.buffers.out.Load(); n != 0 {
						t.Fatalf("%d buffers are held for a client that has stalled", n)
					}
					if at, most := cursorOf(s, 2), protocol.Seq(3*(taken+2)/1000+8); at > most {
						t.Fatalf("the cursor is at %d, want at most %d", at, most)
					}
				}
				w.logs["s"].append(1, 10)
				seq := protocol.Seq(0)
				lines := json.NewDecoder(io.MultiReader(&got, l.out))
				for seq <= events {
					var m struct {
						Method string
						Params struct{ Seq protocol.Seq }
					}
					if err := lines.Decode(&m); err != nil {
						t.Fatalf("after %d: %v", seq, err)
					}
					if m.Method != "event" {
						continue
					}
					if seq++; m.Params.Seq != seq {
						t.Fatalf("event %d comes, want %d", m.Params.Seq, seq)
					}
				}
				synctest.Wait()
				if n := s.Stats().EventsWritten; n != events+1 {
					t.Errorf("%d events are counted, want %d", n, events+1)
				}
			})
		})
	}
}

// cursorOf returns where the only connection's subscription id has got to.
func cursorOf(s *Server, id uint64) protocol.Seq {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.subs[id].cursor.Seq
	}
	return 0
}

// Of the large buffers a fixed number is out; who comes then gets a small one, and
// a large one again when there is one.
func TestGatherBuffers(t *testing.T) {
	var p buffers
	var held []*buffer
	for range protocol.GatherBuffersMax {
		b := p.get()
		if b.limit != bufferBytes {
			t.Fatalf("buffer %d has room for %d", len(held), b.limit)
		}
		held = append(held, b)
	}
	small := p.get()
	if small.limit != smallBytes {
		t.Fatalf("one too many has room for %d", small.limit)
	}
	p.put(held[0])
	if b := p.get(); b.limit != bufferBytes || len(b.b) != 0 {
		t.Errorf("room for %d, %d bytes in it, after one came back", b.limit, len(b.b))
	}
	p.put(small)
	if n := p.out.Load(); n != protocol.GatherBuffersMax {
		t.Errorf("%d are out", n)
	}
}
