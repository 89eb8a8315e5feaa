package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

const laterEpoch = protocol.Epoch("01BRZ3NDEKTSV4RRFFQ69G5FAV")

// subscribes asks for the events after a cursor and returns how long the answer took
// and what it says.
func (l *link) subscribes(after int, epoch protocol.Epoch) (time.Duration, message) {
	l.t.Helper()
	begin := time.Now()
	l.call("subscribe", fmt.Sprintf(`{"sessionId":"s","after":%d,"epoch":%q}`, after, epoch))
	m := l.next()
	return time.Since(begin), m
}

func says(m message, mode, reason string) bool {
	return m.Error == nil && strings.Contains(string(m.Result), `"mode":"`+mode+`"`) &&
		(reason == "" || strings.Contains(string(m.Result), `"reason":"`+reason+`"`))
}

// What a leader calls future is believed at once in one process, by the word of a
// live owner, or after ten seconds without one.
func TestFutureIsConfirmed(t *testing.T) {
	at := journal.Position{Epoch: testEpoch, Floor: 1, Head: 5}
	alive := func(p journal.Position) func(context.Context) (journal.Position, bool, error) {
		return func(context.Context) (journal.Position, bool, error) { return p, true, nil }
	}
	for _, c := range []struct {
		name     string
		remote   bool
		owner    func(context.Context) (journal.Position, bool, error)
		after    int
		epoch    protocol.Epoch
		reason   string
		min, max time.Duration
	}{
		{"one process", false, nil, 6, testEpoch, reasonFuture, 0, 0},
		{"one process, a younger epoch", false, nil, 6, laterEpoch, reasonEpoch, 0, 0},
		{"the owner confirms", true, alive(at), 6, testEpoch, reasonFuture, 0, 0},
		{"the owner confirms the epoch", true, alive(at), 3, laterEpoch, reasonEpoch, 0, 0},
		{"no owner", true, nil, 6, testEpoch, reasonFuture, verdictAfter, verdictAfter + lookPauseMax},
		{"no owner, a younger epoch", true, nil, 2, laterEpoch, reasonEpoch, verdictAfter, verdictAfter + lookPauseMax},
		{"no owner, an older epoch", true, nil, 2, "01AAAAAAAAAAAAAAAAAAAAAAAA", reasonEpoch, 0, 0},
		{"no owner, inside the log", true, nil, 5, testEpoch, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeWorld("s")
			w.logs["s"].append(5, 1)
			w.remote, w.owner = c.remote, c.owner
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				mode := modeReplay
				if c.reason != "" {
					mode = modeSnapshot
				}
				if d, m := l.subscribes(c.after, c.epoch); !says(m, mode, c.reason) || d < c.min || d > c.max {
					t.Errorf("after %v: %s %+v", d, m.Result, m.Error)
				}
			})
		})
	}
}

// A deposed leader is found out: the events that it lacks come, and nobody is sent
// back to a snapshot. Proves I-J4 for a reader that changes gateway while the
// journal changes its leader.
func TestDeposedLeader(t *testing.T) {
	for _, owner := range []bool{true, false} {
		w := newFakeWorld("s")
		log := w.logs["s"]
		log.append(5, 1)
		w.remote = true
		if owner {
			w.owner = func(context.Context) (journal.Position, bool, error) {
				return journal.Position{Epoch: testEpoch, Head: 8}, true, nil
			}
		}
		inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
			l := dial(t, s, false)
			defer l.close()
			elected := time.AfterFunc(8*time.Second, func() { log.append(3, 1) })
			defer elected.Stop()
			d, m := l.subscribes(7, testEpoch)
			if !says(m, modeReplay, "") || d < 8*time.Second || d > 8*time.Second+lookPauseMax {
				t.Errorf("after %v: %s %+v", d, m.Result, m.Error)
			}
			l.wantEvents(1, 8, 8)
		})
	}
}

// While no leader can be asked, a cursor inside what is held here is served; whatever
// needs the word of one is refused as retryable, and everything is in one process.
func TestResumeWithoutALeader(t *testing.T) {
	for _, c := range []struct {
		name, params string
		remote       bool
		served       bool
	}{
		{"inside", fmt.Sprintf(`"after":3,"epoch":%q`, testEpoch), true, true},
		{"at the end", `"after":5`, true, true},
		{"beyond", `"after":6`, true, false},
		{"another epoch", fmt.Sprintf(`"after":3,"epoch":%q`, laterEpoch), true, false},
		{"before the floor", `"after":0`, true, false},
		{"from the head", `"from":"now"`, true, false},
		{"from the start", `"from":"start"`, true, false},
		{"a snapshot", `"from":"snapshot"`, true, false},
		{"one process", `"after":3`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeWorld("s")
			log := w.logs["s"]
			log.append(5, 1)
			log.floor = 2
			log.syncing = func(context.Context) error { return journal.ErrUnavailable }
			w.remote = c.remote
			inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
				l := dial(t, s, false)
				defer l.close()
				l.call("subscribe", `{"sessionId":"s",`+c.params+`}`)
				m := l.next()
				if !c.served {
					if m.Error == nil || m.Error.Code != protocol.CodeUnavailable || m.Error.Data["retryable"] != true {
						t.Errorf("%s %+v", m.Result, m.Error)
					}
					return
				}
				if !says(m, modeReplay, "") || !strings.Contains(string(m.Result), `"head":5`) {
					t.Errorf("%s %+v", m.Result, m.Error)
				}
			})
		})
	}
}

// What this gateway has shown is not taken back because nobody can be asked.
func TestResumeWithoutALeaderBehindWhatWasShown(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	log.append(5, 1)
	log.syncing = func(context.Context) error { return journal.ErrUnavailable }
	w.remote = true
	w.known = map[string]journal.Position{"s": {Epoch: testEpoch, Floor: 1, Head: 9}}
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		if _, m := l.subscribes(3, testEpoch); m.Error == nil || m.Error.Code != protocol.CodeUnavailable {
			t.Errorf("%s %+v", m.Result, m.Error)
		}
	})
}

// An owner that is ahead of the leader keeps the verdict open, and in the end the
// client is told to ask again.
func TestLeaderThatStaysBehind(t *testing.T) {
	w := newFakeWorld("s")
	w.logs["s"].append(5, 1)
	w.remote = true
	w.owner = func(context.Context) (journal.Position, bool, error) {
		return journal.Position{Epoch: testEpoch, Head: 8}, true, nil
	}
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		d, m := l.subscribes(7, testEpoch)
		if d != syncTimeout || m.Error == nil || m.Error.Code != protocol.CodeUnavailable || m.Error.Data["retryable"] != true {
			t.Errorf("after %v: %s %+v", d, m.Result, m.Error)
		}
	})
}

// A gateway never shows a head lower than one that it has shown.
func TestHeadIsNeverLowerThanShown(t *testing.T) {
	w := newFakeWorld("s")
	log := w.logs["s"]
	log.append(5, 1)
	w.remote = true
	w.known = map[string]journal.Position{"s": {Epoch: testEpoch, Floor: 1, Head: 9}}
	inBubble(t, w, Config{}, func(t *testing.T, s *Server) {
		l := dial(t, s, false)
		defer l.close()
		for _, ask := range []string{
			`"subscribe","params":{"sessionId":"s"`, `"read_events","params":{"sessionId":"s","after":0`,
			`"read_events","params":{"sessionId":"s","before":4`, `"get_snapshot","params":{"sessionId":"s","at":2`,
		} {
			begin := time.Now()
			elected := time.AfterFunc(time.Second, func() { log.append(4, 1) })
			l.write(`{"id":1,"method":%s}}`, ask)
			m := l.next()
			if d := time.Since(begin); m.Error != nil || d < time.Second || d > 2*time.Second {
				t.Errorf("%s: after %v: %s %+v", ask, d, m.Result, m.Error)
			}
			elected.Stop()
			if strings.HasPrefix(ask, `"sub`) {
				l.next() // synced
				l.result("unsubscribe", `{"subscriptionId":1}`)
			}
			log.set(func() { log.lines = log.lines[:5] })
		}
	})
}
