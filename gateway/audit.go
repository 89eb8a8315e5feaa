package gateway

import (
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

// An AuditEntry says who did, or tried, what. It carries no payload and no secret.
type AuditEntry struct {
	At         time.Time
	Who        broker.Principal // zero: nobody knows
	Connection uint64           // as in the log and in command events; zero: none
	Remote     string           // network and address of the peer
	Method     string           // of the request, or one of the audit events
	SessionID  string           // empty: none, or one that cannot be
	CommandID  string           // empty: none, or one that cannot be
	Err        *protocol.Error  // nil: it was done
}

// Audit events that are no requests.
const (
	AuditDisconnect   = "disconnect"    // the server ended a connection whose token is good no more
	AuditTokenAdded   = "token_added"   // a token came to the token file
	AuditTokenRemoved = "token_removed" // one was removed, was changed, or has expired
)

// audit tells the audit log of something that who did on this connection.
func (c *conn) audit(who broker.Principal, method, session, command string, err *protocol.Error) {
	if c.srv.cfg.Audit == nil {
		return
	}
	c.srv.cfg.Audit(AuditEntry{
		At: c.srv.cfg.Now(), Who: who, Connection: c.id, Remote: c.pipe.Name(), Method: method,
		SessionID: session, CommandID: command, Err: err,
	})
}

// auditCall is audit for a request with its parameters; what the reply knows
// better counts.
func (c *conn) auditCall(m *method, r *request, rep reply, err *protocol.Error) {
	if c.srv.cfg.Audit == nil || !m.effect && (err == nil || err.Reason != protocol.ReasonForbidden) {
		return
	}
	session, command := rep.session, rep.command
	if session == "" {
		if s, _, perr := r.params.String("sessionId"); perr == nil && protocol.ValidSessionID(s) {
			session = s
		}
	}
	if command == "" {
		if s, _, perr := r.params.String("commandId"); perr == nil && protocol.ValidCommandID(s) {
			command = s
		}
	}
	c.audit(r.who, m.name, session, command, err)
}

// auditTokens tells the audit log of a change of the token file.
func (s *Server) auditTokens(change broker.TokenChange) {
	if s.cfg.Audit == nil {
		return
	}
	now := s.cfg.Now()
	for _, p := range change.Removed {
		s.cfg.Audit(AuditEntry{At: now, Who: p, Method: AuditTokenRemoved})
	}
	for _, p := range change.Added {
		s.cfg.Audit(AuditEntry{At: now, Who: p, Method: AuditTokenAdded})
	}
}
