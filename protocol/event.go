package protocol

// A Source says who made an event.
type Source uint8

// The sources of events.
const (
	SourceChild  Source = iota // a line the child printed, verbatim
	SourceBroker               // an object rejoin made
)

// String returns the name on the wire: "child" or "broker".
func (s Source) String() string {
	if s == SourceChild {
		return "child"
	}
	return "broker"
}

// An Event is one entry of a session's history.
type Event struct {
	Seq       Seq
	TS        int64 // milliseconds since 1970, the owner's wall clock; never used for order
	Run       Run
	Source    Source
	CommandID string // set on events that answer a command, else empty
	Body      []byte // one JSON value without line feeds; the child's line verbatim, or the broker's object
}

// The broker's event types, the "type" member of a SourceBroker event's body.
const (
	TypeSessionStart       = "session_start"
	TypeSessionEnd         = "session_end"
	TypeSessionInterrupted = "session_interrupted"
	TypeSessionResumed     = "session_resumed"
	TypeSessionDeleted     = "session_deleted"
	TypeSessionTitle       = "session_title"
	TypeEpochStart         = "epoch_start"
	TypeCommand            = "command"
	TypeCommandReleased    = "command_released"
	TypeCommandOutcome     = "command_outcome"
	TypeFoldUpgraded       = "fold_upgraded"
	TypeInteraction        = "interaction_resolved"
	TypeStderr             = "stderr"
	TypeError              = "error"
	TypeOutput             = "output"
)

// SessionStart is the body of the first event of a session.
type SessionStart struct {
	Type    string `json:"type"`
	Agent   string `json:"agent"`
	Adapter string `json:"adapter"`
	PID     int    `json:"pid"`
	Run     Run    `json:"run"`
	Title   string `json:"title,omitempty"`
}

// SessionEnd is the body of the last event of a run that ended in order.
type SessionEnd struct {
	Type     string  `json:"type"`
	Reason   string  `json:"reason"` // exited, stopped, lost
	ExitCode *int    `json:"exitCode"`
	Signal   *string `json:"signal"`
	Detail   string  `json:"detail,omitempty"` // what more is known: oom_killed
}

// DetailOOM says that the kernel killed processes of the run because they reached
// its limit of memory.
const DetailOOM = "oom_killed"

// The reasons of a SessionEnd.
const (
	EndExited  = "exited"
	EndStopped = "stopped"
	EndLost    = "lost"
)

// SessionInterrupted is the body of the last event of a run whose owner was lost.
type SessionInterrupted struct {
	Type   string `json:"type"`
	Reason string `json:"reason"` // one of Interrupted…
}

// The reasons of a SessionInterrupted.
const (
	InterruptedRestart       = "server_restart" // the server was killed; its successor tells
	InterruptedStop          = "server_stop"    // it stopped in order, and the policy resumes the session
	InterruptedWorkerLost    = "worker_lost"    // its worker was silent for WorkerLostAfter
	InterruptedWorkerRestart = "worker_restart" // another process of the same worker id came
	InterruptedWorkerStop    = "worker_stop"    // its worker stopped without telling how the run ended
)

// SessionResumed is the body of the first event of a later run.
type SessionResumed struct {
	Type string `json:"type"`
	Run  Run    `json:"run"`
}

// SessionTitle is the body of the event that changes a session's title.
type SessionTitle struct {
	Type  string `json:"type"`
	Title string `json:"title"`
}

// EpochStart is the body of the first event of every epoch but a session's first.
type EpochStart struct {
	Type          string `json:"type"`
	PreviousEpoch Epoch  `json:"previousEpoch"`
	PreviousHead  Seq    `json:"previousHead"`
	Reason        string `json:"reason"` // unclean_boot
}

// CommandEvent is the body of the event that admits a command: the input fact
// and its acknowledgement in one.
type CommandEvent struct {
	Type      string        `json:"type"`
	CommandID string        `json:"commandId"`
	Client    CommandClient `json:"client"`
	Verb      string        `json:"verb,omitempty"`    // a portable verb, or empty for a raw send
	Command   RawJSON       `json:"command,omitempty"` // the client's value of a raw send, insignificant white space removed
	Params    RawJSON       `json:"params,omitempty"`  // the verb's parameters
	Line      string        `json:"line,omitempty"`    // what reaches stdin, where it is not Command itself
	Held      bool          `json:"held,omitempty"`    // nothing reaches stdin before a command_released
}

// CommandReleased is the body of the event that lets a command through which was
// held back: it is durable before the first byte is written.
type CommandReleased struct {
	Type      string `json:"type"`
	CommandID string `json:"commandId"`
}

// InteractionResolved is the body of the event that closes an interaction. The
// envelope's commandId is the command that answered it, if one did.
type InteractionResolved struct {
	Type          string `json:"type"`
	InteractionID string `json:"interactionId"`
	ResolvedBy    string `json:"resolvedBy"` // name of the client, or ClientRejoin
	Outcome       string `json:"outcome"`    // what respond said, or one of those below
}

// The outcomes of an interaction that no client answered.
const (
	InteractionCancelled   = "cancelled"   // before an interrupt or the child's stop
	InteractionExpired     = "expired"     // the agent stopped waiting
	InteractionInterrupted = "interrupted" // the child ended
)

// The outcomes that respond knows.
const (
	RespondAllow  = "allow"
	RespondDeny   = "deny"
	RespondAnswer = "answer"
	RespondCancel = "cancel"
)

// ClientRejoin is the name under which rejoin's own commands and decisions are
// recorded.
const ClientRejoin = "rejoin"

// FoldUpgraded is the body of the event after which another fold goes on with
// the state of the one before it, because the log no longer holds what it would
// have to fold anew.
type FoldUpgraded struct {
	Type      string `json:"type"`
	Adapter   string `json:"adapter"`
	From      int    `json:"from"`
	To        int    `json:"to"`
	StateHash string `json:"stateHash"` // of the state before this event
}

// CommandClient says who sent a command.
type CommandClient struct {
	Name       string `json:"name"`
	Connection uint64 `json:"connection"`
}

// CommandOutcome is the body of the event that ends a command.
type CommandOutcome struct {
	Type      string  `json:"type"`
	CommandID string  `json:"commandId"`
	Outcome   Outcome `json:"outcome"`
	Result    RawJSON `json:"result,omitempty"`
}

// An Outcome is how a command ended; the first terminal one wins.
type Outcome string

// The outcomes. Admitted and Unknown are answers of command_status only.
const (
	OutcomeAdmitted    Outcome = "admitted"
	OutcomeDone        Outcome = "done"
	OutcomeFailed      Outcome = "failed"
	OutcomeDiscarded   Outcome = "discarded"
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeUnknown     Outcome = "unknown"
)

// RawJSON is a JSON value kept as its bytes (json.RawMessage under a name that
// this package owns).
type RawJSON []byte

// MarshalJSON returns the bytes as they are; an empty value is null.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of the bytes.
func (r *RawJSON) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}
