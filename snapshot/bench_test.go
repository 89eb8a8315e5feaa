package snapshot

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"rejoin/journal"
)

// BenchmarkCheckpoint is what a checkpoint of a state of 1 MiB costs: under the
// session's lock, and then in the keeper's goroutine and at a reader's.
func BenchmarkCheckpoint(b *testing.B) {
	s := busyState(rand.New(rand.NewPCG(1, 2)), 500, 2000)
	g := NewLedger()
	d := newDraft(testFolds, s, g, 0, 0, nil)
	if len(d.state) < 1<<20*9/10 {
		b.Fatalf("%d bytes", len(d.state))
	}
	d.hash, d.place = sha256.Sum256(d.state), journal.Place{Base: 1, Last: 9}
	blob, err := encodeCheckpoint(&d.header, d.state, &d.ledger)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("draft", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(d.state)))
		for b.Loop() {
			newDraft(testFolds, s, g, 0, 0, nil)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(d.state)))
		for b.Loop() {
			if _, err := encodeCheckpoint(&d.header, d.state, &d.ledger); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(blob)), "stored-bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(d.state)))
		for b.Loop() {
			if _, err := decodeCheckpoint(blob); err != nil {
				b.Fatal(err)
			}
		}
	})
}
