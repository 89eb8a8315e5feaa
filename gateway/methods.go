package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
)

// A method is one row of the method table.
type method struct {
	name  string
	index int         // in methodNames
	role  broker.Role // the least one that may call it
	// open: also before authentication.
	open bool
	// answered: without an id it makes no sense and is ignored.
	answered bool
	// effect: it changes something, and is not cut short when its client goes.
	effect bool
	// key names the session it touches in order; nil: it touches none.
	key func(c *conn, p protocol.Params) string
	// heavy says how many bytes it may answer; nil: few.
	heavy func(p protocol.Params) int
	// Either: inline answers at once, on the reader.
	inline func(c *conn, p protocol.Params) ([]byte, error)
	run    func(ctx context.Context, c *conn, r *request) (reply, error)
}

// methods is the method table, methodNames its names in order; filled once by
// init, then only read.
var (
	methods     map[string]*method
	methodNames []string
)

func init() {
	rows := []*method{
		{name: "authenticate", open: true, inline: authenticate},
		{name: "ping", open: true, inline: ping},

		{name: "server_status", heavy: heavy, run: serverStatus},
		{name: "list_sessions", heavy: heavy, run: listSessions},
		{name: "get_session", run: getSession},
		{name: "get_snapshot", heavy: heavy, run: getSnapshot},
		{name: "read_events", heavy: readEventsWeight, run: readEvents},
		{name: "command_status", run: commandStatus},
		{name: "verify_session", role: broker.RoleOperator, run: verifySession},
		{name: "list_workers", role: broker.RoleOperator, run: listWorkers},
		{name: "read_stderr", role: broker.RoleOperator, run: readStderr},

		{name: "subscribe", answered: true, key: sessionKey, run: subscribe},
		{name: "watch_sessions", answered: true, heavy: heavy, run: watchSessions},
		{name: "resync", answered: true, key: subscriptionKey, run: resync},
		{name: "unsubscribe", key: subscriptionKey, run: unsubscribe},

		{name: "start_session", role: broker.RoleOperator, effect: true, key: sessionKey, run: startSession},
		{name: "resume_session", role: broker.RoleOperator, effect: true, key: sessionKey, run: resumeSession},
		{name: "stop_session", role: broker.RoleOperator, effect: true, key: sessionKey, run: stopSession},
		{name: "delete_session", role: broker.RoleOperator, effect: true, key: sessionKey, run: deleteSession},
		{name: "set_title", role: broker.RoleOperator, effect: true, key: sessionKey, run: setTitle},
		{name: "drain_worker", role: broker.RoleAdmin, effect: true, run: drainWorker},
		{name: "send", role: broker.RoleOperator, effect: true, key: sessionKey, run: send},
	}
	for name, v := range verbs {
		rows = append(rows, &method{name: name, role: broker.RoleOperator, effect: true, key: sessionKey, run: v.run(name)})
	}
	methods = make(map[string]*method, len(rows))
	slices.SortFunc(rows, func(a, b *method) int { return strings.Compare(a.name, b.name) })
	for i, m := range rows {
		m.index = i
		methods[m.name] = m
		methodNames = append(methodNames, m.name)
	}
}

// heavy is the weight of an answer of unknown size.
func heavy(protocol.Params) int { return 1 << 20 }

// sessionKey is the session named by sessionId. One of the wrong type is none:
// the handler refuses it.
func sessionKey(_ *conn, p protocol.Params) string {
	id, _, err := p.String("sessionId")
	if err != nil {
		return ""
	}
	return id
}

// subscriptionKey is the session of the subscription named by subscriptionId.
func subscriptionKey(c *conn, p protocol.Params) string {
	id, _, err := p.Uint("subscriptionId")
	if err != nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.subs[id]; s != nil {
		return s.log.Key.Session
	}
	return ""
}

// session returns the required sessionId.
func session(p protocol.Params) (string, error) {
	id, _, err := p.String("sessionId")
	if err == nil && id == "" {
		err = protocol.Required("sessionId")
	}
	return id, err
}

// ping answers with the head of each subscription, so that a client may notice
// a silent gap.
func ping(c *conn, _ protocol.Params) ([]byte, error) {
	var few [4]*subscription
	subs := few[:0]
	c.mu.Lock()
	for _, s := range c.subs {
		if s.active {
			s.acquire()
			subs = append(subs, s)
		}
	}
	c.mu.Unlock()
	dst := append(make([]byte, 0, 64+32*len(subs)), `{"type":"pong","ts":`...)
	dst = strconv.AppendInt(dst, c.srv.cfg.Now().UnixMilli(), 10)
	dst = append(dst, `,"heads":{`...)
	for i, s := range subs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, s.id, 10)
		dst = append(dst, `":`...)
		dst = strconv.AppendUint(dst, uint64(s.w.Position().Head), 10)
		s.release()
	}
	return append(dst, "}}"...), nil
}

func serverStatus(ctx context.Context, c *conn, r *request) (reply, error) {
	list, err := c.srv.sessions.List(ctx, r.who, broker.ListParams{})
	if err != nil {
		return reply{}, err
	}
	own := c.srv.census.space(r.who.Workspace)
	var containment *protocol.Containment
	if c.srv.cfg.Containment != nil {
		is := c.srv.cfg.Containment()
		if r.who.Role < broker.RoleAdmin {
			is.Group = "" // a path of this machine
		}
		containment = &is
	}
	return encode(struct {
		ID            string                  `json:"id"`
		Address       string                  `json:"address"`
		State         string                  `json:"state"`
		Version       string                  `json:"version"`
		UptimeMs      int64                   `json:"uptimeMs"`
		Durability    string                  `json:"durability"`
		Sessions      []protocol.SessionInfo  `json:"sessions"`
		Connections   int64                   `json:"connections"`
		Subscriptions int64                   `json:"subscriptions"`
		Journal       protocol.JournalStatus  `json:"journal"`
		Containment   *protocol.Containment   `json:"containment,omitempty"`
		Cluster       *protocol.ClusterStatus `json:"cluster,omitempty"`
	}{
		c.srv.cfg.ServerID, c.address, "running", c.srv.cfg.Version, c.srv.cfg.Now().Sub(c.srv.started).Milliseconds(), c.srv.durability,
		orEmpty(list), own.connections.Load(), own.subscriptions.Load(), journalStatus(c.srv.usage(), r.who), containment, c.srv.cluster(r.who),
	})
}

// operates reports whether somebody operates the server, and so may know what
// every workspace shares.
func operates(who broker.Principal) bool { // I-A1
	return who.Role >= broker.RoleOperator && who.Workspace == protocol.DefaultWorkspace
}

// cluster is what operators see of the processes that serve the same sessions.
func (s *Server) cluster(who broker.Principal) *protocol.ClusterStatus {
	if s.cfg.Cluster == nil || !operates(who) {
		return nil
	}
	is := s.cfg.Cluster()
	return &is
}

// journalStatus leaves figures, and what the system said, to operators of the
// server's own workspace: they tell what every workspace writes.
func journalStatus(u journal.Usage, who broker.Principal) protocol.JournalStatus {
	s := protocol.JournalStatus{State: u.State.String(), Reason: u.Reason}
	if !operates(who) {
		return s
	}
	s.Detail = u.Detail
	s.UsedBytes, s.QuotaBytes, s.FreeBytes = &u.Used, &u.Quota, &u.Free
	for _, part := range u.Shards {
		s.Shards = append(s.Shards, protocol.ShardStatus{State: part.State.String(), UsedBytes: part.Used, QuotaBytes: part.Quota})
	}
	return s
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// encode is for results off the hot paths.
func encode(v any) (reply, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return reply{}, err
	}
	return reply{result: bytes.TrimSuffix(b.Bytes(), []byte{'\n'})}, nil
}
