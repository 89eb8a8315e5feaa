package full_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// world is a server with sessions that print, an observer of each, and what was
// acknowledged.
type world struct {
	t        *testing.T
	server   *harness.Server
	c        *harness.Client
	dir      string // of the children's books
	restart  string // policy of sessions to come; empty: the default
	sessions []*session
}

// session is one session under test.
type session struct {
	id  string
	pid int

	mu      sync.Mutex
	lines   [][]byte          // of the child, as the observer got them
	admits  map[string]uint64 // command id → seq, as the observer got them
	ended   bool
	killed  bool              // its child may have been killed with a batch of lines half printed
	acked   map[string]uint64 // command id → seq, as it was answered
	unknown []string          // command ids without an answer
	count   int               // of commands so far
}

type journalStatus struct {
	State      string `json:"state"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail"`
	UsedBytes  int64  `json:"usedBytes"`
	QuotaBytes int64  `json:"quotaBytes"`
	FreeBytes  int64  `json:"freeBytes"`
	Shards     []struct {
		State      string `json:"state"`
		UsedBytes  int64  `json:"usedBytes"`
		QuotaBytes int64  `json:"quotaBytes"`
	} `json:"shards"`
}

type sessionInfo struct {
	State   string `json:"state"`
	Status  string `json:"status"`
	PID     *int   `json:"pid"`
	Run     uint64 `json:"run"`
	Head    uint64 `json:"head"`
	Blocked string `json:"blocked"`

	Restarting bool `json:"restarting"`
}

func newWorld(t *testing.T, o harness.Options) *world {
	t.Helper()
	w := &world{t: t, server: harness.Start(t, o), dir: t.TempDir()}
	w.c = harness.Dial(t, w.server)
	return w
}

// start starts a session that prints up to limit lines, and observes it.
func (w *world) start(pace string, limit int) *session {
	w.t.Helper()
	return w.startAs("", pace, limit)
}

// startAs is start with an id.
func (w *world) startAs(id, pace string, limit int) *session {
	w.t.Helper()
	params := map[string]any{"argv": harness.ChildArgv("printer", w.dir, pace, fmt.Sprint(limit)), "adapter": "jsonl"}
	if w.restart != "" {
		params["restart"] = w.restart
	}
	if id != "" {
		params["sessionId"] = id
	}
	r := harness.Do[struct {
		SessionID string      `json:"sessionId"`
		Session   sessionInfo `json:"session"`
	}](w.t, w.c, "start_session", params)
	s := &session{id: r.SessionID, pid: *r.Session.PID, admits: map[string]uint64{}, acked: map[string]uint64{}}
	_, err := w.c.SubscribeFunc(harness.Context(w.t), s.id, map[string]any{"from": "start"}, s.take)
	if err != nil {
		w.t.Fatal(err)
	}
	w.sessions = append(w.sessions, s)
	return s
}

// take is the observer; the stream has checked that events are dense.
func (s *session) take(e harness.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Source == "child":
		s.lines = append(s.lines, bytes.Clone(e.Body))
	case e.Type() == "command":
		s.admits[e.CommandID] = e.Seq
	case e.Type() == "session_end":
		s.ended = true
	}
}

func (s *session) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

func (w *world) status() journalStatus {
	w.t.Helper()
	return harness.Do[struct {
		Journal journalStatus `json:"journal"`
	}](w.t, w.c, "server_status", nil).Journal
}

func (w *world) info(s *session) sessionInfo {
	w.t.Helper()
	return harness.Do[sessionInfo](w.t, w.c, "get_session", map[string]any{"sessionId": s.id})
}

// command sends a new order and books how it was answered.
func (w *world) command(s *session) error {
	w.t.Helper()
	s.count++
	return w.repeat(s, fmt.Sprintf("%s-%d", s.id, s.count))
}

// repeat sends an order under that id.
func (w *world) repeat(s *session, id string) error {
	w.t.Helper()
	var r struct {
		Seq uint64 `json:"seq"`
	}
	raw, err := w.c.Call(harness.Context(w.t), "send", map[string]any{
		"sessionId": s.id, "commandId": id, "command": order{Type: "echo", K: id},
	})
	var refused *harness.RPCError
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &r); err != nil {
			w.t.Fatal(err)
		}
		s.acked[id] = r.Seq
	case errors.As(err, &refused) && refused.Data.Reason == "outcome_unknown":
		s.unknown = append(s.unknown, id)
	}
	return err
}

// refusedAs reports whether err is the refusal of a journal that takes nothing
// new, and fails the test when it is another error.
func (w *world) refusedAs(err error, word string) bool {
	w.t.Helper()
	var refused *harness.RPCError
	switch {
	case err == nil:
		return false
	case !errors.As(err, &refused) || refused.Code != -32004 || !refused.Data.Retryable:
		w.t.Fatalf("refused with %v", err)
	case refused.Data.Reason == "journal_unavailable" && strings.Contains(refused.Message, word):
		return true
	}
	return false // still on its way when the journal went
}

// printed reads the child's book.
func (w *world) printed(s *session) [][]byte {
	w.t.Helper()
	b, err := os.ReadFile(bookPath(w.dir, s.id))
	if err != nil {
		w.t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

// settle repeats the orders whose fate is not known until each has an answer.
func (w *world) settle() {
	w.t.Helper()
	for _, s := range w.sessions {
		unknown := s.unknown
		s.unknown = nil
		for _, id := range unknown {
			harness.Eventually(w.t, "order "+id+" is answered", func() bool { return w.repeat(s, id) == nil })
		}
		s.unknown = nil
	}
}

// check stops what runs and compares, for every session, what its child printed
// with what the log has: every line once and in order, one run, every
// acknowledged command where it was said to be.
func (w *world) check() (lines, commands int) {
	w.t.Helper()
	for _, s := range w.sessions {
		harness.Do[json.RawMessage](w.t, w.c, "stop_session", map[string]any{"sessionId": s.id})
		harness.Eventually(w.t, "session_end of "+s.id, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ended
		})
		if err := w.c.Breach(); err != nil {
			w.t.Fatal(err)
		}
		if run := w.info(s).Run; run != 1 {
			w.t.Errorf("session %s has run %d", s.id, run)
		}
		want := w.printed(s)
		if s.killed {
			if missing := len(want) - len(s.lines); missing < 0 || missing > batchLines+1 {
				w.t.Errorf("broke I-W2: session %s misses %d lines of its child", s.id, missing)
			}
		} else if len(s.lines) != len(want) {
			w.t.Errorf("broke I-W2: session %s has %d lines, its child printed %d", s.id, len(s.lines), len(want))
		}
		for i := range min(len(want), len(s.lines)) {
			if !bytes.Equal(want[i], s.lines[i]) {
				w.t.Fatalf("broke I-W2: line %d of session %s is\n  %.200s\nthe child printed\n  %.200s", i+1, s.id, s.lines[i], want[i])
			}
		}
		for id, seq := range s.acked {
			if s.admits[id] != seq {
				w.t.Errorf("broke I-J2: command %s was acknowledged at %d, the log has it at %d", id, seq, s.admits[id])
			}
		}
		lines, commands = lines+len(want), commands+len(s.acked)
	}
	return lines, commands
}

// restartTimes reads from the log when the engine was restarted.
func (w *world) restartTimes() (at []time.Time) {
	w.t.Helper()
	b, err := os.ReadFile(w.server.LogPath)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "restarting the journal's engine") {
			continue
		}
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		when, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			w.t.Fatal(err)
		}
		at = append(at, when)
	}
	return at
}

// restarts counts how often the server restarted its engine.
func (w *world) restarts() int {
	w.t.Helper()
	b, err := os.ReadFile(w.server.LogPath)
	if err != nil {
		w.t.Fatal(err)
	}
	return bytes.Count(b, []byte("the journal's engine is back"))
}
