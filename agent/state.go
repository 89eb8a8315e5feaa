package agent

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"rejoin/protocol"
)

// BeginTurn starts a turn unless one is under way.
func BeginTurn(s *protocol.State, e *protocol.Event) {
	if s.Turn == nil {
		s.Turn = &protocol.Turn{ID: "t" + strconv.FormatUint(uint64(e.Seq), 10), StartedSeq: e.Seq}
	}
	SetStatus(s)
}

// EndTurn ends the turn. Items that are open under a name for which stays
// returns false are interrupted: nothing more will come for them.
func EndTurn(s *protocol.State, e *protocol.Event, stays func(name string) bool) {
	t := Edit(s, e)
	for _, name := range t.Names() {
		if !stays(name) {
			t.Close(name, protocol.ItemInterrupted)
		}
	}
	s.Turn = nil
	SetStatus(s)
}

// SetStatus gives a session that lives the status that its turn and its open
// interactions say: waiting, busy or idle.
func SetStatus(s *protocol.State) {
	switch {
	case s.Status == protocol.StatusEnded || s.Status == protocol.StatusInterrupted:
	case len(s.Pending) > 0:
		s.Status = protocol.StatusWaiting
	case s.Turn != nil:
		s.Status = protocol.StatusBusy
	default:
		s.Status = protocol.StatusIdle
	}
}

// Settle closes what a run leaves open: items are interrupted, and what the
// agent had set for as long as it lives is forgotten.
func Settle(s *protocol.State, e *protocol.Event) {
	t := Edit(s, e)
	for _, name := range t.Names() {
		t.Close(name, protocol.ItemInterrupted)
	}
	if s.Extra != nil {
		s.Extra.Notes, s.Extra.Asked, s.Extra.Settles = nil, "", false
		tidy(s)
	}
}

// SetQueue replaces what waits to be told to the agent.
func SetQueue(s *protocol.State, steering, followUp []string) {
	s.Queue = protocol.Queue{Steering: queued(steering), FollowUp: queued(followUp)}
}

func queued(texts []string) []string {
	kept := make([]string, 0, min(len(texts), protocol.QueueLinesMax))
	for _, text := range texts[:min(len(texts), protocol.QueueLinesMax)] {
		kept = append(kept, Clip(text, protocol.QueueTextBytes))
	}
	return kept
}

// SetNote keeps the last value of something the agent sets; an empty one
// removes it. Of more than protocol.NotesMax keys the new one is left out.
func SetNote(s *protocol.State, key, text string) {
	key, text = Clip(key, protocol.NoteBytes), Clip(text, protocol.NoteBytes)
	x := extra(s)
	i, found := slices.BinarySearchFunc(x.Notes, key, func(n protocol.Note, key string) int { return strings.Compare(n.Key, key) })
	switch {
	case found && text == "":
		x.Notes = slices.Delete(x.Notes, i, i+1)
	case found:
		x.Notes[i].Text = text
	case text != "" && len(x.Notes) < protocol.NotesMax:
		x.Notes = slices.Insert(x.Notes, i, protocol.Note{Key: key, Text: text})
	}
	tidy(s)
}

// SetAgentSession keeps the agent's own name for its session; empty forgets it,
// and so does one that is too long to be one.
func SetAgentSession(s *protocol.State, id string) {
	if len(id) > agentSessionBytes {
		id = ""
	}
	extra(s).AgentSession = valid(id)
	tidy(s)
}

const agentSessionBytes = 4 << 10 // a path

// SetThinking keeps the agent's thinking level.
func SetThinking(s *protocol.State, level string) {
	extra(s).Thinking = Clip(level, nameBytes)
	tidy(s)
}

// Settles notes that the agent says when it has settled.
func Settles(s *protocol.State) { extra(s).Settles = true }

// SetModel keeps the agent's model; empty leaves what is known.
func SetModel(s *protocol.State, model string) {
	if model != "" {
		s.Agent.Model = Clip(model, nameBytes)
	}
}

// AddUsage adds to what the agent has used.
func AddUsage(s *protocol.State, u protocol.Usage) {
	if s.Usage == nil {
		s.Usage = &protocol.Usage{}
	}
	s.Usage.InputTokens = Sum(s.Usage.InputTokens, u.InputTokens)
	s.Usage.OutputTokens = Sum(s.Usage.OutputTokens, u.OutputTokens)
	if sum := s.Usage.CostUSD + u.CostUSD; u.CostUSD > 0 && !math.IsInf(sum, 0) {
		s.Usage.CostUSD = sum
	}
}

// RaiseUsage takes the agent's own sums where they are larger than those here.
func RaiseUsage(s *protocol.State, u protocol.Usage) {
	AddUsage(s, protocol.Usage{})
	s.Usage.InputTokens = max(s.Usage.InputTokens, u.InputTokens)
	s.Usage.OutputTokens = max(s.Usage.OutputTokens, u.OutputTokens)
	if u.CostUSD > s.Usage.CostUSD && !math.IsInf(u.CostUSD, 0) {
		s.Usage.CostUSD = u.CostUSD
	}
}

// Sum adds without overflow.
func Sum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// extra returns the Extra of a state, made if needed.
func extra(s *protocol.State) *protocol.StateExtra {
	if s.Extra == nil {
		s.Extra = &protocol.StateExtra{}
	}
	return s.Extra
}

// tidy drops an Extra that says nothing.
func tidy(s *protocol.State) {
	x := s.Extra
	if x != nil && x.AgentSession == "" && x.Thinking == "" && x.Asked == "" && !x.Settles && len(x.Open) == 0 && len(x.Notes) == 0 {
		s.Extra = nil
	}
}
