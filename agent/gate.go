package agent

import "rejoin/protocol"

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
	i := openDialog(s, t.run, p.Dialog)
	if i == nil {
		return p, nil, over(r, interactionID(t.run, p.Dialog), func(id string) bool {
			name, mine := dialogOf(id, t.run)
			return mine && name == p.Dialog
		})
	}
	// What the client wrote goes to the agent; here it only has to be an answer that respond would give.
	if _, err := t.speech.Answer(i, p.Dialog, p.Outcome, p.Value); err != nil {
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
	dialog, mine := dialogOf(id, t.run)
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

func resolved(interaction, by, outcome string) *protocol.InteractionResolved {
	return &protocol.InteractionResolved{Type: protocol.TypeInteraction, InteractionID: interaction, ResolvedBy: by, Outcome: outcome}
}

// pending finds an open interaction.
func pending(s *protocol.State, r *Request, id string) (*protocol.Interaction, error) {
	for i := range s.Pending {
		if s.Pending[i].InteractionID == id {
			return &s.Pending[i], nil
		}
	}
	return nil, over(r, id, func(other string) bool { return other == id })
}

// over is the error for an answer to an interaction that is not open: the first
// answer wins, and later ones are told who gave it.
func over(r *Request, id string, is func(interaction string) bool) error {
	if r.Resolved != nil {
		if was, ok := r.Resolved(is); ok {
			return AlreadyResolved(was)
		}
	}
	return protocol.Errorf(protocol.ReasonInvalidParams, "session has no interaction %s", id)
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
		dialog, mine := dialogOf(i.InteractionID, t.run)
		if !mine {
			continue
		}
		if line, err := t.speech.Answer(i, dialog, protocol.RespondCancel, nil); err == nil { // else an agent that takes none
			effects = t.dismiss(effects, i, line)
		}
	}
	return effects
}

// turnAway dismisses a question that the state cannot hold: nobody could answer
// it, and the agent would wait for ever.
func (t *Talk) turnAway(s *protocol.State, q *Question) []Effect {
	var open *protocol.Interaction
	if q.ID != "" {
		if len(s.Pending) < protocol.InteractionsMax {
			return nil
		}
		open = openDialog(s, t.run, q.ID) // asked once more: both wait for the one answer
	}
	if open == nil && (t.turnedAway >= turnedAwayMax || len(q.Cancel) > turnedAwayBytes) {
		return nil // it does not read what it is told, or the question is no question
	}
	effects := t.dismiss(nil, open, q.Cancel)
	if q.ID != "" {
		effects[0].Input.Limit = "InteractionsMax"
	}
	if open == nil {
		t.turnedAway++
		t.calls[t.last].turnsAway = true
	}
	return effects
}

// dismiss appends rejoin's own answer to a question; i is nil for one that is not
// among the pending.
func (t *Talk) dismiss(effects []Effect, i *protocol.Interaction, line []byte) []Effect {
	c := &call{kind: protocol.RespondCancel, silent: true}
	t.enter(c)
	in := &Input{ID: c.id, Value: line, Line: line}
	if i != nil {
		in.Resolves = resolved(i.InteractionID, protocol.ClientRejoin, protocol.InteractionCancelled)
	}
	return append(effects, Effect{Input: in})
}
