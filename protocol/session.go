package protocol

// A Status is what a session is doing.
type Status string

// The statuses of a session.
const (
	StatusStarting    Status = "starting"
	StatusIdle        Status = "idle"
	StatusBusy        Status = "busy"
	StatusWaiting     Status = "waiting"
	StatusEnded       Status = "ended"
	StatusInterrupted Status = "interrupted"
)

// State returns the coarse state that rpi's clients know: running, exited or interrupted.
func (s Status) State() string {
	switch s {
	case StatusEnded:
		return "exited"
	case StatusInterrupted:
		return "interrupted"
	case StatusStarting, StatusIdle, StatusBusy, StatusWaiting:
		return "running"
	}
	return "running"
}

// Exit says how the last run of a session ended.
type Exit struct {
	Code       *int    `json:"code"`
	Signal     *string `json:"signal"`
	Reason     string  `json:"reason"`
	Detail     string  `json:"detail,omitempty"` // as of SessionEnd
	StderrTail string  `json:"stderrTail,omitempty"`
}

// SessionInfo is a session as clients see it.
type SessionInfo struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	Status     Status `json:"status"`
	PID        *int   `json:"pid"`
	EventCount uint64 `json:"event_count"`
	Agent      string `json:"agent"`
	Adapter    string `json:"adapter"`
	Cwd        string `json:"cwd"`
	Title      string `json:"title"`
	CreatedAt  int64  `json:"createdAt"` // ms since 1970
	UpdatedAt  int64  `json:"updatedAt"` // ms since 1970
	Epoch      Epoch  `json:"epoch"`
	Run        Run    `json:"run"`
	Head       Seq    `json:"head"`
	Floor      Seq    `json:"floor"`
	Exit       *Exit  `json:"exit,omitempty"`
	Restarting bool   `json:"restarting,omitempty"` // nothing runs, and the policy is about to start the next run
	Blocked    string `json:"blocked,omitempty"`    // why its output waits, or its commands are refused: the state of the journal
}

// JournalStatus is how well and how full the journal is, in server_status.
type JournalStatus struct {
	State  string `json:"state"` // ok, tight, full or sick
	Reason string `json:"reason,omitempty"`
	// For operators.
	Detail     string        `json:"detail,omitempty"`
	UsedBytes  *int64        `json:"usedBytes,omitempty"`
	QuotaBytes *int64        `json:"quotaBytes,omitempty"`
	FreeBytes  *int64        `json:"freeBytes,omitempty"`
	Shards     []ShardStatus `json:"shards,omitempty"`
}

// ShardStatus is one shard's part of the journal.
type ShardStatus struct {
	State      string `json:"state"`
	UsedBytes  int64  `json:"usedBytes"`
	QuotaBytes int64  `json:"quotaBytes"`
}

// A SessionRecord is a session as the registry keeps it: what its owner, a
// recovering broker and a resume need to know.
type SessionRecord struct {
	Workspace string `json:"workspace"`
	ID        string `json:"id"`
	Shard     int    `json:"shard"`
	Epoch     Epoch  `json:"epoch"`
	Run       Run    `json:"run"`             // the newest run granted
	Owner     string `json:"owner,omitempty"` // bus address of the worker; empty: no owner
	Host      string `json:"host,omitempty"`  // id of the worker that ran it last: there is what it keeps besides its log
	Deleted   bool   `json:"deleted,omitempty"`
	Deleting  bool   `json:"deleting,omitempty"` // tombstone set, removal not finished
	Settled   bool   `json:"settled,omitempty"`  // ended, and synced to disk at every durability

	Status     Status            `json:"status"`
	Agent      string            `json:"agent"`
	Adapter    string            `json:"adapter"`
	Argv       []string          `json:"argv"`
	ResumeArgv []string          `json:"resumeArgv,omitempty"`
	ArgvOpen   int               `json:"argvOpen,omitempty"`   // with CwdOwn: so many leading ones of Argv may hold {cwd}, filled at each run
	ResumeOpen int               `json:"resumeOpen,omitempty"` // so many leading ones of ResumeArgv may hold {agentSessionId} and, with CwdOwn, {cwd}, filled at the resume
	Env        []string          `json:"env,omitempty"`        // KEY=VALUE on top of what comes from the server
	EnvAllow   []string          `json:"envAllow,omitempty"`   // names and patterns of the server's variables that reach the child, besides the worker's own list
	Home       string            `json:"home,omitempty"`       // shared (also when empty), private
	Tmp        string            `json:"tmp,omitempty"`        // as Home
	Limits     *ResourceLimits   `json:"limits,omitempty"`     // nil: none
	Cwd        string            `json:"cwd"`
	CwdOwn     bool              `json:"cwdOwn,omitempty"` // nobody named Cwd: it is the worker's own, and another one has its own
	Title      string            `json:"title,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`  // its worker has all of them
	Restart    string            `json:"restart,omitempty"` // never (also when empty), resume
	Stderr     string            `json:"stderr,omitempty"`  // drop (also when empty), event

	CreatedAt int64  `json:"createdAt"`
	UpdatedAt int64  `json:"updatedAt"`
	PID       int    `json:"pid,omitempty"`
	PIDStart  uint64 `json:"pidStart,omitempty"` // clock ticks since boot, /proc/PID/stat field 22
	BootID    string `json:"bootId,omitempty"`
	Head      Seq    `json:"head"`  // as of the last change of this record; the log may be ahead
	Floor     Seq    `json:"floor"` // first retained seq
	Exit      *Exit  `json:"exit,omitempty"`

	// Where several brokers share a registry: Restarted is when the policy started
	// the session again, ms since 1970, as far as RestartWindow goes back; after the
	// run Rests it does not: somebody stopped the session, or it failed too often.
	Restarted []int64 `json:"restarted,omitempty"`
	Rests     Run     `json:"rests,omitempty"`

	StartedBy string `json:"startedBy,omitempty"` // id of the token that started or resumed it last; empty: the server's own
	StartKey  string `json:"startKey,omitempty"`  // registry key of the start_session that made it
}

// Key returns the record's key.
func (r *SessionRecord) Key() Key { return Key{Workspace: r.Workspace, Session: r.ID} }

// Info returns what clients may see of the record.
func (r *SessionRecord) Info() SessionInfo {
	info := SessionInfo{
		ID: r.ID, State: r.Status.State(), Status: r.Status, EventCount: uint64(r.Head), Agent: r.Agent, Adapter: r.Adapter,
		Cwd: r.Cwd, Title: r.Title, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Epoch: r.Epoch, Run: r.Run,
		Head: r.Head, Floor: r.Floor, Exit: r.Exit,
	}
	if r.PID != 0 && info.State == "running" {
		pid := r.PID
		info.PID = &pid
	}
	return info
}

// ResourceLimits bound what all processes of one run use together. Zero sets no
// bound.
type ResourceLimits struct {
	Memory  int64   `json:"memory,omitempty"`  // bytes, swap included
	PIDs    int     `json:"pids,omitempty"`    // processes and threads
	CPU     float64 `json:"cpu,omitempty"`     // processors
	Enforce string  `json:"enforce,omitempty"` // required (also when empty), preferred
}

// Containment is what a server can do about what its children start.
type Containment struct {
	Cgroups int      `json:"cgroups"`         // version of the control groups that hold runs; 0: none do
	Group   string   `json:"group,omitempty"` // directory of the group that the runs' are in
	Why     string   `json:"why,omitempty"`   // there are none
	Limits  []string `json:"limits"`          // of memory, pids, cpu: those that can be enforced
}

// What becomes of a start whose limits the system cannot enforce: it fails, or it
// goes on without them and says so in the log.
const (
	EnforceRequired  = "required"
	EnforcePreferred = "preferred"
)

// Whose HOME or TMPDIR a session's children have: the server's, or one of their own
// that lives as long as the session.
const (
	DirShared  = "shared"
	DirPrivate = "private"
)

// The restart policies of a session.
const (
	RestartNever  = "never"
	RestartResume = "resume"
)
