package journal_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/logs"
)

// body250 is an event body of 250 bytes, about what agents stream.
var body250 = []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + strings.Repeat("the agent reads a file ", 7) + `"}}`)

var levels = []struct {
	name string
	d    journal.Durability
}{{"20ms", journal.Durability{Interval: 20 * time.Millisecond}}, {"always", journal.Durability{}}}

// BenchmarkAppend measures one session that waits for the acknowledgement of
// each burst.
func BenchmarkAppend(b *testing.B) {
	for _, l := range levels {
		for _, burst := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/burst=%d", l.name, burst), func(b *testing.B) {
				cfg := journal.Config{Dir: b.TempDir(), Durability: l.d, MaxBytes: 8 << 30}
				n := start(b, cfg)
				w := logs.Open(b, n, logs.Begin(logs.Of(n, "s1"), 1, logs.Epoch(0)))
				e := &protocol.Event{Source: protocol.SourceChild, Body: body250}
				ctx := b.Context()
				b.ReportAllocs()
				count := 0
				for b.Loop() {
					for range burst {
						if _, err := w.Append(e, nil); err != nil {
							b.Fatal(err)
						}
					}
					if err := w.Flush(ctx); err != nil {
						b.Fatal(err)
					}
					count += burst
				}
				b.ReportMetric(float64(count)/b.Elapsed().Seconds(), "events/s")
				closeWriter(b, w)
			})
		}
	}
}

// BenchmarkFlood measures one session that appends as fast as WaitRoom lets it.
func BenchmarkFlood(b *testing.B) {
	for _, l := range levels {
		b.Run(l.name, func(b *testing.B) { parallel(b, l.d, 1, 64) })
	}
}

// BenchmarkParallel measures 64 sessions, each waiting for its acknowledgement.
func BenchmarkParallel(b *testing.B) {
	for _, l := range levels {
		b.Run(l.name+"/sync", func(b *testing.B) { parallel(b, l.d, 64, 0) })
		b.Run(l.name+"/flood", func(b *testing.B) { parallel(b, l.d, 64, 64) })
	}
}

// parallel appends b.N events over so many sessions: each waits for every
// event (batch 0), or only for room before each batch.
func parallel(b *testing.B, d journal.Durability, sessions, batch int) {
	b.Helper()
	n := start(b, journal.Config{Dir: b.TempDir(), Durability: d, MaxBytes: 8 << 30})
	ws := make([]*journal.Writer, sessions)
	for i := range ws {
		ws[i] = logs.Open(b, n, logs.Begin(logs.Of(n, fmt.Sprintf("s%d", i)), 1, logs.Epoch(0)))
	}
	ctx := b.Context()
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, w := range ws {
		share := b.N / sessions
		if i < b.N%sessions {
			share++
		}
		wg.Go(func() {
			e := &protocol.Event{Source: protocol.SourceChild, Body: body250}
			for k := range share {
				var err error
				switch {
				case batch > 0 && k%batch == 0:
					err = w.WaitRoom(ctx)
				case batch == 0 && k > 0:
					err = w.Flush(ctx)
				}
				if err == nil {
					_, err = w.Append(e, nil)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
			if err := w.Flush(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	for _, w := range ws {
		closeWriter(b, w)
	}
}
