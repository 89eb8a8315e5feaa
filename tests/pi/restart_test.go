package pi_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/mockmodel"
)

// told is what pi says of its session.
type told struct{ SessionID, SessionFile string }

func (c *client) told() (s told) {
	c.t.Helper()
	decode(c.t, c.ask(map[string]any{"type": "get_state"}), &s)
	return s
}

// kill kills the server, starts it again and returns a client that comes back
// with c's cursor. byHand: the session is resumed by a client.
func (w *world) kill(c *client, byHand bool) *client {
	w.t.Helper()
	epoch, seq := c.stream.Cursor()
	w.srv.Kill9()
	w.srv.Run()
	d := w.join(c.session, map[string]any{"after": seq, "epoch": epoch})
	if a := d.stream.Attached(); a.Mode != "replay" || a.Epoch != epoch {
		w.t.Errorf("after the kill the cursor gives %+v, the epoch was %s", a, epoch)
	}
	d.await("the interruption", is(protocol.TypeSessionInterrupted))
	if byHand {
		w.resume(d)
	}
	if e, _ := d.await("the next run", is(protocol.TypeSessionResumed)); e.Run == 1 || e.Epoch != epoch {
		w.t.Errorf("resumed by run %d in epoch %s", e.Run, e.Epoch)
	}
	d.await("the new pi", stateTold)
	return d
}

func (w *world) resume(c *client) {
	w.t.Helper()
	if _, err := c.Call(harness.Context(w.t), "resume_session", map[string]any{"sessionId": c.session}); err != nil {
		w.t.Fatalf("resume: %v\n%s", err, w.srv.LogTail())
	}
}

// asked checks what the model was asked last, and how often in all.
func (w *world) asked(times int, dialog ...string) {
	w.t.Helper()
	rs := w.model.Requests()
	if got := rs[len(rs)-1].Dialog; len(rs) != times || !slices.Equal(got, dialog) {
		w.t.Errorf("the model was asked %d times, last %q; want %d, %q", len(rs), got, times, dialog)
	}
}

func TestServerKilledWhilePiSpeaks(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		t.Run(fmt.Sprintf("byHand=%t", byHand), func(t *testing.T) {
			policy := protocol.RestartResume
			if byHand {
				policy = protocol.RestartNever
			}
			w := newWorld(t, options{restart: policy})
			w.model.On("speak", mockmodel.Steps(mockmodel.Text("one "), mockmodel.Hold(mockmodel.NewGate())))
			c := w.start()
			c.prompt("run echo once >> ran")
			c.await("the end", settled)
			before := c.told()
			id := c.prompt("speak")
			c.await("the first word", said("one "))
			d := w.kill(c, byHand)
			if after := d.told(); after != before || after.SessionFile == "" {
				t.Errorf("pi is in session %+v, was in %+v", after, before)
			}
			if n := c.count(outcome(id)) + d.count(outcome(id)); n != 1 {
				t.Errorf("the prompt has %d outcomes", n)
			}
			w.asked(3, "user: run echo once >> ran", `assistant: I run it.  [bash {"command":"echo once >> ran"}]`, "tool: (no output)",
				"assistant: It ran. ", "user: speak")
			d.prompt("again")
			end, _ := d.await("the end", settled)
			d.transcript(end.Seq, `user done: "run echo once >> ran"`, `assistant done: "I run it. "`,
				`tool done: bash {"command":"echo once >> ran"} -> "(no output)"`, `assistant done: "It ran. "`,
				`user done: "speak"`, `assistant interrupted: "one "`, `user done: "again"`, `assistant done: "You said: again"`, "idle")
			w.asked(4, "user: run echo once >> ran", `assistant: I run it.  [bash {"command":"echo once >> ran"}]`, "tool: (no output)",
				"assistant: It ran. ", "user: speak", "user: again")
			if got := w.lines("ran"); !slices.Equal(got, []string{"once"}) {
				t.Errorf("the tool left %q", got)
			}
			// The same prompt under the same command id is not run again either.
			if _, err := d.try("prompt", map[string]any{"text": "speak", "commandId": id}); err != nil {
				t.Errorf("the prompt again: %v", err)
			}
			d.told()
			w.asked(4, w.model.Requests()[3].Dialog...)
		})
	}
}

func TestServerKilledInATool(t *testing.T) {
	w := newWorld(t, options{restart: protocol.RestartResume})
	c := w.start()
	c.prompt("hello")
	c.await("the end", settled)
	before := c.told()
	command := "echo once >> ran; echo now; read x < " + w.pipe("go")
	c.prompt("run " + command)
	c.await("the tool's output", printed("now\n"))
	d := w.kill(c, false)
	if after := d.told(); after != before {
		t.Errorf("pi is in session %+v, was in %+v", after, before)
	}
	d.prompt("again")
	end, _ := d.await("the end", settled)
	d.transcript(end.Seq, `user done: "hello"`, `assistant done: "You said: hello"`,
		`user done: "run `+command+`"`, `assistant done: "I run it. "`, `tool interrupted: bash {"command":"`+command+`"} -> "now\n"`,
		`user done: "again"`, `assistant done: "You said: again"`, "idle")
	if rs := w.model.Requests(); len(rs) != 3 || rs[2].Dialog[0] != "user: hello" || rs[2].Prompt != "again" {
		t.Errorf("the model was asked %d times, last %q", len(rs), rs[len(rs)-1].Dialog)
	}
	if got := w.lines("ran"); !slices.Equal(got, []string{"once"}) {
		t.Errorf("the tool left %q", got)
	}
}

// Killed before pi has kept anything: nothing is known of the first prompt to
// pi, all of it to rejoin.
func TestServerKilledInTheFirstAnswer(t *testing.T) {
	w := newWorld(t, options{restart: protocol.RestartResume})
	w.model.On("speak", mockmodel.Steps(mockmodel.Text("one "), mockmodel.Hold(mockmodel.NewGate())))
	c := w.start()
	c.prompt("speak")
	c.await("the first word", said("one "))
	before := c.told()
	d := w.kill(c, false)
	if after := d.told(); after.SessionFile != before.SessionFile {
		t.Errorf("pi is in session %+v, was in %+v", after, before)
	}
	d.prompt("again")
	end, _ := d.await("the end", settled)
	d.transcript(end.Seq, `user done: "speak"`, `assistant interrupted: "one "`, `user done: "again"`, `assistant done: "You said: again"`, "idle")
	if n := len(w.model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestServerKilledWhilePiAsks(t *testing.T) {
	w := newWorld(t, options{restart: protocol.RestartResume, extension: "ask.ts"})
	c := w.start()
	c.prompt("run echo x >> ran")
	asked, _ := c.await("the question", is("extension_ui_request"))
	question := c.state(asked.Seq).Pending[0].InteractionID
	d := w.kill(c, false)
	if n := d.count(func(_ harness.Event, b body) bool {
		return b.Type == protocol.TypeInteraction && b.InteractionID == question && b.Outcome == "interrupted" && b.ResolvedBy == "rejoin"
	}); n != 1 {
		t.Errorf("the question has ended %d times", n)
	}
	_, err := d.try("respond", map[string]any{"interactionId": question, "outcome": "allow"})
	var rpc *harness.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32008 || rpc.Data.Outcome != "interrupted" {
		t.Errorf("an answer after the kill: %v", err)
	}
	d.prompt("hello")
	end, _ := d.await("the end", settled)
	d.transcript(end.Seq, `user done: "run echo x >> ran"`, `assistant done: "I run it. "`,
		`tool interrupted: bash {"command":"echo x >> ran"} -> ""`, `user done: "hello"`, `assistant done: "You said: hello"`, "idle")
	if got := w.lines("ran"); got[0] != "" {
		t.Errorf("the tool ran: %q", got)
	}
}

// Two prompts are on their way when the server dies; the second, which was held
// back, is proven not to have reached pi.
func TestServerKilledWithPromptsOnTheirWay(t *testing.T) {
	w := newWorld(t, options{restart: protocol.RestartResume})
	c := w.start()
	first, second := c.prompt("first"), c.prompt("second")
	d := w.kill(c, false)
	all := &client{t: t, Client: d.Client, session: c.session, stream: w.join(c.session, map[string]any{"after": 0}).stream}
	all.await("the interruption", is(protocol.TypeSessionInterrupted))
	outcomes := map[string]string{}
	for _, e := range all.seen {
		if b := bodyOf(e); b.Type == protocol.TypeCommandOutcome {
			outcomes[b.CommandID] += b.Outcome
		}
	}
	released := all.count(func(e harness.Event, b body) bool { return b.Type == protocol.TypeCommandReleased })
	if released == 0 && (outcomes[first] != "interrupted" || outcomes[second] != "discarded") || outcomes[first] == "" || outcomes[second] == "" {
		t.Errorf("the prompts are %s and %s, %d were released", outcomes[first], outcomes[second], released)
	}
	d.prompt("third")
	d.await("the end", settled)
}

// A session that was stopped goes on where it was.
func TestStoppedAndResumed(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	c.prompt("hello")
	c.await("the end", settled)
	before := c.told()
	if _, err := c.Call(harness.Context(t), "stop_session", map[string]any{"sessionId": c.session}); err != nil {
		t.Fatal(err)
	}
	if e, b := c.await("the end", is(protocol.TypeSessionEnd)); b.Reason != "stopped" || c.state(e.Seq).Status != protocol.StatusEnded {
		t.Errorf("stopped: %s", e.Body)
	}
	w.resume(c)
	c.await("the next run", is(protocol.TypeSessionResumed))
	if after := c.told(); after != before {
		t.Errorf("pi is in session %+v, was in %+v", after, before)
	}
	c.prompt("again")
	end, _ := c.await("the end", settled)
	c.transcript(end.Seq, `user done: "hello"`, `assistant done: "You said: hello"`, `user done: "again"`, `assistant done: "You said: again"`, "idle")
	w.asked(2, "user: hello", "assistant: You said: hello", "user: again")
}

// An orderly end of the server, in the middle of an answer.
func TestServerStopped(t *testing.T) {
	w := newWorld(t, options{restart: protocol.RestartResume})
	w.model.On("speak", mockmodel.Steps(mockmodel.Text("one "), mockmodel.Hold(mockmodel.NewGate())))
	c := w.start()
	c.prompt("hello")
	c.await("the end", settled)
	before := c.told()
	c.prompt("speak")
	c.await("the first word", said("one "))
	epoch, seq := c.stream.Cursor()
	if code := w.srv.Term(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	w.srv.Run()
	d := w.join(c.session, map[string]any{"after": seq, "epoch": epoch})
	if e, b := d.await("the interruption", is(protocol.TypeSessionInterrupted)); b.Reason != "server_stop" {
		t.Errorf("interrupted: %s", e.Body)
	}
	d.await("the next run", is(protocol.TypeSessionResumed))
	d.await("the new pi", stateTold)
	if after := d.told(); after != before {
		t.Errorf("pi is in session %+v, was in %+v", after, before)
	}
	d.prompt("again")
	end, _ := d.await("the end", settled)
	got := transcript(d.state(end.Seq))
	if want := []string{`user done: "speak"`, `assistant interrupted: "one "`, `notice interrupted: "Request was aborted"`, `user done: "again"`, `assistant done: "You said: again"`, "idle"}; !slices.Equal(got[2:], want) {
		t.Errorf("the transcript ends with %q, want %q", got, want)
	}
	if n := len(w.model.Requests()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
}
