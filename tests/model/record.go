package model

import (
	"bytes"
	"encoding/json"
	"sync"

	"rejoin/tests/harness"
)

// Recorder keeps what clients of one session see and send. It is safe for
// concurrent use.
type Recorder struct {
	session string

	mu       sync.Mutex
	views    []*View
	commands map[string]*Command
	states   []StateAt
}

// NewRecorder returns an empty one.
func NewRecorder(session string) *Recorder {
	return &Recorder{session: session, commands: map[string]*Command{}}
}

// Tap begins a view and returns what harness.ConnectTap calls with each of its
// frames.
func (r *Recorder) Tap(client, transport string, asked Asked) func(*harness.Frame) {
	asked.Session = r.session
	v := &View{Client: client, Transport: transport, Asked: asked}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.views = append(r.views, v)
	return func(m *harness.Frame) {
		f, ok := frame(m)
		if !ok {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		v.Frames = append(v.Frames, f)
	}
}

// frame turns what came into what is kept; ok: it belongs to a subscription.
func frame(m *harness.Frame) (f Frame, ok bool) {
	p := &m.Params
	f = Frame{Sub: p.SubscriptionID, Session: p.SessionID, Epoch: p.Epoch, Seq: p.Seq, Run: p.Run, Reason: p.Reason}
	switch m.Method {
	case "event":
		e := Event{Seq: p.Seq, TS: p.TS, Run: p.Run, Source: p.Source, CommandID: p.CommandID, Body: p.Event}
		f.Kind, f.Hash = Item, e.Hash()
	case "snapshot":
		f.Kind, f.State = Snapshot, p.StateHash
	case "synced":
		f.Kind = Synced
	case "subscription_end":
		f.Kind = End
	case "":
		return response(m)
	default:
		return f, false
	}
	return f, true
}

func response(m *harness.Frame) (f Frame, ok bool) {
	if !bytes.Contains(m.Result, []byte(`"subscriptionId"`)) {
		return f, false
	}
	var a harness.Attached
	if json.Unmarshal(m.Result, &a) != nil {
		return f, false
	}
	f = Frame{Sub: a.SubscriptionID, Session: a.SessionID, Epoch: a.Epoch, Seq: a.After, Head: a.Head, Mode: a.Mode, Reason: a.Reason}
	switch a.Status {
	case "subscribed":
		f.Kind = Attached
	case "unsubscribed":
		f.Kind = Unsubscribed
	default:
		return f, false
	}
	return f, true
}

// Sent notes a command before it is sent for the first time.
func (r *Recorder) Sent(id string, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commands[id] == nil {
		r.commands[id] = &Command{ID: id, Payload: payload}
	}
}

// Answered notes an answer to a command.
func (r *Recorder) Answered(id string, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands[id].Answers = append(r.commands[id].Answers, a)
}

// Shown notes an answer of get_snapshot.
func (r *Recorder) Shown(s StateAt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
}

// History returns a copy of what was recorded so far, without logs and books.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Session: r.session, Commands: map[string]*Command{}}
	for _, v := range r.views {
		seen := *v
		seen.Frames = v.Frames[:len(v.Frames):len(v.Frames)]
		h.Views = append(h.Views, &seen)
	}
	for id, c := range r.commands {
		sent := *c
		sent.Answers = c.Answers[:len(c.Answers):len(c.Answers)]
		h.Commands[id] = &sent
	}
	h.States = r.states[:len(r.states):len(r.states)]
	return h
}
