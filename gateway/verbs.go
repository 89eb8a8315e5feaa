package gateway

import (
	"context"

	"rejoin/protocol"
)

// A verb is a portable command: the members of its own, besides sessionId,
// commandId and expect. They are what reaches the adapter.
type verb []verbMember

type verbMember struct {
	name     string
	required bool
	check    func(p protocol.Params, name string) error
}

// verbs are the portable commands of docs/protocol.md.
var verbs = map[string]verb{
	"prompt":    {{"text", true, isString}, {"images", false, isArray}},
	"steer":     {{"text", true, isString}},
	"follow_up": {{"text", true, isString}},
	"interrupt": {},
	"respond":   {{"interactionId", true, isString}, {"outcome", true, isOutcome}, {"value", false, isAny}},
	"set_model": {{"model", true, isString}},
}

func isString(p protocol.Params, name string) error {
	_, _, err := p.String(name)
	return err
}

func isArray(p protocol.Params, name string) error {
	if v, _ := p.Raw(name); v[0] != '[' {
		return invalid("%s must be an array", name)
	}
	return nil
}

func isOutcome(p protocol.Params, name string) error {
	s, _, err := p.String(name)
	if err != nil {
		return err
	}
	switch s {
	case "allow", "deny", "answer", "cancel":
		return nil
	}
	return invalid("%s must be allow, deny, answer or cancel", name)
}

func isAny(protocol.Params, string) error { return nil }

// run returns the handler of the verb of that name.
func (v verb) run(name string) func(context.Context, *conn, *request) (reply, error) {
	return func(ctx context.Context, c *conn, r *request) (reply, error) {
		id, err := session(r.params)
		if err != nil {
			return reply{}, err
		}
		own, err := v.params(r.params)
		if err != nil {
			return reply{}, err
		}
		return c.command(ctx, r, id, protocol.CommandInput{Verb: name, Params: own})
	}
}

// params returns the verb's own members as an object, in the order of the table,
// so that equal commands are equal bytes.
func (v verb) params(p protocol.Params) (protocol.RawJSON, error) {
	dst := []byte{'{'}
	for _, m := range v {
		if !p.Has(m.name) {
			if m.required {
				return nil, protocol.Required(m.name)
			}
			continue
		}
		if err := m.check(p, m.name); err != nil {
			return nil, err
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = protocol.AppendString(dst, m.name)
		dst = append(dst, ':')
		value, _ := p.Raw(m.name)
		dst = protocol.Compact(dst, value)
	}
	return append(dst, '}'), nil
}
