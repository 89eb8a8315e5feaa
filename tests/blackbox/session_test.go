package blackbox

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// info is SessionInfo as far as tests look at it.
type info struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	Status     string `json:"status"`
	PID        *int   `json:"pid"`
	EventCount *int   `json:"event_count"`
	Agent      string `json:"agent"`
	Adapter    string `json:"adapter"`
	Title      string `json:"title"`
	Epoch      string `json:"epoch"`
	Run        uint64 `json:"run"`
	Head       uint64 `json:"head"`
	Floor      uint64 `json:"floor"`
	Exit       *struct {
		Code       *int    `json:"code"`
		Signal     *string `json:"signal"`
		Reason     string  `json:"reason"`
		StderrTail string  `json:"stderrTail"`
	} `json:"exit"`
}

// must makes a request that must succeed.
func must(t *testing.T, c *harness.Client, method string, params map[string]any) {
	t.Helper()
	harness.Do[json.RawMessage](t, c, method, params)
}

// refuse makes a request that must fail with the code.
func refuse(t *testing.T, c *harness.Client, code int, method string, params map[string]any) harness.RPCError {
	t.Helper()
	raw, err := c.Call(harness.Context(t), method, params)
	var e *harness.RPCError
	if !errors.As(err, &e) {
		t.Fatalf("%s %v answered %.300s, %v; want error %d", method, params, raw, err, code)
	}
	if e.Code != code {
		t.Fatalf("%s %v answered %v; want error %d", method, params, e, code)
	}
	return *e
}

// start starts a session whose child obeys the steps, under adapter jsonl.
func start(t *testing.T, c *harness.Client, steps ...string) string {
	t.Helper()
	return startAs(t, c, "jsonl", steps...)
}

func startAs(t *testing.T, c *harness.Client, adapter string, steps ...string) string {
	t.Helper()
	r := harness.Do[struct {
		SessionID string `json:"sessionId"`
		Session   info   `json:"session"`
	}](t, c, "start_session", map[string]any{"argv": harness.ChildArgv("script", steps...), "adapter": adapter})
	if r.SessionID == "" || r.Session.ID != r.SessionID || r.Session.State != "running" || r.Session.PID == nil || r.Session.EventCount == nil {
		t.Fatalf("start_session answered %+v", r)
	}
	return r.SessionID
}

func subscribe(t *testing.T, c *harness.Client, session string, params map[string]any) *harness.Stream {
	t.Helper()
	s, err := c.Subscribe(harness.Context(t), session, params)
	if err != nil {
		t.Fatalf("subscribe %v: %v", params, err)
	}
	return s
}

var fromStart = map[string]any{"after": 0}

func next(t *testing.T, s *harness.Stream) harness.Event {
	t.Helper()
	e, err := s.Next(harness.Context(t))
	if err != nil {
		t.Fatalf("next event: %v", err)
	}
	return e
}

// until takes events up to and including the first that ok accepts.
func until(t *testing.T, s *harness.Stream, what string, ok func(harness.Event) bool) []harness.Event {
	t.Helper()
	all, err := s.Until(harness.Context(t), ok)
	if err != nil {
		t.Fatalf("%s did not come: %v; before it %d events", what, err, len(all))
	}
	return all
}

// numbered waits for the child's n=last and demands that its numbers from first
// on came once each, in order.
func numbered(t *testing.T, s *harness.Stream, first, last int) []harness.Event {
	t.Helper()
	all := until(t, s, "n="+strconv.Itoa(last), func(e harness.Event) bool { return n(e) == last })
	want := first
	for _, e := range all {
		switch got := n(e); {
		case got == 0:
		case got != want:
			t.Fatalf("n=%d came, want %d (seq %d)", got, want, e.Seq)
		default:
			want++
		}
	}
	if want != last+1 {
		t.Fatalf("n went from %d to %d only", first, want-1)
	}
	return all
}

// n is the number of a child's event, or zero.
func n(e harness.Event) int {
	var b struct{ N int }
	if e.Source != "child" || json.Unmarshal(e.Body, &b) != nil {
		return 0
	}
	return b.N
}

// ofType takes events up to the first of that type.
func ofType(t *testing.T, s *harness.Stream, kind string) harness.Event {
	t.Helper()
	all := until(t, s, kind, func(e harness.Event) bool { return e.Type() == kind })
	return all[len(all)-1]
}

// body decodes an event's body.
func body[T any](t *testing.T, e harness.Event) T {
	t.Helper()
	var b T
	if err := json.Unmarshal(e.Body, &b); err != nil {
		t.Fatalf("event %d: %v in %.300s", e.Seq, err, e.Body)
	}
	return b
}

type sendResult struct {
	Status    string `json:"status"`
	CommandID string `json:"commandId"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
}

func send(t *testing.T, c *harness.Client, session, id string, command any) sendResult {
	t.Helper()
	r := harness.Do[sendResult](t, c, "send", map[string]any{"sessionId": session, "commandId": id, "command": command})
	if r.Status != "sent" || r.CommandID != id || r.Seq == 0 {
		t.Fatalf("send answered %+v", r)
	}
	return r
}

// inFile waits until the file holds exactly the text.
func inFile(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	ok := harness.Within(harness.Patience, func() bool {
		var err error
		got, err = os.ReadFile(path)
		return err == nil && string(got) == want
	})
	if !ok {
		t.Fatalf("%s holds %q, want %q", path, got, want)
	}
}

// pidIn waits for a process id in a file.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	var pid int
	harness.Eventually(t, "a process id in "+path, func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return pid
}

func get(t *testing.T, c *harness.Client, session string) info {
	t.Helper()
	return harness.Do[info](t, c, "get_session", map[string]any{"sessionId": session})
}
