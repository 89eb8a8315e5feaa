package kill_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// observersPerSession is ten; under the race detector, where each costs ten times
// as much, three.
func observersPerSession() int {
	if harness.RaceDetector {
		return 3
	}
	return 10
}

// A world is one session with its observers; it lives through several deaths of
// the server.
type world struct {
	t       *testing.T
	server  *harness.Server
	network string
	address string
	token   string
	dir     string // of the child's books
	session string
	rec     *model.Recorder

	observers []*observer
	cancel    context.CancelFunc
	running   sync.WaitGroup

	level      atomic.Int32  // what observers may send: model.Silent, Retrying or Talking
	maxSeq     atomic.Uint64 // seen by any observer
	acks       atomic.Int64
	sentOrders atomic.Int64
	trap       atomic.Pointer[trap]

	mu       sync.Mutex
	breaches []error
}

// A trap kills the server from the goroutine that has just got what it waits
// for, so that nothing else happens in between.
type trap struct {
	seq    uint64 // not before an event of this seq was seen
	acks   int64  // nor before so many acknowledgements
	on     string // what springs it: onEvent, onAck, or onInput, which the child does
	sprung sync.Once
	kill   func() error
	err    error
	caught chan struct{}
}

// What springs a trap.
const (
	onEvent = "event" // a client got one
	onAck   = "ack"   // a client got one
	onInput = "input" // the child read an order
)

// due reports whether enough has happened for a trap that the child springs.
func (p *trap) due(w *world) bool {
	return p.on == onInput && w.maxSeq.Load() >= p.seq && w.acks.Load() >= p.acks
}

func (p *trap) spring() {
	p.sprung.Do(func() {
		p.err = p.kill()
		close(p.caught)
	})
}

func (w *world) sawEvent(seq uint64) {
	for {
		old := w.maxSeq.Load()
		if seq <= old || w.maxSeq.CompareAndSwap(old, seq) {
			break
		}
	}
	if p := w.trap.Load(); p != nil && p.on == onEvent && seq >= p.seq && w.acks.Load() >= p.acks {
		p.spring()
	}
}

func (w *world) sawAck() {
	n := w.acks.Add(1)
	if p := w.trap.Load(); p != nil && p.on == onAck && n >= p.acks && w.maxSeq.Load() >= p.seq {
		p.spring()
	}
}

// broke notes a breach that an observer met.
func (w *world) broke(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaches = append(w.breaches, err)
}

// check fails the test at once when an observer met a breach.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.breaches {
		w.t.Error(err)
	}
	if len(w.breaches) > 0 {
		w.t.FailNow()
	}
}

// newWorld starts a session and its observers.
func newWorld(t *testing.T, server *harness.Server, dir string) *world {
	t.Helper()
	w := &world{t: t, server: server, token: server.Token(), dir: dir}
	w.network, w.address = server.Addr()
	c := harness.Dial(t, server)
	start := map[string]any{"argv": harness.ChildArgv("model", dir), "adapter": "jsonl", "commandId": "start-" + fmt.Sprint(time.Now().UnixNano())}
	w.session = startSession(t, c, start)
	if again := startSession(t, c, start); again != w.session {
		t.Fatalf("broke I-B1: start_session under one commandId made %s and %s", w.session, again)
	}
	w.rec = model.NewRecorder(w.session)
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	for i := range observersPerSession() {
		o := newObserver(w, fmt.Sprintf("o%d", i))
		w.observers = append(w.observers, o)
		w.running.Go(func() { o.run(ctx) })
	}
	t.Cleanup(w.end)
	return w
}

func startSession(t *testing.T, c *harness.Client, params map[string]any) string {
	t.Helper()
	return harness.Do[struct {
		SessionID string `json:"sessionId"`
	}](t, c, "start_session", params).SessionID
}

// end stops the observers.
func (w *world) end() {
	w.cancel()
	w.running.Wait()
}

// info of the session as the server tells it.
func (w *world) info(c *harness.Client) model.SessionInfo {
	w.t.Helper()
	i, err := model.Info(harness.Context(w.t), c, w.session)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// settle stops the sending of new orders and waits until each has an answer.
func (w *world) settle() {
	w.t.Helper()
	w.level.Store(model.Retrying)
	harness.Eventually(w.t, "every order is answered", func() bool {
		w.check()
		for _, o := range w.observers {
			if !o.settledAll() {
				return false
			}
		}
		return true
	})
	w.level.Store(model.Silent)
}

// whole reads the log and waits until every observer has it to its end; while it
// still grows, it is read again.
func (w *world) whole(c *harness.Client) *model.Log {
	w.t.Helper()
	for {
		l := readLog(w.t, c, w.session)
		head, grew := l.Head(), false
		harness.Eventually(w.t, fmt.Sprintf("every observer of %s has the log up to %d (I-J4)", w.session, head), func() bool {
			w.check()
			for _, o := range w.observers {
				seq := o.seq.Load()
				grew = grew || seq > head
				if seq < head {
					return false
				}
			}
			return true
		})
		if !grew {
			return l
		}
	}
}
