package worker_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// Proves I-W2: every line, in order, once, and the end after the last one.
func TestOutputIsCompleteAndInOrder(t *testing.T) {
	harness.Covers(t, "I-W2")
	const n = 20000
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "count", strconv.Itoa(n))
	end := s.awaitEnd()
	if got := describe(end); got != "exited 0 null" {
		t.Errorf("end: %s", got)
	}
	events := s.events()
	if len(events) != n+2 || typeOf(events[0]) != protocol.TypeSessionStart {
		t.Fatalf("%d events, the first is %s", len(events), events[0].Body)
	}
	for i, e := range events[1 : n+1] {
		if want := fmt.Sprintf(`{"n":%d}`, i+1); e.Source != protocol.SourceChild || string(e.Body) != want || e.Run != 1 {
			t.Fatalf("event %d is %s, want %s", e.Seq, e.Body, want)
		}
	}
	rec := s.record()
	if rec.Status != protocol.StatusEnded || rec.PID != 0 || rec.Owner != "" || rec.Head != n+2 || rec.Exit == nil || *rec.Exit.Code != 0 {
		t.Errorf("registry: %+v", rec)
	}
}

func TestOddOutput(t *testing.T) {
	bad := "{\"t\":\"\xff\xfe\"}"
	tests := []struct {
		name, adapter, out string
		want               []string
	}{
		{"crlf, bom, blank lines", "jsonl", "\xef\xbb\xbf{\"n\":1}\r\n\r\n\n {\"n\":2} \n[1]\nnull", []string{`{"n":1}`, ` {"n":2} `, `[1]`, `null`}},
		{"line separators", "jsonl", "{\"t\":\"a\u2028b\u2029c\"}\n", []string{"{\"t\":\"a\u2028b\u2029c\"}"}},
		{"invalid utf-8", "jsonl", bad + "\n1\n", []string{
			`{"type":"error","error":"invalid utf-8","base64":"` + base64.StdEncoding.EncodeToString([]byte(bad)) + `"}`, `1`,
		}},
		{"text for lines", "lines", "hello <b>\n\n{\"a\":1}\n", []string{
			`{"type":"output","text":"hello <b>"}`, `{"type":"output","text":"{\"a\":1}"}`,
		}},
		{"no line feed at the end", "lines", "last", []string{`{"type":"output","text":"last"}`}},
	}
	h := newHost(t, hostConfig{})
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := h.start(fmt.Sprintf("s%d", i), tt.adapter, "print", b64(tt.out), "3")
			end := s.awaitEnd()
			if got := describe(end); got != "exited 3 null" {
				t.Errorf("end: %s", got)
			}
			var got []string
			events := s.events()
			for _, e := range events[1 : len(events)-1] {
				if string(e.Body) == `{"type":"output","text":""}` {
					continue
				}
				got = append(got, string(e.Body))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestLineOverTheLimit(t *testing.T) {
	const limit = 64 << 10
	h := newHost(t, hostConfig{eventBytesMax: limit})
	for _, tt := range []struct {
		bytes int
		over  bool
	}{{limit, false}, {limit + 1, true}, {40 * limit, true}} {
		t.Run(strconv.Itoa(tt.bytes), func(t *testing.T) {
			s := h.start(fmt.Sprintf("s%d", tt.bytes), "lines", "long", strconv.Itoa(tt.bytes))
			s.awaitEnd()
			events := s.events()
			if len(events) != 4 {
				t.Fatalf("events: %v", types(events))
			}
			var body struct {
				Type, Error, Preview, Text string
				Bytes                      int
			}
			if err := json.Unmarshal(events[1].Body, &body); err != nil {
				t.Fatal(err)
			}
			if tt.over && (body.Error != "line exceeds limit" || body.Bytes != tt.bytes || len(body.Preview) != protocol.EventPreviewBytes) {
				t.Errorf("got %s", events[1].Body)
			}
			if !tt.over && len(body.Text) != tt.bytes {
				t.Errorf("text of %d bytes", len(body.Text))
			}
			if string(events[2].Body) != `{"type":"output","text":"{\"after\":true}"}` {
				t.Errorf("then %s", events[2].Body)
			}
		})
	}
}

func TestStderrIsDrainedAndKeptAside(t *testing.T) {
	h := newHost(t, hostConfig{})
	s := h.start("s", "jsonl", "stderr")
	s.awaitChild(`{"ready":true}`)
	if r := s.stop(0); r.Info == nil {
		t.Fatalf("stop: %+v", r)
	}
	s.awaitEnd()
	for _, e := range s.events() {
		if strings.Contains(string(e.Body), "EEEE") {
			t.Errorf("stderr in the log: event %d", e.Seq)
		}
	}
	for _, run := range []protocol.Run{0, 1} {
		text, err := worker.StderrTail(h.dir, s.key, run)
		if err != nil || len(text) != protocol.StderrTailBytes || !strings.HasSuffix(text, "EEEthe end\n") {
			t.Errorf("tail of run %d: %d bytes, %v", run, len(text), err)
		}
	}
	if exit := s.record().Exit; exit == nil || len(exit.StderrTail) != protocol.StderrExitBytes {
		t.Errorf("exit: %+v", exit)
	}
	if err := worker.RemoveFiles(h.dir, s.key); err != nil {
		t.Fatal(err)
	}
	if text, err := worker.StderrTail(h.dir, s.key, 0); err != nil || text != "" {
		t.Errorf("after removal: %q, %v", text, err)
	}
}

func TestStderrEvents(t *testing.T) {
	h := newHost(t, hostConfig{})
	rec := h.record("s", "jsonl", []string{"sh", "-c", `printf 'one\ntwo \377\nlast' >&2`})
	rec.Stderr = "event"
	s, r := h.launch(protocol.OpStart, rec)
	if r.Info == nil {
		t.Fatalf("start: %+v", r)
	}
	s.awaitEnd()
	var got []string
	for _, e := range s.events() {
		if typeOf(e) == protocol.TypeStderr {
			got = append(got, string(e.Body))
		}
	}
	want := []string{`{"type":"stderr","text":"one"}`, `{"type":"stderr","text":"two ` + "\uFFFD" + `"}`, `{"type":"stderr","text":"last"}`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("REJOIN_TOKEN", "secret")
	t.Setenv("REJOIN_SESSION", "other/one")
	t.Setenv("RJ_TEST", "server")
	h := newHost(t, hostConfig{})
	rec := h.record("s", "jsonl", harness.ChildArgv("env"))
	rec.Env = []string{"RJ_TEST=record", "REJOIN_X=1"}
	s, r := h.launch(protocol.OpStart, rec)
	if r.Info == nil {
		t.Fatalf("start: %+v", r)
	}
	instance := fmt.Sprintf("%q", "REJOIN_INSTANCE="+h.node.Instance())
	s.awaitChild(instance)
	var got []string
	for _, e := range s.events() {
		if b := string(e.Body); strings.HasPrefix(b, `"REJOIN_`) || strings.HasPrefix(b, `"RJ_TEST`) || strings.HasPrefix(b, `"PWD=`) {
			got = append(got, b)
		}
	}
	slices.Sort(got)
	want := []string{fmt.Sprintf("%q", "PWD="+h.dir), instance, `"REJOIN_RUN=1"`, `"REJOIN_SESSION=default/s"`, `"RJ_TEST=record"`}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
