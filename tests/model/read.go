package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"rejoin/tests/harness"
)

// ReadMore reads the log by pages from where l ends to the head and returns that;
// an empty l learns its epoch and floor. Each page may take harness.Patience. A page of another epoch is an error:
// the caller knows when that may be.
func ReadMore(ctx context.Context, c harness.Caller, session string, l *Log) (head uint64, err error) {
	for {
		var page struct {
			Events []struct {
				SessionID string          `json:"sessionId"`
				Seq       uint64          `json:"seq"`
				TS        int64           `json:"ts"`
				Run       uint64          `json:"run"`
				Source    string          `json:"source"`
				CommandID string          `json:"commandId"`
				Event     json.RawMessage `json:"event"`
			} `json:"events"`
			Head  uint64 `json:"head"`
			Floor uint64 `json:"floor"`
			Epoch string `json:"epoch"`
		}
		after := l.Head()
		if l.Epoch == "" {
			info, err := Info(ctx, c, session)
			if err != nil {
				return 0, err
			}
			l.Epoch, l.Floor = info.Epoch, info.Floor
			after = l.Floor - 1
		}
		asking, cancel := context.WithTimeout(ctx, harness.Patience)
		raw, err := c.Call(asking, "read_events", map[string]any{
			"sessionId": session, "after": after, "epoch": l.Epoch, "limit": 1000, "maxBytes": 8 << 20,
		})
		cancel()
		if err != nil {
			return 0, fmt.Errorf("read_events of %s after %d: %w", session, after, err)
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return 0, err
		}
		for _, e := range page.Events {
			if e.SessionID != session {
				return 0, fmt.Errorf("broke I-A1: read_events of %s gave an event of %s", session, e.SessionID)
			}
			l.Events = append(l.Events, Event{Seq: e.Seq, TS: e.TS, Run: e.Run, Source: e.Source, CommandID: e.CommandID, Body: e.Event})
		}
		if page.Epoch != l.Epoch || l.Head() >= page.Head {
			return page.Head, nil
		}
		if len(page.Events) == 0 {
			return 0, fmt.Errorf("broke I-J4: read_events of %s after %d gave nothing though the head is %d", session, l.Head(), page.Head)
		}
	}
}

// SessionInfo is what get_session tells.
type SessionInfo struct {
	State  string `json:"state"`
	Status string `json:"status"`
	PID    *int   `json:"pid"`
	Epoch  string `json:"epoch"`
	Run    uint64 `json:"run"`
	Head   uint64 `json:"head"`
	Floor  uint64 `json:"floor"`
}

// Info asks for it.
func Info(ctx context.Context, c harness.Caller, session string) (i SessionInfo, err error) {
	raw, err := c.Call(ctx, "get_session", map[string]any{"sessionId": session})
	if err != nil {
		return i, fmt.Errorf("get_session: %w", err)
	}
	return i, json.Unmarshal(raw, &i)
}

// Send sends one command and returns the answer in the model's terms. err is not
// nil when no answer came.
func Send(ctx context.Context, c harness.Caller, session, id string, payload json.RawMessage) (Answer, error) {
	raw, err := c.Call(ctx, "send", map[string]any{"sessionId": session, "commandId": id, "command": payload})
	if err != nil {
		return refusal(err)
	}
	var r struct {
		SessionID string `json:"sessionId"`
		Status    string `json:"status"`
		CommandID string `json:"commandId"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Answer{}, err
	}
	if r.SessionID != session || r.Status != "sent" || r.CommandID != id || r.Seq == 0 {
		return Answer{}, fmt.Errorf("send answered %s", raw)
	}
	return Answer{Seq: r.Seq, Duplicate: r.Duplicate}, nil
}

func refusal(err error) (Answer, error) {
	var refused *harness.RPCError
	if !errors.As(err, &refused) {
		return Answer{}, err
	}
	return Answer{Code: refused.Code, Reason: refused.Data.Reason, Retryable: refused.Data.Retryable}, nil
}
