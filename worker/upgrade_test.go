package worker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// A run that goes on under another fold than its checkpoints says so first, in
// the record that also says that it was resumed.
func TestResumeRecordsAnUpgrade(t *testing.T) {
	for _, upgraded := range []bool{false, true} {
		s, _, _ := newFakeSession(t, jsonl.Adapter{})
		var got []string
		stop := errors.New("stop")
		s.w.places.load = func(context.Context, journal.Log, protocol.Seq) (*snapshot.History, error) {
			return &snapshot.History{State: snapshot.New("s"), Ledger: snapshot.NewLedger()}, nil
		}
		s.w.places.upgrade = func(*snapshot.History) (protocol.FoldUpgraded, bool) {
			return protocol.FoldUpgraded{Type: protocol.TypeFoldUpgraded, Adapter: "jsonl", From: 1, To: 2}, upgraded
		}
		s.w.places.open = func(ctx context.Context, cfg journal.WriterConfig) (appender, error) {
			events, err := cfg.First(ctx, journal.Tail{Epoch: testEpoch, Run: 1, Head: 7}, 8)
			if err != nil {
				return nil, err
			}
			for i, e := range events {
				if e.Seq != protocol.Seq(8+i) {
					t.Errorf("event %d has seq %d", i, e.Seq)
				}
				p, err := protocol.ParseParams(e.Body)
				if err != nil {
					return nil, err
				}
				name, _, err := p.String("type")
				if err != nil {
					return nil, err
				}
				got = append(got, name)
			}
			return nil, stop
		}
		if err := s.resume(t.Context()); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		want := []string{protocol.TypeSessionResumed}
		if upgraded {
			want = []string{protocol.TypeFoldUpgraded, protocol.TypeSessionResumed}
		}
		if !slices.Equal(got, want) {
			t.Errorf("upgraded %v: the first record has %v", upgraded, got)
		}
	}
}
