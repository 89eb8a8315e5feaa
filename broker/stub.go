package broker

import (
	"context"
	"log/slog"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// AgentConfig is a configured agent.
type AgentConfig struct {
	Adapter    string            `yaml:"adapter"`
	Argv       []string          `yaml:"argv"`
	ResumeArgv []string          `yaml:"resumeArgv"`
	Env        map[string]string `yaml:"env"`
	EnvAllow   []string          `yaml:"envAllow"` // names start_session's env may set
	Cwd        string            `yaml:"cwd"`
	AllowArgs  bool              `yaml:"allowArgs"`
	Stderr     string            `yaml:"stderr"`
	Restart    string            `yaml:"restart"`
}

type Config struct {
	Agents    map[string]AgentConfig
	Default   string
	Adapters  []string // names the workers know
	Workers   []string // worker ids; one process: one
	AllowArgv bool
	Token     string // empty: no authentication
	DataDir   string
	Version   string
	Logger    *slog.Logger
	Now       func() time.Time
}

// Role of a token.
type Role uint8

const (
	RoleObserver Role = iota
	RoleOperator
	RoleAdmin
)

// Principal is who a connection is.
type Principal struct {
	Name      string
	Workspace string
	Role      Role
}

type Broker struct{ _ int }

func New(cfg Config, node *journal.Node, folds *snapshot.Reader) (*Broker, error) { panic("stub") }

// Registry is the session registry (implements worker.Registry).
func (b *Broker) Registry() *Registry { panic("stub") }

// Recover settles what an earlier process left: unfinished deletes and starts, sessions that were live (session_interrupted, durable), broken continuity after an unclean boot. Orphans must be dead before. Run restarts what policy wants.
func (b *Broker) Recover(ctx context.Context) error { panic("stub") }

// Run keeps the registry's cache, restarts by policy, settles; until ctx ends.
func (b *Broker) Run(ctx context.Context) error { panic("stub") }

// Authenticate: constant time. With no token configured every token (and none) is the admin.
func (b *Broker) Authenticate(token string) (Principal, bool) { panic("stub") }
func (b *Broker) AuthRequired() bool                          { panic("stub") }

// StartParams of start_session.
type StartParams struct {
	Agent, Cwd, Name, Title, Adapter, SessionID, CommandID, Restart string
	Args, Argv                                                      []string
	Env                                                             map[string]string
}

// All errors are *protocol.Error or internal ones.
func (b *Broker) Start(ctx context.Context, p Principal, s StartParams) (protocol.SessionInfo, error) {
	panic("stub")
}
func (b *Broker) Resume(ctx context.Context, p Principal, session, commandID string, expect *protocol.Expect) (protocol.SessionInfo, error) {
	panic("stub")
}
func (b *Broker) Stop(ctx context.Context, p Principal, session string, grace time.Duration) error {
	panic("stub")
}
func (b *Broker) Delete(ctx context.Context, p Principal, session string) error { panic("stub") }
func (b *Broker) Command(ctx context.Context, p Principal, session string, in protocol.CommandInput) (protocol.SendResult, error) {
	panic("stub")
}
func (b *Broker) CommandStatus(ctx context.Context, p Principal, session string, ids []string) ([]protocol.CommandStatus, error) {
	panic("stub")
}
func (b *Broker) SetTitle(ctx context.Context, p Principal, session, title string) error {
	panic("stub")
}
func (b *Broker) Stderr(ctx context.Context, p Principal, session string, run protocol.Run) (string, error) {
	panic("stub")
}
func (b *Broker) Info(ctx context.Context, p Principal, session string) (protocol.SessionInfo, error) {
	panic("stub")
}

// ListParams of list_sessions.
type ListParams struct {
	Limit                int
	Before, State, Agent string // Before: a session id; older ones follow
}

func (b *Broker) List(ctx context.Context, p Principal, l ListParams) ([]protocol.SessionInfo, error) {
	panic("stub")
}

// Log finds the log of a session the principal may see; session_not_found else.
func (b *Broker) Log(ctx context.Context, p Principal, session string) (journal.Log, error) {
	panic("stub")
}

// OnDeleted registers f to be called (must not block) when a session is tombstoned and its session_deleted record is durable.
func (b *Broker) OnDeleted(f func(protocol.Key)) (cancel func()) { panic("stub") }

// Registry of sessions over a bucket.
type Registry struct{ _ int }

func (r *Registry) Update(ctx context.Context, k protocol.Key, run protocol.Run, change func(*protocol.SessionRecord)) error {
	panic("stub")
}
func (r *Registry) Deleted(ctx context.Context, k protocol.Key) (bool, error) { panic("stub") }
