package mockmodel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// requestBytesMax bounds what an agent may send.
const requestBytesMax = 64 << 20

// Server answers on a port of 127.0.0.1 until its test ends.
type Server struct {
	http *httptest.Server
	over chan struct{} // closed at the end of the test

	mu       sync.Mutex
	answers  map[string][][]Step
	requests []*Request
	calls    int           // ids of tool calls given so far
	changed  chan struct{} // closed and renewed when requests change
	faults   []error
}

// Start returns a running server. What it could not make sense of fails the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{over: make(chan struct{}), answers: map[string][][]Step{}, changed: make(chan struct{})}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	tb.Cleanup(func() {
		close(s.over)
		s.http.CloseClientConnections()
		s.http.Close()
		if err := errors.Join(s.faults...); err != nil {
			tb.Errorf("the model was asked wrongly: %v", err)
		}
	})
	return s
}

// URL is what agents call the base URL of the API.
func (s *Server) URL() string { return s.http.URL + "/v1" }

// On gives the answers to the requests whose newest user message is prompt.
func (s *Server) On(prompt string, answers ...[]Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[prompt] = answers
}

// Requests returns what was asked so far, in the order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies()
}

// copies runs under mu.
func (s *Server) copies() []Request {
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// Await waits until what was asked satisfies ok, and returns it.
func (s *Server) Await(ctx context.Context, what string, ok func([]Request) bool) ([]Request, error) {
	for {
		s.mu.Lock()
		all, changed := s.copies(), s.changed
		s.mu.Unlock()
		if ok(all) {
			return all, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, fmt.Errorf("mockmodel: %s did not come: %w", what, context.Cause(ctx))
		}
	}
}

// note changes what is known of requests.
func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		s.note(func() { s.faults = append(s.faults, fmt.Errorf("%s %s", r.Method, r.URL.Path)) })
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, requestBytesMax))
	if err != nil {
		return // the agent has gone
	}
	req, err := decode(body)
	if err != nil {
		s.note(func() { s.faults = append(s.faults, err) })
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var steps []Step
	s.note(func() {
		s.requests = append(s.requests, req)
		steps = s.answer(req)
	})
	whole := s.say(w, r, req.Model, steps)
	s.note(func() { req.Answered, req.HungUp = whole, r.Context().Err() != nil })
}

// answer takes the next answer to a request; it runs under mu.
func (s *Server) answer(r *Request) []Step {
	queue, ok := s.answers[r.Prompt]
	if !ok || len(queue) == 0 {
		return script(r.Prompt, r.Results)
	}
	if len(queue) > 1 {
		s.answers[r.Prompt] = queue[1:]
	}
	return queue[0]
}

// callID names a tool call.
func (s *Server) callID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return fmt.Sprintf("call_%d", s.calls)
}

// say streams an answer and reports whether it came to its end.
func (s *Server) say(w http.ResponseWriter, r *http.Request, model string, steps []Step) (whole bool) {
	if len(steps) > 0 && steps[0].status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(steps[0].status)
		fmt.Fprintf(w, `{"error":{"type":"mock","message":"the model fails with %d"}}`, steps[0].status)
		return true
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := stream{w: w, model: model}
	out.delta(delta{Role: "assistant"})
	for _, st := range steps {
		switch {
		case st.hold != nil:
			select {
			case <-st.hold.open:
			case <-r.Context().Done():
				return false
			case <-s.over:
				return false
			}
		case st.cut:
			panic(http.ErrAbortHandler) // how net/http is told to break a connection
		case st.call:
			out.call(s.callID(), st.command)
		default:
			for _, word := range words(st.text) {
				out.delta(delta{Content: word})
			}
			for _, word := range words(st.think) {
				out.delta(delta{Reasoning: word})
			}
		}
	}
	return out.end()
}

// stream writes chunks of Chat Completions as server-sent events.
type stream struct {
	w      http.ResponseWriter
	model  string
	calls  int
	deltas int
	err    error
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    int      `json:"index"`
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type choice struct {
	Index  int     `json:"index"`
	Delta  delta   `json:"delta"`
	Finish *string `json:"finish_reason"`
}

// promptTokens is what every request costs.
const promptTokens = 100

func (o *stream) chunk(d delta, finish *string, u *usage) {
	b, err := json.Marshal(struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int      `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   *usage   `json:"usage,omitempty"`
	}{"chatcmpl-mock", "chat.completion.chunk", 1, o.model, []choice{{Delta: d, Finish: finish}}, u})
	if err == nil {
		_, err = fmt.Fprintf(o.w, "data: %s\n\n", b)
	}
	if err == nil {
		err = http.NewResponseController(o.w).Flush()
	}
	o.err = errors.Join(o.err, err)
}

func (o *stream) delta(d delta) {
	if d.Content != "" || d.Reasoning != "" {
		o.deltas++
	}
	o.chunk(d, nil, nil)
}

func (o *stream) call(id, command string) {
	args, err := json.Marshal(map[string]string{"command": command})
	o.err = errors.Join(o.err, err)
	o.delta(delta{ToolCalls: []toolCall{{o.calls, id, "function", function{"bash", string(args)}}}})
	o.calls++
}

// end closes the answer and reports whether all of it was taken.
func (o *stream) end() bool {
	finish := "stop"
	if o.calls > 0 {
		finish = "tool_calls"
	}
	o.chunk(delta{}, &finish, &usage{promptTokens, o.deltas, promptTokens + o.deltas})
	if _, err := io.WriteString(o.w, "data: [DONE]\n\n"); err != nil {
		o.err = errors.Join(o.err, err)
	}
	return o.err == nil
}
