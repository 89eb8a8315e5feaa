package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
)

// handle answers one request. It runs on the bus's goroutine and never blocks:
// a command is admitted here, so that the order of arrival is the order of
// admission; everything that waits does so in a goroutine of its own.
func (w *Worker) handle(t tenure, data []byte, reply func([]byte)) {
	answer := func(r protocol.WorkerReply) { reply(w.encode(&r)) }
	var req protocol.WorkerRequest
	if err := json.Unmarshal(data, &req); err != nil {
		answer(protocol.WorkerReply{Error: w.asError(err, protocol.Key{})})
		return
	}
	k := protocol.Key{Workspace: req.Workspace, Session: req.Session}
	switch req.Op {
	case protocol.OpCommand:
		w.command(k, req.Command, answer)
	case protocol.OpStart, protocol.OpResume:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.begin(t, &req) })
	case protocol.OpStop:
		w.stop(t, k, &req, answer)
	case protocol.OpTitle:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.title(t.ops, k, req.Title) })
	case protocol.OpStatus:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.statuses(t.ops, k, req.IDs) })
	case protocol.OpInfo:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.infos(k) })
	case protocol.OpStderr:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.stderrOf(k, req.Run) })
	case protocol.OpFiles:
		w.inWork(k, answer, func() protocol.WorkerReply { return w.removeFiles(t.ops, k) })
	case protocol.OpDrain, protocol.OpUndrain:
		w.inWork(k, answer, func() protocol.WorkerReply {
			return w.drain(t.ops, drain{on: req.Op == protocol.OpDrain, move: req.Move})
		})
	default:
		answer(protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonUnsupported, "worker does not know %q", req.Op)})
	}
}

// inWork answers with what f returns, from a goroutine of the worker.
func (w *Worker) inWork(k protocol.Key, answer func(protocol.WorkerReply), f func() protocol.WorkerReply) {
	if err := w.spend(func() { answer(f()) }); err != nil {
		answer(protocol.WorkerReply{Error: w.asError(err, k)})
	}
}

// encode keeps the bytes of raw members as they are.
func (w *Worker) encode(r *protocol.WorkerReply) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		w.log.Error("encode reply", slog.Any(protocol.LogError, err))
		return []byte(`{"error":{"reason":"internal","message":"internal error","retryable":false}}`)
	}
	return b.Bytes()
}

func (w *Worker) command(k protocol.Key, in *protocol.CommandInput, answer func(protocol.WorkerReply)) {
	s := w.session(k)
	switch {
	case s == nil:
		answer(protocol.WorkerReply{NotOwner: true})
	case in == nil || in.ID == "":
		answer(protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInvalidParams, "command has no id")})
	default:
		s.admit(in, answer)
	}
}

// begin starts or resumes a session.
func (w *Worker) begin(t tenure, req *protocol.WorkerRequest) protocol.WorkerReply {
	if req.Record == nil {
		return protocol.WorkerReply{Error: protocol.Errorf(protocol.ReasonInvalidParams, "request has no record")}
	}
	k := req.Record.Key()
	s, err := w.launch(t, req.Record, req.Op == protocol.OpResume)
	switch {
	case errors.Is(err, journal.ErrFenced):
		return protocol.WorkerReply{NotOwner: true}
	case err != nil:
		return protocol.WorkerReply{Error: w.asError(err, k)}
	}
	info := s.info()
	return protocol.WorkerReply{Info: &info}
}

// stop begins the ladder at once, so that no later command is admitted, and
// answers when the child is gone and its last record is durable, or recordWait
// after its death.
func (w *Worker) stop(t tenure, k protocol.Key, req *protocol.WorkerRequest, answer func(protocol.WorkerReply)) {
	s := w.session(k)
	if s == nil {
		answer(protocol.WorkerReply{NotOwner: true})
		return
	}
	grace := time.Duration(req.GraceMs) * time.Millisecond
	if grace <= 0 {
		grace = protocol.GraceDefault
	}
	why := endStopped
	if req.Move {
		why = endServerStop
	}
	s.requestStop(why, min(grace, protocol.GraceMax))
	w.inWork(k, answer, func() protocol.WorkerReply {
		if err := s.awaitEnd(t.life); err != nil {
			return protocol.WorkerReply{Error: w.asError(err, k)}
		}
		if s.lost() {
			return protocol.WorkerReply{NotOwner: true}
		}
		info := s.info()
		return protocol.WorkerReply{Info: &info}
	})
}

func (w *Worker) title(ctx context.Context, k protocol.Key, title string) protocol.WorkerReply {
	s := w.session(k)
	if s == nil {
		return protocol.WorkerReply{NotOwner: true}
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	switch err := s.retitle(ctx, title); {
	case errors.Is(err, journal.ErrFenced):
		return protocol.WorkerReply{NotOwner: true}
	case err != nil:
		return protocol.WorkerReply{Error: w.asError(err, k)}
	}
	info := s.info()
	return protocol.WorkerReply{Info: &info}
}

func (w *Worker) statuses(ctx context.Context, k protocol.Key, ids []string) protocol.WorkerReply {
	s := w.session(k)
	if s == nil {
		return protocol.WorkerReply{NotOwner: true}
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DispatchTimeout)
	defer cancel()
	out, err := s.statuses(ctx, ids)
	switch {
	case errors.Is(err, journal.ErrFenced):
		return protocol.WorkerReply{NotOwner: true}
	case err != nil:
		return protocol.WorkerReply{Error: w.asError(err, k)}
	}
	return protocol.WorkerReply{Statuses: out}
}

// infos answers for one session, or for all when k names none.
func (w *Worker) infos(k protocol.Key) protocol.WorkerReply {
	var list []*session
	if k.Session != "" {
		s := w.session(k)
		if s == nil {
			return protocol.WorkerReply{NotOwner: true}
		}
		list = append(list, s)
	} else {
		list = w.list()
	}
	out := make([]protocol.LiveInfo, 0, len(list))
	for _, s := range list {
		if s.begun() {
			out = append(out, protocol.LiveInfo{Workspace: s.key.Workspace, SessionInfo: s.info()})
		}
	}
	if k.Session != "" && len(out) == 0 {
		return protocol.WorkerReply{NotOwner: true}
	}
	return protocol.WorkerReply{Infos: out}
}
