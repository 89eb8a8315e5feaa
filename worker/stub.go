package worker

import (
	"context"
	"log/slog"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// Registry is what a worker tells about the sessions it owns (the broker's registry implements it).
type Registry interface {
	// Update changes the record by compare-and-set, retried while the newest run is still run; ErrNotOwner when it is not.
	Update(ctx context.Context, k protocol.Key, run protocol.Run, change func(*protocol.SessionRecord)) error
	// Deleted reports a tombstone.
	Deleted(ctx context.Context, k protocol.Key) (bool, error)
}

// ErrNotOwner: the session's newest run is somebody else's.
var ErrNotOwner error

type Config struct {
	ID            string // bus address
	DataDir       string // stderr tails under DataDir/stderr
	Adapters      map[string]agent.Adapter
	EventBytesMax int // zero: protocol.EventBytesDefault
	SessionsMax   int
	Logger        *slog.Logger
	Now           func() time.Time
}

// Worker owns children.
type Worker struct{ _ int }

func New(cfg Config, node *journal.Node, reg Registry, folds *snapshot.Reader) (*Worker, error) {
	panic("stub")
}

// Run serves protocol.WorkerSubject(ID) until ctx ends, then ends every child by the kill ladder (all at once, GraceServerStop), waits for their last records (bounded) and returns.
func (w *Worker) Run(ctx context.Context) error { panic("stub") }

// KillOrphans ends every process that carries REJOIN_INSTANCE=instance (own uid, not this process or its ancestors), with its descendants, and returns when all were seen dead.
func KillOrphans(ctx context.Context, instance string, logger *slog.Logger) (killed int, err error) {
	panic("stub")
}

// StderrTail returns what is kept of a run's stderr (run 0: the newest). For read_stderr.
func StderrTail(dataDir string, k protocol.Key, run protocol.Run) (string, error) { panic("stub") }
