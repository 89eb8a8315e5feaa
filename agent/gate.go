package agent

import (
	"strconv"
	"strings"

	"rejoin/protocol"
)

// phrase makes the line of a command, and what it resolves if it is an answer:
// verb and raw send pass the same gate.
func (t *Talk) phrase(s *protocol.State, r *Request) (Phrase, *protocol.InteractionResolved, error) {
	if r.Verb == "respond" {
		return t.respond(s, r)
	}
	p, err := t.speech.Phrase(s, r)
	if err != nil || p.Dialog == "" {
		return p, nil, err
	}
	i, err := pending(s, r, t.interactionID(p.Dialog))
	if err != nil {
		return p, nil, err
	}
	return p, resolved(i.InteractionID, r.Client, p.Outcome), nil
}

// respond makes the answer to an interaction.
func (t *Talk) respond(s *protocol.State, r *Request) (Phrase, *protocol.InteractionResolved, error) {
	if t.speech.Answer == nil {
		return Phrase{}, nil, Unsupported(r.Verb, t.speech.Name)
	}
	p, err := protocol.ParseParams(r.Value)
	if err != nil {
		return Phrase{}, nil, err
	}
	id, ok, err := p.String("interactionId")
	if err != nil || !ok {
		return Phrase{}, nil, orRequired(err, "interactionId")
	}
	outcome, ok, err := p.String("outcome")
	if err != nil || !ok {
		return Phrase{}, nil, orRequired(err, "outcome")
	}
	i, err := pending(s, r, id)
	if err != nil {
		return Phrase{}, nil, err
	}
	dialog, mine := strings.CutPrefix(id, t.interactionID(""))
	if !mine {
		return Phrase{}, nil, protocol.Errorf(protocol.ReasonInternal, "interaction %s is of another run", id)
	}
	value, _ := p.Raw("value")
	line, err := t.speech.Answer(i, dialog, outcome, value)
	if err != nil {
		return Phrase{}, nil, err
	}
	return Phrase{Line: line, Type: r.Verb, Dialog: dialog, Outcome: outcome}, resolved(id, r.Client, outcome), nil
}

func orRequired(err error, name string) error {
	if err != nil {
		return err
	}
	return protocol.Required(name)
}

// interactionID is the id of the interaction that the agent calls dialog.
func (t *Talk) interactionID(dialog string) string {
	return strconv.FormatUint(uint64(t.run), 10) + "." + dialog
}

func resolved(interaction, by, outcome string) *protocol.InteractionResolved {
	return &protocol.InteractionResolved{Type: protocol.TypeInteraction, InteractionID: interaction, ResolvedBy: by, Outcome: outcome}
}

// pending finds an open interaction. The first answer wins: later ones are told
// who gave it.
func pending(s *protocol.State, r *Request, id string) (*protocol.Interaction, error) {
	for i := range s.Pending {
		if s.Pending[i].InteractionID == id {
			return &s.Pending[i], nil
		}
	}
	if r.Resolved != nil {
		if was, ok := r.Resolved(id); ok {
			return nil, AlreadyResolved(was)
		}
	}
	return nil, protocol.Errorf(protocol.ReasonInvalidParams, "session has no interaction %s", id)
}

// AlreadyResolved is the error for an answer that comes after was.
func AlreadyResolved(was protocol.InteractionResolved) *protocol.Error {
	e := protocol.Errorf(protocol.ReasonAlreadyResolved, "interaction %s is resolved: %s by %s", was.InteractionID, was.Outcome, was.ResolvedBy)
	e.ResolvedBy, e.Outcome = was.ResolvedBy, was.Outcome
	return e
}

// cancel appends the cancellation of every open question of this run.
func (t *Talk) cancel(effects []Effect, s *protocol.State) []Effect {
	if t.speech.Answer == nil {
		return effects
	}
	for k := range s.Pending {
		i := &s.Pending[k]
		if dialog, mine := strings.CutPrefix(i.InteractionID, t.interactionID("")); mine {
			effects = t.dismiss(effects, i, dialog)
		}
	}
	return effects
}

// dismiss appends rejoin's own answer to a question; i is nil for one that has
// found no place among the pending.
func (t *Talk) dismiss(effects []Effect, i *protocol.Interaction, dialog string) []Effect {
	line, err := t.speech.Answer(i, dialog, protocol.RespondCancel, nil)
	if err != nil {
		return effects // an agent that does not take a cancellation
	}
	c := &call{kind: protocol.RespondCancel, silent: true}
	t.enter(c)
	in := &Input{ID: c.id, Value: line, Line: line}
	if i != nil {
		in.Resolves = resolved(i.InteractionID, protocol.ClientRejoin, protocol.InteractionCancelled)
	}
	return append(effects, Effect{Input: in})
}
