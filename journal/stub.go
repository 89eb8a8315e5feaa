package journal

import (
	"context"

	"rejoin/protocol"
)

// A Log names where a session's records are.
type Log struct {
	Key   protocol.Key
	Shard int
}

// Tail is the newest record of a log, through the leader API.
type Tail struct {
	Empty bool
	Epoch protocol.Epoch
	Run   protocol.Run
	Head  protocol.Seq
}

func (n *Node) Tail(ctx context.Context, l Log) (Tail, error) { panic("stub") }

// Floor is the first retained seq of the log's newest epoch (1 until something trims; after an epoch_start: its seq).
func (n *Node) Floor(ctx context.Context, l Log) (protocol.Seq, error) { panic("stub") }

// Read returns decoded, verified records that hold after+1…, in order, at least one record (if there is one), stopping near maxBytes. The first record may begin at or before after+1.
func (n *Node) Read(ctx context.Context, l Log, after protocol.Seq, maxBytes int) ([]*Record, error) {
	panic("stub")
}

// ReadBefore returns, in rising order, records that hold the events just below before, about limit events or maxBytes.
func (n *Node) ReadBefore(ctx context.Context, l Log, before protocol.Seq, limit, maxBytes int) ([]*Record, error) {
	panic("stub")
}

// Purge removes every record of the log but the newest.
func (n *Node) Purge(ctx context.Context, l Log) error { panic("stub") }

// WriterConfig of OpenWriter.
type WriterConfig struct {
	Log Log
	Run protocol.Run
	// Epoch: empty continues the log's epoch. Set: the first record begins this epoch (a new session, or broken continuity).
	Epoch protocol.Epoch
	// MinHead: seqs start above it even if the log is shorter (registry's knowledge).
	MinHead protocol.Seq
	// First builds the events of the first record from the log's tail (their Seq is assigned by the writer: base, base+1 …, base = max(tail.Head, MinHead)+1).
	// It is called again when a late record of the predecessor is found (row 6). Required; may not return no events.
	First func(ctx context.Context, t Tail, base protocol.Seq) ([]*protocol.Event, error)
	// Deleted is asked when the log is empty though it should not be (row 1).
	Deleted func(ctx context.Context) (bool, error)
	// Failed is called once, from the writer's goroutine, when it can write no more (ErrFenced, ErrDamaged).
	Failed func(error)
}

// OpenWriter takes the log over: it returns when the first record is durable.
func (n *Node) OpenWriter(ctx context.Context, cfg WriterConfig) (*Writer, error) { panic("stub") }

// Writer appends to one log. Safe for concurrent use; the order of Append calls is the order of events.
type Writer struct{ _ int }

// Append gives e its seq and queues it; then (may be nil) is called once from the writer's goroutine in seq order when the event is durable (nil) or the writer failed. It never blocks on the journal and must not block in then.
// e is encoded at once, e.Body is not kept. Error only when the writer has failed or is closed.
func (w *Writer) Append(e *protocol.Event, then func(error)) (protocol.Seq, error) { panic("stub") }
func (w *Writer) Epoch() protocol.Epoch                                            { panic("stub") }
func (w *Writer) Head() protocol.Seq                                               { panic("stub") } // assigned
func (w *Writer) Durable() protocol.Seq                                            { panic("stub") } // acknowledged
// WaitRoom blocks while a whole batch of child output waits behind the one in flight: readers of stdout call it before each Append batch, control records never do.
func (w *Writer) WaitRoom(ctx context.Context) error { panic("stub") }

// Stalled reports that the publish in flight has gone unanswered or refused for over 3 s.
func (w *Writer) Stalled() bool { panic("stub") }

// Flush waits until everything appended so far is durable, the writer failed, or ctx ends.
func (w *Writer) Flush(ctx context.Context) error { panic("stub") }

// Close flushes (bounded by ctx) and stops the writer's goroutine.
func (w *Writer) Close(ctx context.Context) error { panic("stub") }

// ---- hub

// Hub keeps one tail ring per watched log.
type Hub struct{ _ int }

func newHub(n *Node) (*Hub, error) { return &Hub{}, nil }
func (h *Hub) close()              {}

// Watch starts or shares the watch of a log. Release it.
func (h *Hub) Watch(ctx context.Context, l Log) (*Watch, error) { panic("stub") }

// Watch is one watched log.
type Watch struct{ _ int }

func (w *Watch) Release() { panic("stub") }

// Position is what a watch can serve.
type Position struct {
	Epoch       protocol.Epoch
	Floor, Head protocol.Seq
}

// Sync reads the head through the leader API and returns when the ring has reached it: nothing acknowledged before the call is missing from Position afterwards.
func (w *Watch) Sync(ctx context.Context) (Position, error) { panic("stub") }
func (w *Watch) Position() Position                         { panic("stub") }

// Waker is told (never blocking, any goroutine) that a Pull which answered PullIdle or PullWait may now give more.
type Waker interface{ Wake() }

func (w *Watch) Add(k Waker)    { panic("stub") }
func (w *Watch) Remove(k Waker) { panic("stub") }

// PullStatus is how a Pull ended.
type PullStatus uint8

const (
	PullMore    PullStatus = iota // stopped at max, limit or until; call again
	PullIdle                      // caught up: Wake comes with the next event
	PullWait                      // behind: a range read is under way, Wake comes
	PullTrimmed                   // the next seq can no longer be read
	PullEpoch                     // the cursor's epoch has ended (everything of it has been pulled or can not be)
	PullDamaged
	PullFailed // the journal did not answer; Wake comes, call again
)

// Pull appends whole notifications (prefix + stored line + LF) of the events after c to dst: at least one if there is one at hand,
// stopping before len(dst) passes max or after limit events (0: no limit) or at seq until (0: none). It returns the last seq appended (c.Seq if none).
// It never blocks on the journal and encodes nothing.
func (w *Watch) Pull(dst, prefix []byte, c protocol.Cursor, until protocol.Seq, max, limit int) (out []byte, last protocol.Seq, st PullStatus) {
	panic("stub")
}
