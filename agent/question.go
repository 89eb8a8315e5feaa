package agent

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"rejoin/protocol"
)

// An agent names its questions as it likes, and may use a name again: the same
// name while the question is open is the same question, after its end it is a
// new one. An interaction's id is therefore the run, a dot and the agent's id
// for the first question of that name, and has "#" and the seq of its event
// behind it for each later one, so that an answer to an earlier question never
// answers a later one. An id with a "#" in it has that from the first on: what
// stands behind the last "#" is always a seq.

// askedMax is how many names of a run are remembered, those that were new last: one
// that comes again after as many others were new is taken for a first one.
const askedMax = 256

// askedBytes is the length of what is remembered of one.
const askedBytes = 8

// Ask opens the interaction that the agent calls dialog, unless it is open
// already or too many are: the driver dismisses the question then.
func Ask(s *protocol.State, e *protocol.Event, dialog string, i protocol.Interaction) {
	if open := openDialog(s, e.Run, dialog); open != nil && (open.Deadline == 0 || e.TS < open.Deadline) {
		return
	}
	if len(s.Pending) < protocol.InteractionsMax {
		i.Seq, i.TS, i.InteractionID = e.Seq, e.TS, interactionID(e.Run, dialog)
		if again := remember(s, i.InteractionID); again || strings.Contains(dialog, "#") {
			i.InteractionID += "#" + strconv.FormatUint(uint64(e.Seq), 10)
		}
		s.Pending = append(s.Pending, i)
	}
	SetStatus(s)
}

// remember notes that a question was asked and reports whether it was before.
// Two names that look alike in what is noted only cost the second a longer id.
func remember(s *protocol.State, id string) (again bool) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash takes everything
	mark := fmt.Sprintf("%0*x", askedBytes, h.Sum32())
	x := extra(s)
	for at := 0; at+askedBytes <= len(x.Asked); at += askedBytes {
		if x.Asked[at:at+askedBytes] == mark {
			return true
		}
	}
	if len(x.Asked) >= askedMax*askedBytes {
		x.Asked = x.Asked[askedBytes:]
	}
	x.Asked += mark
	return false
}

// interactionID is the id of a run's first interaction that the agent calls dialog.
func interactionID(run protocol.Run, dialog string) string {
	return strconv.FormatUint(uint64(run), 10) + "." + dialog
}

// dialogOf is the agent's name of an interaction; false: it is of another run.
func dialogOf(interaction string, run protocol.Run) (dialog string, mine bool) {
	dialog, mine = strings.CutPrefix(interaction, interactionID(run, ""))
	if at := strings.LastIndexByte(dialog, '#'); at >= 0 {
		dialog = dialog[:at]
	}
	return dialog, mine
}

// openDialog is the newest open interaction that the agent calls dialog, or nil.
func openDialog(s *protocol.State, run protocol.Run, dialog string) *protocol.Interaction {
	for k := len(s.Pending) - 1; k >= 0; k-- {
		if name, mine := dialogOf(s.Pending[k].InteractionID, run); mine && name == dialog {
			return &s.Pending[k]
		}
	}
	return nil
}
