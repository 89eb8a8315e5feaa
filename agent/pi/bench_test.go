package pi_test

import (
	"fmt"
	"testing"

	"rejoin/agent/pi"
	"rejoin/protocol"
)

// BenchmarkDelta folds a text that grows word by word, far over its bound.
func BenchmarkDelta(b *testing.B) {
	s := newState()
	head := `{"type":"message_update","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,` +
		`"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"assistantMessageEvent":{"type":"text_`
	fold := func(body string) {
		s.Seq++
		pi.Fold(s, &protocol.Event{Seq: s.Seq, Run: 1, Body: []byte(body)})
	}
	fold(`{"type":"agent_start"}`)
	fold(head + `start","contentIndex":0}}`)
	bodies := make([][]byte, 64)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `%sdelta","contentIndex":0,"delta":"w%d "}}`, head, i)
	}
	e := &protocol.Event{Run: 1}
	b.ReportAllocs()
	for b.Loop() {
		s.Seq++
		e.Seq, e.Body = s.Seq, bodies[s.Seq%64]
		pi.Fold(s, e)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkTrace folds whole conversations.
func BenchmarkTrace(b *testing.B) {
	for _, name := range []string{"long-2000", "old-long-2000", "queue", "prompt-tool"} {
		b.Run(name, func(b *testing.B) {
			all := steps(b, name)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				s := newState()
				for _, st := range all {
					apply(s, st)
				}
				n += len(all)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
