package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

// A connection may use up what it has saved; then it is read at its rate. Nothing
// of it is lost, and another one is answered meanwhile.
func TestRequestRate(t *testing.T) {
	const rate = 100
	burst := int(rate * protocol.RequestsBurst / time.Second)
	inBubble(t, newFakeWorld(), Config{RequestsPerSecond: rate}, func(t *testing.T, s *Server) {
		l, other := dial(t, s, false), dial(t, s, false)
		defer other.close()
		defer l.close()
		slowed := func() uint64 { return s.Stats().Refused["RequestsPerSecondDefault"] }
		begin := time.Now()
		for range burst {
			l.result("ping", `{}`)
		}
		if d := time.Since(begin); d != 0 || slowed() != 0 {
			t.Fatalf("at the limit: %d requests took %v, slowed %d times", burst, d, slowed())
		}
		l.result("ping", `{}`) // one more is answered; then the reader waits
		synctest.Wait()
		if d := time.Since(begin); d != 0 || slowed() != 1 {
			t.Errorf("one over: %v, slowed %d times", d, slowed())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 3 * rate {
				l.write(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, 1000+i)
			}
		}()
		synctest.Wait()
		other.result("ping", `{}`)
		if d := time.Since(begin); d != 0 {
			t.Errorf("another connection waited %v", d)
		}
		for i := range 3 * rate {
			if m := l.next(); string(m.ID) != fmt.Sprint(1000+i) {
				t.Fatalf("answer %s, want %d", m.ID, 1000+i)
			}
		}
		<-done
		if d := time.Since(begin); d < 29*time.Second/10 || d > 31*time.Second/10 {
			t.Errorf("%d requests at %d a second took %v", 3*rate, rate, d)
		}
	})
}

// A batch counts its members, a line without any counts once.
func TestPaceCounts(t *testing.T) {
	inBubble(t, newFakeWorld(), Config{RequestsPerSecond: 100}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		slowed := func() uint64 { return s.Stats().Refused["RequestsPerSecondDefault"] }
		batch := "[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 100), ",") + "]"
		for range 2 {
			l.write("%s", batch)
			l.line()
		}
		synctest.Wait()
		if n := slowed(); n != 0 {
			t.Errorf("200 requests: slowed %d times", n)
		}
		l.write("") // blank
		synctest.Wait()
		if n := slowed(); n != 1 {
			t.Errorf("a line more: slowed %d times", n)
		}
	})
}

// A reader that is held does not hold the end of its connection.
func TestStopWhileSlowed(t *testing.T) {
	inBubble(t, newFakeWorld(), Config{RequestsPerSecond: 1}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		for range 3 {
			l.result("ping", `{}`)
		}
		begin := time.Now()
		l.close()
		if d := time.Since(begin); d > drainTimeout {
			t.Errorf("the end took %v", d)
		}
	})
}

// So many surplus connections are waited for until they have read why; of more
// the last line may be lost, but they cost nothing.
func TestRefusalsMax(t *testing.T) {
	inBubble(t, newFakeWorld(), Config{ConnectionsMax: 1}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		l.result("ping", `{}`)
		surplus := func(code int) {
			t.Helper()
			c := dial(t, s, false)
			defer c.close()
			if m := c.next(); m.Error == nil || m.Error.Code != protocol.CodeOverloaded || m.Error.Message != "more than 1 connections" {
				t.Errorf("got %+v", m.Error)
			}
			c.ended(code)
		}
		for range protocol.RefusalsMax - 1 {
			s.refusing <- struct{}{}
		}
		surplus(CloseOverloaded)
		if n := s.Stats().Refused["RefusalsMax"]; n != 0 {
			t.Errorf("counted %d times", n)
		}
		s.refusing <- struct{}{}
		surplus(CloseDraining)
		refused := s.Stats().Refused
		if refused["RefusalsMax"] != 1 || refused["ConnectionsMaxDefault"] != 2 {
			t.Errorf("refused %v", refused)
		}
	})
}

// Each limit of a single request: at it nothing is said of it, one over it there
// is an error that tells the figure, and it is counted under the limit's name.
func TestLimitsOfRequests(t *testing.T) {
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"sessionId":"s",` + params + `}}`
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	nested := func(n int) string { return request("ping", `"x":`+strings.Repeat("[", n-2)+strings.Repeat("]", n-2)) }
	batch := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, n), ",") + "]"
	}
	ids := func(n int) string {
		return request("command_status", `"commandIds":[`+strings.TrimSuffix(strings.Repeat(`"c",`, n), ",")+`]`)
	}
	for _, tt := range []struct {
		limit  string
		max    int
		code   int
		figure string
		line   func(n int) string
	}{
		{"NestingMax", protocol.NestingMax, protocol.CodeParse, "at most 128 levels", nested},
		{"BatchMembersMax", protocol.BatchMembersMax, protocol.CodeInvalidRequest, "more than 100", batch},
		{"CommandIDBytesMax", protocol.CommandIDBytesMax, protocol.CodeInvalidParams, "1 to 128", func(n int) string {
			return request("send", `"command":1,"commandId":"`+x(n)+`"`)
		}},
		{"CommandStatusIDsMax", protocol.CommandStatusIDsMax, protocol.CodeInvalidParams, "more than 64", ids},
		{"ReadEventsMax", protocol.ReadEventsMax, protocol.CodeInvalidParams, "1 to 1000", func(n int) string {
			return request("read_events", fmt.Sprintf(`"after":0,"limit":%d`, n))
		}},
		{"GraceMax", int(protocol.GraceMax.Milliseconds()), protocol.CodeInvalidParams, "at most 300000", func(n int) string {
			return request("stop_session", fmt.Sprintf(`"graceMs":%d`, n))
		}},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			inBubble(t, newFakeWorld("s"), Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				l.write("%s", tt.line(tt.max))
				if line := l.line(); strings.Contains(line, tt.figure) || s.Stats().Refused[tt.limit] != 0 {
					t.Errorf("at the limit: %.300s", line)
				}
				l.write("%s", tt.line(tt.max+1))
				m := l.next()
				if m.Error == nil || m.Error.Code != tt.code || !strings.Contains(m.Error.Message, tt.figure) {
					t.Errorf("over the limit: %+v", m.Error)
				}
				if n := s.Stats().Refused[tt.limit]; n != 1 {
					t.Errorf("counted %d times", n)
				}
			})
		})
	}
}

// A page of read_events has as many bytes as asked for, up to the largest, but at
// least one event.
func TestReadEventsBytes(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	log.append(20, 1<<20-200)
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		line := len(log.lines[0])
		for _, tt := range []struct{ params, want string }{
			{`"after":0`, fmt.Sprint(protocol.ReadEventsBytes / line)},
			{fmt.Sprintf(`"after":0,"maxBytes":%d`, protocol.ReadEventsBytes-line), "1"},
			{fmt.Sprintf(`"after":0,"maxBytes":%d`, 3*protocol.ReadEventsBytes), fmt.Sprint(3 * protocol.ReadEventsBytes / line)},
			{fmt.Sprintf(`"after":0,"maxBytes":%d`, protocol.ReadEventsBytesMax), fmt.Sprint(protocol.ReadEventsBytesMax / line)},
			{fmt.Sprintf(`"after":0,"maxBytes":%d`, 2*protocol.ReadEventsBytesMax), fmt.Sprint(protocol.ReadEventsBytesMax / line)},
		} {
			got := l.result("read_events", `{"sessionId":"s",`+tt.params+`}`)
			if !strings.HasSuffix(got, `,"next":`+tt.want+`}`) {
				t.Errorf("%s: ends with %s, want event %s", tt.params, got[len(got)-60:], tt.want)
			}
		}
	})
}

// wantMet wants that a limit was counted so often.
func wantMet(t *testing.T, s *Server, limit string, want uint64) {
	t.Helper()
	if n := s.Stats().Refused[limit]; n != want {
		t.Errorf("%s is counted %d times, want %d", limit, n, want)
	}
}
