package agent

import (
	"rejoin/protocol"
)

// faultBytes is how much of the text that an error event quotes stands in its notice.
const faultBytes = 1 << 10

// Fault appends a notice of an error event of rejoin's own, p being its members:
// a line that was none, one that was too long, output that is missing.
func (t Transcript) Fault(p protocol.Params) {
	text := String(p, "error")
	if text == "" {
		return
	}
	quoted := String(p, "text")
	if quoted == "" {
		quoted = String(p, "preview")
	}
	if quoted != "" {
		text += ": " + Clip(quoted, faultBytes)
	}
	t.Notice(text, protocol.ItemError)
}
