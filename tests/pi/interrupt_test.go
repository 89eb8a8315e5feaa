package pi_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

// interrupt sends it and waits until pi has stopped.
func (c *client) interrupt() harness.Event {
	c.t.Helper()
	id := c.do("interrupt", nil)
	var end harness.Event
	c.until("the end", func() bool {
		if last := c.seen[len(c.seen)-1]; settled(last, bodyOf(last)) {
			end = last
		}
		return c.count(outcome(id)) == 1 && end.Seq > 0
	})
	return end
}

func TestInterruptWhileItSpeaks(t *testing.T) {
	w := newWorld(t, options{})
	w.model.On("speak", mockmodel.Steps(mockmodel.Text("one "), mockmodel.Hold(mockmodel.NewGate())))
	c := w.start()
	c.prompt("speak")
	at, _ := c.await("the first word", said("one "))
	turn := c.state(at.Seq).Turn
	end := c.interrupt()
	cut := []string{`user done: "speak"`, `assistant interrupted: "one "`, `notice interrupted: "Request was aborted"`}
	c.transcript(end.Seq, append(cut[:3:3], "idle")...)
	if _, err := w.model.Await(harness.Context(t), "the end of the request", func(rs []mockmodel.Request) bool { return rs[0].HungUp }); err != nil {
		t.Error(err)
	}
	c.prompt("go on")
	c.await("the next turn", is("agent_start"))
	// One that was meant for the turn before hits nothing.
	_, err := c.try("interrupt", map[string]any{"expect": map[string]any{"turn": turn.ID}})
	var rpc *harness.RPCError
	if !errors.As(err, &rpc) || rpc.Data.Reason != "conflict" {
		t.Errorf("an interrupt of an earlier turn: %v", err)
	}
	end, _ = c.await("the end", settled)
	c.transcript(end.Seq, append(cut[:3:3], `user done: "go on"`, `assistant done: "You said: go on"`, "idle")...)
}

func TestInterruptInATool(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	c.prompt("run echo $$ > pid; echo now; read x < " + w.pipe("go"))
	c.await("the tool's output", printed("now\n"))
	pid, err := strconv.Atoi(w.lines("pid")[0])
	if err != nil {
		t.Fatal(err)
	}
	end := c.interrupt()
	c.transcript(end.Seq, `user done: "run echo $$ > pid; echo now; read x < go"`, `assistant done: "I run it. "`,
		`tool error: bash {"command":"echo $$ > pid; echo now; read x < go"} -> "now\n\n\nCommand aborted"`,
		`notice interrupted: "This operation was aborted"`, "idle")
	harness.Eventually(t, "the tool is gone", func() bool { return !harness.Living(pid) })
	if n := len(w.model.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	c.prompt("go on")
	c.await("the end", settled)
}

// pi does not answer an abort while it asks something: rejoin withdraws the question.
func TestInterruptWhileItAsks(t *testing.T) {
	w := newWorld(t, options{extension: "ask.ts"})
	c := w.start()
	c.prompt("run echo x >> ran")
	c.await("the question", is("extension_ui_request"))
	end := c.interrupt()
	// pi may have taken the withdrawal for a no before it saw the abort.
	got := transcript(c.state(end.Seq))
	if tool := `tool error: bash {"command":"echo x >> ran"} -> "`; len(got) != 5 || !strings.HasPrefix(got[2], tool) ||
		!strings.HasPrefix(got[3], "notice interrupted") || got[4] != "idle" {
		t.Errorf("the transcript is %q", got)
	}
	i := slices.IndexFunc(c.seen, func(e harness.Event) bool { return bodyOf(e).Type == protocol.TypeInteraction })
	if i < 0 {
		t.Fatal("the question has no end")
	}
	if b := bodyOf(c.seen[i]); b.Outcome != "cancelled" || b.ResolvedBy != "rejoin" {
		t.Errorf("the question is %s by %s", b.Outcome, b.ResolvedBy)
	}
	if got := w.lines("ran"); got[0] != "" {
		t.Errorf("the tool ran: %q", got)
	}
	// pi saw the abort before the end of its question: it does not tell the model that the answer was no.
	if n := len(w.model.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}
