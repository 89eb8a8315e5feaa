package demoagent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
)

// A child is the program with pipes for its stdin and stdout.
type child struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Reader
	stderr *bytes.Buffer // read after wait
	code   chan int
}

func start(t *testing.T, args ...string) *child {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &child{t: t, in: inW, out: bufio.NewReaderSize(outR, 64<<10), stderr: new(bytes.Buffer), code: make(chan int, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		code := Run(inR, outW, c.stderr, args)
		_ = outW.Close() // always nil
		c.code <- code
	})
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		wg.Wait()
	})
	return c
}

func (c *child) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Errorf("send %s: %v", line, err) // not Fatalf: tests send from goroutines, too
	}
}

func (c *child) prompt(message string) {
	c.t.Helper()
	b, err := json.Marshal(map[string]string{"id": "p", "type": "prompt", "message": message})
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(string(b))
}

// line returns the next line of stdout without LF.
func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read stdout: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

// until reads events up to the first of the type, which it returns last.
func (c *child) until(kind string) []string {
	c.t.Helper()
	var seen []string
	for {
		line := c.line()
		seen = append(seen, line)
		if typeOf(line) == kind {
			return seen
		}
	}
}

func (c *child) wait(code int) {
	c.t.Helper()
	rest, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Fatalf("read the rest: %v", err)
	}
	if got := <-c.code; got != code {
		c.t.Errorf("exit code %d, want %d; last output %q", got, code, rest)
	}
}

func typeOf(line string) string {
	p, err := protocol.ParseParams([]byte(line))
	if err != nil {
		return ""
	}
	kind, _, _ := p.String("type")
	return kind
}

// types returns the types of events, neighbours of the same type once.
func types(lines []string) string {
	var kinds []string
	for _, l := range lines {
		if k := typeOf(l); len(kinds) == 0 || kinds[len(kinds)-1] != k {
			kinds = append(kinds, k)
		}
	}
	return strings.Join(kinds, " ")
}

func has(lines []string, part string) bool {
	for _, l := range lines {
		if strings.Contains(l, part) {
			return true
		}
	}
	return false
}

func TestPromptStreamsAReply(t *testing.T) {
	c := start(t, "--pace", "0")
	c.send(`{"id":7.0,"type":"prompt","message":"hello <there>"}`)
	got := c.until("agent_settled")
	if want := `{"id":7.0,"type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}`; got[0] != want {
		t.Errorf("response %s, want %s", got[0], want)
	}
	want := "response agent_start turn_start message_start message_end message_start message_update message_end turn_end agent_end agent_settled"
	if k := types(got); k != want {
		t.Errorf("events %s\nwant   %s", k, want)
	}
	for _, l := range got {
		if err := protocol.ValidateJSON([]byte(l)); err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
	if whole := got[len(got)-2]; !strings.Contains(whole, "You said: hello <there>. I am the demo agent") || !strings.Contains(whole, "flood N") {
		t.Errorf("the reply teaches nothing: %s", whole)
	}
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	c.wait(0)
}

func TestScripts(t *testing.T) {
	for _, c := range []struct{ name, prompt, want string }{
		{"count", "count 3", `"content":"1 2 3 "`},
		{"think", "Think", `"type":"thinking_delta"`},
		{"row", "think count 2", `"content":[{"type":"thinking"`},
		{"flood", "flood 300", `{"type":"flood","n":300,"of":300}`},
		{"flood with size", "flood 2 64", `{"type":"flood","n":2,"of":2,"pad":"` + strings.Repeat("x", 64-len(`{"type":"flood","n":2,"of":2,"pad":""}`)) + `"}`},
		{"big", "big 9000", `{"type":"big","text":"` + strings.Repeat("x", 9000-len(`{"type":"big","text":""}`)) + `"}`},
		{"rubbish", "rubbish", "\xff\xfe"},
		{"help", "help", "crash: exit with code 3"},
		{"no script", "crash the party", "You said: crash the party."},
		{"long", strings.Repeat("é", 500), " …. I am"},
		{"blank", "  ", "You said: nothing."},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, "--pace", "0")
			p.prompt(c.prompt)
			if got := p.until("agent_settled"); !has(got, c.want) {
				t.Errorf("%q is not in\n%s", c.want, strings.Join(got, "\n"))
			}
		})
	}
}

func TestToolAsks(t *testing.T) {
	for _, c := range []struct{ name, answer, want, last string }{
		{"allowed", `{"type":"extension_ui_response","id":"ask-1","confirmed":true}`, `"coffee: 0 %`, "The tool is done."},
		{"denied", `{"type":"extension_ui_response","id":"ask-1","confirmed":false}`, "did not allow it", "The tool did not run."},
		{"cancelled", `{"type":"extension_ui_response","id":"ask-1","cancelled":true}`, "did not allow it", "The tool did not run."},
		{"aborted", `{"type":"abort"}`, "did not allow it", `"stopReason":"aborted"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, "--pace", "0")
			p.prompt("tool")
			before := p.until("extension_ui_request")
			want := `{"type":"extension_ui_request","id":"ask-1","method":"confirm","title":"Run this command?","message":"make coffee"}`
			if got := before[len(before)-1]; got != want {
				t.Errorf("question %s, want %s", got, want)
			}
			p.send(`{"type":"extension_ui_response","id":"ask-0","confirmed":true}`)
			p.send(c.answer)
			after := p.until("agent_settled")
			if !has(after, c.want) || !has(after, c.last) {
				t.Errorf("%q or %q is not in\n%s", c.want, c.last, strings.Join(after, "\n"))
			}
		})
	}
}

func TestQuestionAtEndOfInput(t *testing.T) {
	c := start(t)
	c.prompt("tool")
	c.until("extension_ui_request")
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.until("agent_settled"); !has(got, `"isError":true`) {
		t.Errorf("the question was not cancelled: %s", strings.Join(got, "\n"))
	}
	c.wait(0)
}

func TestAbort(t *testing.T) {
	c := start(t, "--pace", "1ms")
	c.prompt("count 100000")
	for range 20 {
		c.line()
	}
	go c.send(`{"type":"follow_up","message":"never"}` + "\n" + `{"id":"a","type":"abort"}`)
	got := c.until("agent_settled")
	if !has(got, `"stopReason":"aborted"`) || got[len(got)-1] != `{"type":"agent_settled","aborted":true}` {
		t.Errorf("not aborted: %s", strings.Join(got[len(got)-3:], "\n"))
	}
	if has(got, `{"role":"user","content":[{"type":"text","text":"never"}]`) {
		t.Error("a queued message outlived the abort")
	}
	if want, l := `{"id":"a","type":"response","command":"abort","success":true}`, c.line(); l != want {
		t.Errorf("%s, want %s", l, want)
	}
	go c.send(`{"type":"abort"}`)
	if want, l := `{"type":"response","command":"abort","success":true}`, c.line(); l != want {
		t.Errorf("idle: %s, want %s", l, want)
	}
}

func TestAbortStopsAFlood(t *testing.T) {
	c := start(t)
	c.prompt("flood 1000000000")
	c.until("flood")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.send(`{"type":"abort"}`)
	}()
	c.until("agent_settled")
	<-sent
}

func TestMessagesQueue(t *testing.T) {
	c := start(t, "--pace", "1ms")
	c.prompt("count 50")
	c.until("message_update")
	go c.send(`{"type":"prompt","message":"count 1"}` + "\n" + `{"type":"steer","message":"count 2"}` + "\n" + `{"id":1,"type":"get_state"}`)
	got := c.until("agent_settled")
	for _, want := range []string{
		`{"type":"queue_update","steering":[],"followUp":["count 1"]}`,
		`{"type":"queue_update","steering":["count 2"],"followUp":["count 1"]}`,
		`{"type":"response","command":"steer","success":true,"data":{"disposition":"queued"}}`,
		`{"id":1,"type":"response","command":"get_state","success":true,"data":{"model":{"id":"demo","provider":"rejoin"},"isStreaming":true,"pendingMessageCount":2}}`,
	} {
		if !has(got, want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(got, "\n"))
		}
	}
	steered, followed := -1, -1
	for i, l := range got {
		switch {
		case strings.Contains(l, `"content":"1 2 "`) && steered < 0:
			steered = i
		case strings.Contains(l, `"content":"1 "`) && followed < 0:
			followed = i
		}
	}
	if steered < 0 || followed < steered {
		t.Errorf("steer answered at %d, follow-up at %d", steered, followed)
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := start(t, "--pace", "0")
	c.prompt("tool")
	c.until("extension_ui_request")
	go c.send(strings.Repeat(`{"type":"follow_up","message":"count 1"}`+"\n", queuedMax+1) + `{"type":"abort"}`)
	if got := c.until("agent_settled"); !has(got, `"success":false,"error":"Too many messages are queued"`) {
		t.Error("the queue took one more than its bound")
	}
}

func TestWrongLines(t *testing.T) {
	c := start(t, "--pace", "0")
	for _, w := range []struct{ line, want string }{
		{`this is not json`, `{"type":"response","command":"parse","success":false,"error":"Failed to parse command: unexpected byte`},
		{`{"type":`, `{"type":"response","command":"parse","success":false`},
		{"\xff", `{"type":"response","command":"parse","success":false`},
		{strings.Repeat("[", 100000), `{"type":"response","command":"parse","success":false`},
		{`[1,2]`, `{"type":"response","success":false`},
		{`null`, `{"type":"response","success":false`},
		{`{"id":"b","type":"dance"}`, `{"id":"b","type":"response","command":"dance","success":false,"error":"Unknown command: dance"}`},
		{`{"id":{"x":1}}`, `{"id":{"x":1},"type":"response","success":false`},
		{`{"type":7}`, `{"type":"response","success":false`},
		{`{"type":"prompt"}`, `{"type":"response","command":"prompt","success":false,"error":"message is required"}`},
		{`{"type":"prompt","message":1}`, `{"type":"response","command":"prompt","success":false,"error":"message must be a string"}`},
		{"{\"type\":\"get_state\"}\r", `{"type":"response","command":"get_state","success":true`},
		{strings.Repeat(" ", inputBytesMax+1), `{"type":"response","command":"parse","success":false,"error":"Failed to parse command: the line is too long"}`},
	} {
		go c.send("\n" + w.line)
		if got := c.line(); !strings.HasPrefix(strings.ReplaceAll(got, "unexpected '", "unexpected byte "), w.want) {
			t.Errorf("%.60s: got %s, want %s", w.line, got, w.want)
		}
	}
}

func TestExits(t *testing.T) {
	for _, c := range []struct {
		prompt, seen string
		code         int
	}{
		{"crash", "bad feeling", 3},
		{"exit", "agent_settled", 0},
		{"exit 7", "agent_settled", 7},
	} {
		t.Run(c.prompt, func(t *testing.T) {
			p := start(t, "--pace", "0")
			p.prompt(c.prompt)
			out, err := io.ReadAll(p.out)
			if err != nil {
				t.Fatal(err)
			}
			if code := <-p.code; code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(string(out), c.seen) {
				t.Errorf("%q is not in %s", c.seen, out)
			}
			if c.code == 3 && strings.Contains(string(out), "message_end\",\"message\":{\"role\":\"assistant") {
				t.Error("the crash came after the message's end")
			}
		})
	}
}

func TestStderr(t *testing.T) {
	c := start(t, "--pace", "0")
	c.prompt("stderr 3 exit")
	c.wait(0)
	if got, want := c.stderr.String(), "demo-agent: line 3 of 3 on stderr\n"; !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 3 {
		t.Errorf("stderr %q, want it to end with %q", got, want)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
	}{
		{"--help", 0}, {"--pace soon", 2}, {"--pace -1s", 2}, {"--fast", 2}, {"please", 2},
	} {
		var stderr bytes.Buffer
		if code := Run(strings.NewReader(""), io.Discard, &stderr, strings.Fields(c.args)); code != c.code || stderr.Len() == 0 {
			t.Errorf("%s: exit code %d, want %d; stderr %q", c.args, code, c.code, stderr.String())
		}
	}
}

func TestNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if code := Run(strings.NewReader(`{"type":"prompt","message":"flood"}`), w, io.Discard, nil); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// TestHang steps an agent by hand: one that hangs takes no line, not even the
// end of stdin.
func TestHang(t *testing.T) {
	lines, wake := make(chan input), make(chan struct{})
	var out bytes.Buffer
	a := &agent{out: bufio.NewWriter(&out), lines: lines, wake: wake}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.reply("hang")
	}()
	// The agent polls before it hangs, so that it may take a few lines.
	deadline := time.NewTimer(100 * time.Millisecond)
	defer deadline.Stop()
	for refused := false; !refused; {
		select {
		case lines <- input{line: []byte(`{"type":"get_state"}`)}:
			if !deadline.Reset(100 * time.Millisecond) {
				t.Log("taken late")
			}
		case <-done:
			t.Fatal("the hang ended by itself")
		case <-deadline.C:
			refused = true
		}
	}
	close(wake)
	close(lines)
	<-done
	if !strings.Contains(out.String(), "agent_settled") {
		t.Error("the woken agent did not finish")
	}
}

// The help lists every word that a script is made of.
func TestUsageListsTheWords(t *testing.T) {
	var errOut bytes.Buffer
	if code := Run(strings.NewReader(""), io.Discard, &errOut, []string{"--help"}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, w := range words {
		if !strings.Contains(errOut.String(), w.help) {
			t.Errorf("--help does not list %s:\n%s", w.name, &errOut)
		}
	}
}
