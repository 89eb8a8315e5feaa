package protocol

// StartParams of start_session. Its JSON is hashed to tell one start from another
// (a command id's reservation), so names and order of the fields stay.
type StartParams struct {
	Agent, Cwd, Name, Title, Adapter, SessionID, CommandID, Restart string
	Args, Argv                                                      []string
	Env                                                             map[string]string
	// DefaultCwd is the directory when neither Cwd nor the agent's configuration names one.
	DefaultCwd string `json:",omitempty"`
	// Labels are those that the worker must have, besides the agent's.
	Labels map[string]string `json:",omitempty"`
}

// A Caller is on whose behalf a gateway asks a broker: it has seen the token.
type Caller struct {
	Name      string `json:"name"`
	Workspace string `json:"workspace"`
	Role      string `json:"role"`
	Token     string `json:"token,omitempty"`     // id of the token; empty: the server's own
	ExpiresMs int64  `json:"expiresMs,omitempty"` // ms since 1970; 0: never
}

// A BrokerOp is the verb of a BrokerRequest.
type BrokerOp string

// What gateways leave to a broker: all that grants runs, and what takes turns with it.
const (
	AskStart  BrokerOp = "start"  // Start; answers Info
	AskResume BrokerOp = "resume" // Session, CommandID, Expect; answers Info
	AskStop   BrokerOp = "stop"   // Session, GraceMs
	AskDelete BrokerOp = "delete" // Session
	AskTitle  BrokerOp = "title"  // Session, Title
	AskDrain  BrokerOp = "drain"  // Worker, Drain; answers Worker
)

// A BrokerRequest is what a gateway without a broker of its own asks of any
// broker. It crosses the bus as JSON on BrokerSubject.
type BrokerRequest struct {
	Op        BrokerOp     `json:"op"`
	Caller    Caller       `json:"caller"`
	Session   string       `json:"session,omitempty"`
	CommandID string       `json:"commandId,omitempty"`
	Expect    *Expect      `json:"expect,omitempty"`
	GraceMs   int64        `json:"graceMs,omitempty"`
	Title     string       `json:"title,omitempty"`
	Start     *StartParams `json:"start,omitempty"`
	Worker    string       `json:"worker,omitempty"`
	Drain     DrainParams  `json:"drain,omitzero"`
}

// A BrokerReply answers a BrokerRequest. Record is the session as the registry has
// it then, under Revision, so that whoever asked sees its own write.
type BrokerReply struct {
	Error    *Error         `json:"error,omitempty"`
	Info     *SessionInfo   `json:"info,omitempty"`
	Record   *SessionRecord `json:"record,omitempty"`
	Revision uint64         `json:"revision,omitempty"`
	Worker   *WorkerInfo    `json:"worker,omitempty"`
}

// DrainParams of drain_worker.
type DrainParams struct {
	Undo bool `json:"undo,omitempty"` // take sessions again
	Move bool `json:"move,omitempty"` // sessions with policy resume go on elsewhere
}

// The states of a WorkerInfo.
const (
	WorkerLive     = "live"
	WorkerDraining = "draining" // takes no new sessions
	WorkerLost     = "lost"     // silent for WorkerLostAfter
	WorkerLeft     = "left"     // stopped in order
)

// WorkerInfo is a worker as list_workers shows it.
type WorkerInfo struct {
	ID       string            `json:"id"`
	State    string            `json:"state"`
	Labels   map[string]string `json:"labels"`
	Capacity int               `json:"capacity"` // sessions at a time; 0: it has not told
	Sessions int               `json:"sessions"`
	Version  string            `json:"version,omitempty"`
	Moving   int               `json:"moving,omitempty"` // sessions on their way elsewhere
}
