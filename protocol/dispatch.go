package protocol

// A WorkerRequest is what a broker asks of the worker that owns, or is to own,
// a session. It crosses the bus as JSON on WorkerSubject.
type WorkerRequest struct {
	Op        WorkerOp       `json:"op"`
	Workspace string         `json:"workspace,omitempty"`
	Session   string         `json:"session,omitempty"`
	Record    *SessionRecord `json:"record,omitempty"`  // start, resume: the session with the run granted to the worker
	GraceMs   int64          `json:"graceMs,omitempty"` // stop; zero means GraceDefault
	Move      bool           `json:"move,omitempty"`    // stop: the policy is to bring the session back, as after the worker's own end; drain: sessions are to go on elsewhere
	Title     string         `json:"title,omitempty"`   // title
	Command   *CommandInput  `json:"command,omitempty"` // command
	IDs       []string       `json:"ids,omitempty"`     // status
	Run       Run            `json:"run,omitempty"`     // stderr; zero: the newest
}

// WorkerOp is the verb of a WorkerRequest.
type WorkerOp string

// The verbs a worker answers.
const (
	OpStart   WorkerOp = "start"   // spawn, then session_start; answers Info
	OpResume  WorkerOp = "resume"  // session_resumed, then spawn; answers Info
	OpCommand WorkerOp = "command" // admit a command; answers Result
	OpStatus  WorkerOp = "status"  // command_status; answers Statuses
	OpStop    WorkerOp = "stop"    // kill ladder; answers when the child is gone
	OpTitle   WorkerOp = "title"   // session_title; answers Info
	OpInfo    WorkerOp = "info"    // answers Infos: of one session, or with no session of all the worker owns
	OpStderr  WorkerOp = "stderr"  // what is kept of a run's stderr; answers Text
	OpFiles   WorkerOp = "files"   // remove what a session has besides its log; answers when that is done
	OpDrain   WorkerOp = "drain"   // of the worker: refuse starts and resumes; answers when its entry says so
	OpUndrain WorkerOp = "undrain" // the end of a drain; answers as drain
)

// WorkerSubject is where the worker of that bus address, as SessionRecord.Owner has
// it, listens on the bus.
func WorkerSubject(owner string) string { return "worker." + owner }

// ChangesSubject is where the owner of a session tells its LiveInfo whenever it
// changes. ChangesAll is all of those subjects.
func ChangesSubject(k Key) string { return "changes." + k.Workspace + "." + k.Session }

// ChangesAll is every ChangesSubject.
const ChangesAll = "changes.>"

// CommandInput is a command on its way to the owner.
type CommandInput struct {
	ID      string        `json:"id"`             // never empty: the gateway mints one
	Verb    string        `json:"verb,omitempty"` // portable verb; empty: a raw send
	Command RawJSON       `json:"command,omitempty"`
	Params  RawJSON       `json:"params,omitempty"`
	Client  CommandClient `json:"client"`
	Expect  *Expect       `json:"expect,omitempty"`
}

// Expect is what a command demands of the session at its admission; members
// that are nil are not looked at.
type Expect struct {
	Head   *Seq    `json:"head,omitempty"`
	Status *Status `json:"status,omitempty"`
	Run    *Run    `json:"run,omitempty"`
	Turn   *string `json:"turn,omitempty"`
	Epoch  *Epoch  `json:"epoch,omitempty"`
}

// A WorkerReply answers a WorkerRequest.
type WorkerReply struct {
	Error    *Error          `json:"error,omitempty"`
	NotOwner bool            `json:"notOwner,omitempty"` // the session has no child here (any more)
	Starting bool            `json:"starting,omitempty"` // with NotOwner: it has none yet
	Info     *SessionInfo    `json:"info,omitempty"`
	Infos    []LiveInfo      `json:"infos,omitempty"`
	Result   *SendResult     `json:"result,omitempty"`
	Statuses []CommandStatus `json:"statuses,omitempty"`
	Text     string          `json:"text,omitempty"`
}

// LiveInfo is SessionInfo with the workspace it belongs to.
type LiveInfo struct {
	Workspace string `json:"workspace"`
	SessionInfo
}

// SendResult is the answer of send and of every portable verb.
type SendResult struct {
	SessionID string `json:"sessionId"`
	Status    string `json:"status"` // sent
	CommandID string `json:"commandId"`
	Seq       Seq    `json:"seq"`
	Duplicate bool   `json:"duplicate,omitempty"`
}

// CommandStatus is one answer of command_status.
type CommandStatus struct {
	CommandID string  `json:"commandId"`
	Outcome   Outcome `json:"outcome"`
	Seq       Seq     `json:"seq,omitempty"`
	Result    RawJSON `json:"result,omitempty"`
}
