package lines_test

import (
	"fmt"
	"strings"
	"testing"

	"rejoin/agent/lines"
	"rejoin/protocol"
)

func fold(s *protocol.State, source protocol.Source, body string) {
	s.Seq++
	lines.Adapter{}.Fold(s, &protocol.Event{Seq: s.Seq, Source: source, Body: []byte(body)})
}

func TestFold(t *testing.T) {
	s := &protocol.State{}
	fold(s, protocol.SourceBroker, `{"type":"output","text":"one"}`)
	fold(s, protocol.SourceBroker, `{"type":"output","text":"\"two\""}`)
	fold(s, protocol.SourceChild, `{"type":"output","text":"not rejoin's"}`)
	fold(s, protocol.SourceBroker, `{"type":"stderr","text":"not output"}`)
	fold(s, protocol.SourceBroker, `{"type":"error","error":"line exceeds limit","preview":"x"}`)
	fold(s, protocol.SourceBroker, `{"type":"output","text":"three"}`)
	want := []string{
		"output done one\n\"two\"\n 1-5", "notice error line exceeds limit: x 5-5", "output streaming three\n 6-6",
	}
	for i, it := range s.Items {
		if got := fmt.Sprintf("%s %s %s %d-%d", it.Kind, it.Status, it.Text, it.FirstSeq, it.LastSeq); i >= len(want) || got != want[i] {
			t.Errorf("item %d: %q", i, got)
		}
	}
	if len(s.Items) != len(want) {
		t.Errorf("%d items", len(s.Items))
	}
	lines.Adapter{}.Settle(s, &protocol.Event{Seq: 7})
	if it := s.Items[2]; it.Status != protocol.ItemDone || s.Extra != nil {
		t.Errorf("settled: %+v, %+v", it, s.Extra)
	}
}

// TestFoldLong: no line is cut out of the middle of an item; a new one begins.
func TestFoldLong(t *testing.T) {
	s := &protocol.State{}
	for i := range 3000 {
		fold(s, protocol.SourceBroker, fmt.Sprintf(`{"type":"output","text":"%d %s"}`, i, strings.Repeat("x", 95)))
	}
	var all strings.Builder
	for i, it := range s.Items {
		all.WriteString(it.Text)
		if it.Truncated != 0 || (it.Status == protocol.ItemStreaming) != (i == len(s.Items)-1) || len(it.Text) > protocol.ItemTextBytes {
			t.Errorf("item %d: %s, %d bytes, %d left out", i, it.Status, len(it.Text), it.Truncated)
		}
	}
	if got := strings.Count(all.String(), "\n"); got != 3000 || len(s.Items) < 5 {
		t.Errorf("%d lines in %d items", got, len(s.Items))
	}
	fold(s, protocol.SourceBroker, `{"type":"output","text":"`+strings.Repeat("y", 100_000)+`"}`)
	if it := s.Items[len(s.Items)-1]; it.Truncated == 0 || it.Truncated+uint64(len(it.Text)) != 100_001 {
		t.Errorf("a long line: %d bytes and %d left out", len(it.Text), it.Truncated)
	}
}
