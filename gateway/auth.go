package gateway

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"rejoin/broker"
	"rejoin/protocol"
)

// A refusal is why a connection ends after the answers at hand.
type refusal struct {
	code   int
	reason string
}

func errTokenGone() *protocol.Error {
	return protocol.Errorf(protocol.ReasonAuthFailed, "the token was revoked, was changed or has expired")
}

// authenticate makes the connection who shows the token. The first wrong one is
// the last: the connection ends.
func authenticate(c *conn, p protocol.Params) ([]byte, error) {
	if c.refused != nil { // earlier in the same batch
		return nil, errWrongToken()
	}
	now := time.Now()
	from, counts := sourceOf(c.pipe.Name())
	if counts && c.srv.attempts.banned(from, now) {
		err := protocol.Errorf(protocol.ReasonOverloaded, "too many wrong tokens from this address, %d; wait %v",
			c.srv.cfg.AuthFailures, protocol.AuthFailureWindow).Met("AuthFailuresDefault")
		c.refused = &refusal{CloseOverloaded, "too many wrong tokens"}
		c.audit(broker.Principal{}, "authenticate", "", "", err)
		return nil, err
	}
	token, _, perr := p.String("token")
	who, ok := c.srv.auth.Authenticate(token)
	if !ok || perr != nil { // a token that is no string is a wrong one
		if counts && c.srv.attempts.failed(from, now) {
			c.srv.counters.refuse("AuthSourcesMax")
		}
		err := errWrongToken()
		c.refused = &refusal{CloseUnauthorized, "invalid token"}
		c.srv.log.Warn("invalid token", slog.Uint64(protocol.LogConn, c.id), slog.String("peer", c.pipe.Name()), slog.String("name", who.Name))
		c.audit(who, "authenticate", "", "", err)
		return nil, err
	}
	if news, err := c.become(who); err != nil {
		c.audit(who, "authenticate", "", "", err)
		return nil, err
	} else if news {
		c.audit(who, "authenticate", "", "", nil)
	}
	if !c.srv.auth.Valid(who) { // revoked since: the revocation may not have seen this connection
		c.expel()
	}
	return []byte(`{"authenticated":true}`), nil
}

func errWrongToken() *protocol.Error {
	return protocol.Errorf(protocol.ReasonAuthFailed, "invalid token")
}

func errInUse() *protocol.Error {
	return protocol.Errorf(protocol.ReasonForbidden, "this connection is in use under another token; open one of its own")
}

// become makes the connection who's; news says that it was not yet. It may change
// hands for as long as nothing of it is open.
func (c *conn) become(who broker.Principal) (news bool, err *protocol.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.authed && c.who == who
	switch {
	case same:
		return false, nil
	case c.closing || c.dead:
		return false, errTokenGone()
	case c.authed && (len(c.subs)+len(c.watching)+c.lanes.open > 0):
		return false, errInUse()
	case !c.srv.census.enter(who, c.srv.cfg.ConnectionsPerToken):
		c.refused = &refusal{CloseOverloaded, "too many connections"}
		return false, protocol.Errorf(protocol.ReasonOverloaded, "more than %d connections of this token", c.srv.cfg.ConnectionsPerToken).Met("ConnectionsPerTokenDefault")
	}
	if c.counted != nil {
		c.srv.census.leave(*c.counted)
	}
	c.who, c.authed, c.counted = who, true, &who
	if c.authTime != nil {
		c.authTime.Stop()
	}
	return true, nil
}

// expel ends a connection whose token is good no more: its subscriptions end with
// reason forbidden and nothing of them follows; then it is closed, after
// drainTimeout even if the client reads nothing.
func (c *conn) expel() {
	c.mu.Lock()
	if !c.authed || c.dead {
		c.mu.Unlock()
		return
	}
	who := c.who
	c.authed = false
	before := len(c.out)
	var over []*subscription
	for _, id := range slices.Sorted(maps.Keys(c.subs)) {
		s := c.subs[id]
		if s.active {
			c.out = appendSubscriptionEnd(c.out, s, endForbidden)
		}
		if c.remove(s) {
			over = append(over, s)
		}
	}
	c.unsent += len(c.out) - before
	watches := slices.Collect(maps.Values(c.watching))
	c.finishLocked(CloseUnauthorized, "the token is good no more")
	end := time.Now().Add(drainTimeout)
	c.cut.CompareAndSwap(0, end.UnixNano())
	c.expeller = time.AfterFunc(drainTimeout, func() { c.kill(CloseUnauthorized, "the token is good no more") })
	c.mu.Unlock()

	for _, s := range over {
		s.release()
	}
	for _, w := range watches {
		c.dropWatch(w)
	}
	c.logTransport("set deadline", c.pipe.SetWriteDeadline(time.Unix(0, c.cut.Load())))
	c.srv.log.Info("connection ended: its token is good no more", slog.Uint64(protocol.LogConn, c.id), slog.String("name", who.Name))
	c.audit(who, AuditDisconnect, "", "", errTokenGone())
}

// tokensChanged ends the connections of those who may come no more. It does not
// wait for clients.
func (s *Server) tokensChanged(change broker.TokenChange) {
	s.auditTokens(change)
	for _, c := range s.open() {
		if who, authed := c.principal(); authed && !s.auth.Valid(who) {
			c.expel()
		}
	}
}
