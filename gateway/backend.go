package gateway

import (
	"context"
	"time"

	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// What the core needs of its neighbours, as narrow as it uses it: tests put
// small fakes in their place.

// authority says who a connection is.
type authority interface {
	Authenticate(token string) (broker.Principal, bool)
	AuthRequired() bool
	Valid(p broker.Principal) bool
}

// lifecycle starts and ends sessions.
type lifecycle interface {
	Start(ctx context.Context, p broker.Principal, s broker.StartParams) (protocol.SessionInfo, error)
	Resume(ctx context.Context, p broker.Principal, session, commandID string, expect *protocol.Expect) (protocol.SessionInfo, error)
	Stop(ctx context.Context, p broker.Principal, session string, grace time.Duration) error
	Delete(ctx context.Context, p broker.Principal, session string) error
}

// commander takes commands to the owner of a session.
type commander interface {
	Command(ctx context.Context, p broker.Principal, session string, in protocol.CommandInput) (protocol.SendResult, error)
	CommandStatus(ctx context.Context, p broker.Principal, session string, ids []string) ([]protocol.CommandStatus, error)
	SetTitle(ctx context.Context, p broker.Principal, session, title string) error
}

// directory knows the sessions a principal may see.
type directory interface {
	Info(ctx context.Context, p broker.Principal, session string) (protocol.SessionInfo, error)
	List(ctx context.Context, p broker.Principal, l broker.ListParams) ([]protocol.SessionInfo, error)
	Log(ctx context.Context, p broker.Principal, session string) (journal.Log, error)
	OwnerHead(ctx context.Context, p broker.Principal, session string) (at journal.Position, live bool, err error)
	Stderr(ctx context.Context, p broker.Principal, session string, run protocol.Run) (string, error)
	Feed(p broker.Principal) feed
}

// crew is the workers that run sessions.
type crew interface {
	Workers(ctx context.Context, p broker.Principal) ([]protocol.WorkerInfo, error)
	DrainWorker(ctx context.Context, p broker.Principal, id string, d protocol.DrainParams) (protocol.WorkerInfo, error)
}

// watches hands out the watch of a log.
type watches interface {
	Watch(ctx context.Context, l journal.Log) (watch, error)
	Known(l journal.Log) (p journal.Position, ok bool)
}

// watch is journal.Watch.
type watch interface {
	Sync(ctx context.Context) (journal.Position, error)
	Position() journal.Position
	Pull(dst, prefix []byte, c protocol.Cursor, until protocol.Seq, max, limit int) (out []byte, last protocol.Seq, st journal.PullStatus)
	Add(k journal.Waker)
	Remove(k journal.Waker)
	Release()
}

var _ watch = (*journal.Watch)(nil)

// history reads logs in ranges.
type history interface {
	Tail(ctx context.Context, l journal.Log) (journal.Tail, error)
	Floor(ctx context.Context, l journal.Log) (protocol.Seq, error)
	Newest(ctx context.Context, l journal.Log) (p journal.Place, ok bool, err error)
	Read(ctx context.Context, l journal.Log, after protocol.Seq, maxBytes int) ([]record, error)
	Behind(ctx context.Context, l journal.Log, after protocol.Seq) (seq protocol.Seq, ok bool, err error)
	ReadBefore(ctx context.Context, l journal.Log, before protocol.Seq, limit, maxBytes int) ([]record, error)
}

// record is journal.Record.
type record interface {
	Epoch() protocol.Epoch
	Base() protocol.Seq
	Len() int
	Line(i int) []byte
}

var _ record = (*journal.Record)(nil)

// folder folds a log into a snapshot.
type folder interface {
	Latest(ctx context.Context, l journal.Log, atLeast protocol.Seq) (snapshot.Snapshot, error)
	At(ctx context.Context, l journal.Log, seq protocol.Seq) (snapshot.Snapshot, error)
	Verify(ctx context.Context, l journal.Log) (snapshot.Report, error)
	VerifyHead(ctx context.Context, l journal.Log, kept snapshot.ChainHead) (problem string, err error)
}

// backends is everything a Server talks to.
type backends struct {
	auth       authority
	lifecycle  lifecycle
	commands   commander
	sessions   directory
	workers    crew
	watches    watches
	history    history
	folds      folder
	remote     bool // other servers hold the journal: one that is asked may have been deposed
	durability string
	usage      func() journal.Usage
}

// brokerSessions is a broker.Broker as directory.
type brokerSessions struct{ *broker.Broker }

func (b brokerSessions) Feed(p broker.Principal) feed { return b.Broker.Feed(p) }

// hubWatches is a journal.Hub as watches.
type hubWatches struct{ *journal.Hub }

func (h hubWatches) Watch(ctx context.Context, l journal.Log) (watch, error) {
	w, err := h.Hub.Watch(ctx, l)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// nodeHistory is a journal.Node as history.
type nodeHistory struct{ *journal.Node }

func (n nodeHistory) Read(ctx context.Context, l journal.Log, after protocol.Seq, maxBytes int) ([]record, error) {
	rs, err := n.Node.Read(ctx, l, after, maxBytes)
	return records(rs), err
}

func (n nodeHistory) ReadBefore(ctx context.Context, l journal.Log, before protocol.Seq, limit, maxBytes int) ([]record, error) {
	rs, err := n.Node.ReadBefore(ctx, l, before, limit, maxBytes)
	return records(rs), err
}

func records(rs []*journal.Record) []record {
	out := make([]record, len(rs))
	for i, r := range rs {
		out[i] = r
	}
	return out
}
