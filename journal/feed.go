package journal

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// leaderElected is where a cluster says that a stream has another leader.
const leaderElected = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*"

// liveFeed brings the republished records to the hub: one connection, one
// channel and one goroutine per shard. A full channel loses messages; the
// notice of it, or the next record, shows the gap.
type liveFeed struct {
	nc     *nats.Conn
	shards []*shardFeed
}

// shardFeed is what waits for the feeder of one shard.
type shardFeed struct {
	shard int
	ch    chan *nats.Msg // capacity feedMessages
	lost  atomic.Bool    // there was a notice of lost messages since ch was last seen empty
}

func newShardFeed(shard int) *shardFeed {
	return &shardFeed{shard: shard, ch: make(chan *nats.Msg, feedMessages)}
}

// openFeed connects the hub to the live subjects of the node.
func (h *Hub) openFeed(ctx context.Context, n *Node) error {
	back := func() {
		n.termsOver() // whatever leaders were elected meanwhile
		h.checkAll()
	}
	nc, err := n.dial(ctx, link{name: "live", srv: &n.engine, reach: n.lives, back: back, wrong: h.onReadErr})
	if err != nil {
		return err
	}
	f := &liveFeed{nc: nc}
	for i := range n.format.Shards {
		sf := newShardFeed(i)
		f.shards = append(f.shards, sf)
		h.wg.Go(func() { h.feedLoop(sf) })
	}
	h.feed = f
	if n.remote != nil {
		if _, err := nc.Subscribe(leaderElected, func(m *nats.Msg) { h.leaderElected(n, m.Subject) }); err != nil {
			nc.Close()
			return unavailable(ctx, err)
		}
	}
	h.subscribe = func(ctx context.Context, l Log) (func(), error) {
		if err := n.checkLog(l); err != nil {
			return nil, err
		}
		up, cancel := context.WithTimeout(ctx, apiTimeout)
		n.lives.await(up)
		cancel()
		return f.subscribe(ctx, l)
	}
	return nil
}

// subscribe asks for the live records of l and returns once the server has it.
func (f *liveFeed) subscribe(ctx context.Context, l Log) (func(), error) {
	sub, err := f.nc.ChanSubscribe(liveSubjectOf(l), f.shards[l.Shard].ch)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	unsub := func() {
		// Only a closed connection refuses, and that has no subscriptions.
		_ = sub.Unsubscribe()
	}
	flush, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := f.nc.FlushWithContext(flush); err != nil {
		unsub()
		return nil, unavailable(ctx, err)
	}
	return unsub, nil
}

func (f *liveFeed) close() { f.nc.Close() }

// onReadErr takes the asynchronous errors of the live connection: whatever was
// lost is looked for at once. NATS says it once while messages are being lost,
// so the feeder looks again when it has caught up.
func (h *Hub) onReadErr(sub *nats.Subscription, err error) {
	if sub == nil || !errors.Is(err, nats.ErrSlowConsumer) {
		h.log.Warn("journal connection", slog.String("name", "live"), slog.Any(protocol.LogError, err))
		h.checkAll()
		return
	}
	h.log.Debug("live records lost", slog.String("subject", sub.Subject))
	if w := h.watchOf(sub.Subject); w != nil {
		h.feed.shards[w.log.Shard].lost.Store(true)
		w.check()
	}
}

// feedLoop applies the live records of one shard. Waiters are woken once per
// burst, not per record, and while bursts follow each other once for several.
func (h *Hub) feedLoop(sf *shardFeed) {
	moved := make([]*Watch, 0, feedBurst)
	wakes := newGathering(func() { h.held.Add(1) })
	defer wakes.disarm()
	for {
		select {
		case m := <-sf.ch:
			moved = h.receiveMsg(moved, m)
		case <-wakes.clock.C:
			wakes.release(h.now())
			continue
		case <-h.ctx.Done():
			return
		}
		for more := true; more && len(moved) < feedBurst; {
			select {
			case m := <-sf.ch:
				moved = h.receiveMsg(moved, m)
			default:
				more = false
				if sf.lost.Swap(false) {
					h.checkShard(sf.shard)
				}
			}
		}
		if len(moved) > 0 {
			wakes.take(moved, h.now())
		}
		clear(moved)
		moved = moved[:0]
	}
}

// leaderElected takes the news that a stream has another leader: writers ask that
// one at once, and what the former one stored last may not have been told.
func (h *Hub) leaderElected(n *Node, subject string) {
	for _, sf := range h.feed.shards {
		if strings.HasSuffix(subject, "."+shardStream(sf.shard)) {
			n.gates[sf.shard].term.over(n.life)
			h.checkShard(sf.shard)
		}
	}
}

// termsOver takes it that any shard may have another leader.
func (n *Node) termsOver() {
	for _, g := range n.gates {
		g.term.over(n.life)
	}
}

// checkShard asks for the tail of every watch of a shard.
func (h *Hub) checkShard(shard int) {
	for _, w := range h.all() {
		if w.log.Shard == shard {
			w.check()
		}
	}
}

func contains(ws []*Watch, w *Watch) bool {
	for _, o := range ws {
		if o == w {
			return true
		}
	}
	return false
}

func (h *Hub) receiveMsg(moved []*Watch, m *nats.Msg) []*Watch {
	pos := headerNumber(m.Header, headerSequence)
	if w := h.receive(m.Subject, m.Data, pos, headerNumber(m.Header, headerExpected)); w != nil {
		moved = append(moved, w)
	}
	return moved
}

// receive takes one live message and returns its watch if the head moved. A
// part is only news: its set is read from the journal when the last has come.
func (h *Hub) receive(subject string, data []byte, pos, back uint64) *Watch {
	w := h.watchOf(subject)
	if w == nil {
		return nil
	}
	hd, err := decodeHeader(data)
	if err != nil {
		w.check()
		return nil
	}
	if hd.parts > 1 {
		if hd.part == hd.parts {
			w.announce(hd.base)
		}
		return nil
	}
	rec, err := decodeStored(data, pos)
	if err != nil {
		w.announce(hd.base + protocol.Seq(hd.count) - 1)
		return nil
	}
	rec.back = back
	if !w.offer(rec) {
		return nil
	}
	if h.noted != nil {
		h.noted(w.log, rec.base, pos)
	}
	return w
}

func (h *Hub) watchOf(subject string) *Watch {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.live[subject]
}
