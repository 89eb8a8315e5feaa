package gateway

import (
	"context"
	"math"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

func startSession(ctx context.Context, c *conn, r *request) (reply, error) {
	s, err := parseStart(r.params)
	if err != nil {
		return reply{}, err
	}
	info, err := c.srv.lifecycle.Start(ctx, r.who, s)
	if err != nil {
		return reply{}, err
	}
	rep, err := encodeSession(info)
	rep.session = info.ID
	return rep, err
}

// parseStart reads the parameters of start_session: unknown ones are ignored,
// known ones must be of their type.
func parseStart(p protocol.Params) (s broker.StartParams, err error) {
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"agent", &s.Agent},
		{"cwd", &s.Cwd},
		{"defaultCwd", &s.DefaultCwd},
		{"name", &s.Name},
		{"title", &s.Title},
		{"adapter", &s.Adapter},
		{"sessionId", &s.SessionID},
		{"restart", &s.Restart},
	} {
		if *f.to, _, err = p.String(f.name); err != nil {
			return s, err
		}
	}
	if p.Has("sessionId") && !protocol.ValidSessionID(s.SessionID) {
		return s, invalid("sessionId must match [A-Za-z0-9_-]{1,64}")
	}
	if s.Restart != "" && s.Restart != protocol.RestartNever && s.Restart != protocol.RestartResume {
		return s, invalid("restart must be never or resume")
	}
	if s.CommandID, err = commandID(p); err != nil {
		return s, err
	}
	if s.Args, _, err = p.Strings("args"); err != nil {
		return s, err
	}
	if s.Argv, _, err = p.Strings("argv"); err != nil {
		return s, err
	}
	if s.Labels, _, err = p.StringMap("labels"); err != nil {
		return s, err
	}
	s.Env, _, err = p.StringMap("env")
	return s, err
}

func resumeSession(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	command, err := commandID(r.params)
	if err != nil {
		return reply{}, err
	}
	expect, err := parseExpect(r.params)
	if err != nil {
		return reply{}, err
	}
	info, err := c.srv.lifecycle.Resume(ctx, r.who, id, command, expect)
	if err != nil {
		return reply{}, err
	}
	return encodeSession(info)
}

func stopSession(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	grace, err := parseGrace(r.params)
	if err != nil {
		return reply{}, err
	}
	if err := c.srv.lifecycle.Stop(ctx, r.who, id, grace); err != nil {
		return reply{}, err
	}
	return encodeStatus(id, "stopped")
}

// parseGrace: absent is zero, the default; an explicit 0 is as short as it gets.
func parseGrace(p protocol.Params) (time.Duration, error) {
	ms, ok, err := p.Uint("graceMs")
	switch {
	case err != nil || !ok:
		return 0, err
	case ms > uint64(protocol.GraceMax/time.Millisecond):
		return 0, invalid("graceMs must be at most %d", protocol.GraceMax/time.Millisecond).Met("GraceMax")
	}
	return max(time.Duration(ms)*time.Millisecond, time.Millisecond), nil
}

func deleteSession(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	if err := c.srv.lifecycle.Delete(ctx, r.who, id); err != nil {
		return reply{}, err
	}
	return encodeStatus(id, "deleted")
}

func listSessions(ctx context.Context, c *conn, r *request) (reply, error) {
	var l broker.ListParams
	limit, ok, err := r.params.Uint("limit")
	if err != nil {
		return reply{}, err
	}
	if ok && limit == 0 {
		return reply{}, invalid("limit must be at least 1")
	}
	l.Limit = int(min(limit, math.MaxInt32))
	if l.Before, _, err = r.params.String("before"); err != nil {
		return reply{}, err
	}
	if l.State, _, err = r.params.String("state"); err != nil {
		return reply{}, err
	}
	switch l.State {
	case "", "running", "exited", "interrupted":
	default:
		return reply{}, invalid("state must be running, exited or interrupted")
	}
	if l.Agent, _, err = r.params.String("agent"); err != nil {
		return reply{}, err
	}
	list, err := c.srv.sessions.List(ctx, r.who, l)
	if err != nil {
		return reply{}, err
	}
	return encode(orEmpty(list))
}

func getSession(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	info, err := c.srv.sessions.Info(ctx, r.who, id)
	if err != nil {
		return reply{}, err
	}
	return encode(info)
}

func setTitle(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	title, ok, err := r.params.String("title")
	if err != nil {
		return reply{}, err
	}
	if !ok {
		return reply{}, protocol.Required("title")
	}
	if err := c.srv.commands.SetTitle(ctx, r.who, id, title); err != nil {
		return reply{}, err
	}
	return encode(struct {
		SessionID string `json:"sessionId"`
		Title     string `json:"title"`
	}{id, title})
}

func readStderr(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	run, _, err := r.params.Uint("run")
	if err != nil {
		return reply{}, err
	}
	text, err := c.srv.sessions.Stderr(ctx, r.who, id, protocol.Run(run))
	if err != nil {
		return reply{}, err
	}
	return encode(struct {
		Text string `json:"text"`
	}{text})
}

func encodeSession(info protocol.SessionInfo) (reply, error) {
	return encode(struct {
		SessionID string               `json:"sessionId"`
		Session   protocol.SessionInfo `json:"session"`
	}{info.ID, info})
}

func encodeStatus(id, status string) (reply, error) {
	return encode(struct {
		SessionID string `json:"sessionId"`
		Status    string `json:"status"`
	}{id, status})
}
