package gateway

import (
	"context"
	"strings"

	"rejoin/protocol"
)

// commandID reads the optional commandId.
func commandID(p protocol.Params) (string, error) {
	id, ok, err := p.String("commandId")
	if err != nil {
		return "", err
	}
	if ok && !protocol.ValidCommandID(id) {
		return "", tooLong(id, protocol.CommandIDBytesMax, "CommandIDBytesMax", invalid("commandId must be 1 to %d printable ASCII characters", protocol.CommandIDBytesMax))
	}
	return id, nil
}

// parseExpect reads the optional expect; nil when there is none.
func parseExpect(p protocol.Params) (*protocol.Expect, error) {
	o, ok, err := p.Object("expect")
	if err != nil || !ok {
		return nil, err
	}
	if name, ok := o.Unknown("head", "run", "status", "turn", "epoch"); ok {
		return nil, invalid("expect.%s is nothing to expect", name) // a typing error must not lift the condition
	}
	var e protocol.Expect
	if n, ok, err := o.Uint("head"); err != nil {
		return nil, inExpect(err)
	} else if ok {
		head := protocol.Seq(n)
		e.Head = &head
	}
	if n, ok, err := o.Uint("run"); err != nil {
		return nil, inExpect(err)
	} else if ok {
		run := protocol.Run(n)
		e.Run = &run
	}
	if s, ok, err := o.String("status"); err != nil {
		return nil, inExpect(err)
	} else if ok {
		status := protocol.Status(s)
		if !knownStatus(status) {
			return nil, invalid("expect.status is no status of a session")
		}
		e.Status = &status
	}
	if s, ok, err := o.String("turn"); err != nil {
		return nil, inExpect(err)
	} else if ok {
		e.Turn = &s
	}
	if s, ok, err := o.String("epoch"); err != nil {
		return nil, inExpect(err)
	} else if ok {
		epoch := protocol.Epoch(s)
		e.Epoch = &epoch
	}
	return &e, nil
}

// inExpect says that the member that err names stands in expect.
func inExpect(err error) error {
	if e, ok := protocol.AsError(err); ok {
		e.Message = "expect." + e.Message
		return e
	}
	return err
}

func knownStatus(s protocol.Status) bool {
	switch s {
	case protocol.StatusStarting, protocol.StatusIdle, protocol.StatusBusy, protocol.StatusWaiting, protocol.StatusEnded, protocol.StatusInterrupted:
		return true
	}
	return false
}

func send(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	value, ok := r.params.Raw("command")
	if !ok {
		return reply{}, protocol.Required("command")
	}
	return c.command(ctx, r, id, protocol.CommandInput{Command: protocol.Compact(nil, value)})
}

// command completes in by what every command has and hands it to its owner.
func (c *conn) command(ctx context.Context, r *request, session string, in protocol.CommandInput) (reply, error) {
	var err error
	if in.ID, err = commandID(r.params); err != nil {
		return reply{}, err
	}
	if in.Expect, err = parseExpect(r.params); err != nil {
		return reply{}, err
	}
	if err := c.checkMinted(ctx, r, session, in.ID); err != nil {
		return reply{}, err
	}
	if in.ID == "" {
		in.ID = protocol.NewCommandID(c.srv.cfg.Now())
	}
	in.Client = protocol.CommandClient{Name: r.who.Name, Connection: c.id}
	res, err := c.srv.commands.Command(ctx, r.who, session, in)
	if err != nil {
		return reply{command: in.ID}, err
	}
	rep, err := encode(res)
	rep.command = in.ID
	return rep, err
}

// checkMinted refuses an id of the server's form that the session does not know:
// clients may repeat such an id, not invent one.
func (c *conn) checkMinted(ctx context.Context, r *request, session, id string) error {
	if !strings.HasPrefix(id, protocol.ServerCommandPrefix) {
		return nil
	}
	st, err := c.srv.commands.CommandStatus(ctx, r.who, session, []string{id})
	if err != nil {
		return err
	}
	if len(st) != 1 || st[0].Outcome == protocol.OutcomeUnknown {
		return invalid("commandId: the prefix %s is the server's", protocol.ServerCommandPrefix)
	}
	return nil
}

func commandStatus(ctx context.Context, c *conn, r *request) (reply, error) {
	id, err := session(r.params)
	if err != nil {
		return reply{}, err
	}
	ids, ok, err := r.params.Strings("commandIds")
	switch {
	case err != nil:
		return reply{}, err
	case !ok:
		return reply{}, protocol.Required("commandIds")
	case len(ids) > protocol.CommandStatusIDsMax:
		return reply{}, invalid("more than %d commandIds", protocol.CommandStatusIDsMax).Met("CommandStatusIDsMax")
	}
	for _, id := range ids {
		if !protocol.ValidCommandID(id) {
			return reply{}, tooLong(id, protocol.CommandIDBytesMax, "CommandIDBytesMax", invalid("commandIds must be 1 to %d printable ASCII characters each", protocol.CommandIDBytesMax))
		}
	}
	st, err := c.srv.commands.CommandStatus(ctx, r.who, id, ids)
	if err != nil {
		return reply{}, err
	}
	return encode(struct {
		Results []protocol.CommandStatus `json:"results"`
	}{orEmpty(st)})
}
