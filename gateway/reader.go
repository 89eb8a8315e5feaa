package gateway

import (
	"errors"
	"io"

	"rejoin/protocol"
)

// read is the reader: it takes frames until the input ends or the connection
// does, answers what can be answered at once and hands the rest to jobs. It
// waits most of its life: what it does is in calls, so that its stack is small.
func (c *conn) read(sc *scope) {
	for c.awaitRoom() {
		frame, err := c.pipe.ReadFrame()
		if !c.hear(sc, frame, err) {
			return
		}
	}
}

// hear does what a read that has returned asks for; false ends the reader.
//
//go:noinline // the reader's stack stays small: see BenchmarkIdleConnection
func (c *conn) hear(sc *scope, frame []byte, err error) bool {
	if err != nil {
		c.inputFailed(err)
		return false
	}
	if c.stopping() {
		return false
	}
	c.keepPace(c.take(*sc, frame))
	return true
}

// inputFailed ends the connection as its input ended.
//
//go:noinline
func (c *conn) inputFailed(err error) {
	switch {
	case errors.Is(err, protocol.ErrLineTooLong):
		e := protocol.Errorf(protocol.ReasonInvalidRequest, "request exceeds size limit").Met("RequestBytesDefault")
		c.srv.counters.failed(e)
		c.answer(protocol.AppendError(nil, nil, e), nil)
		c.finish(CloseTooBig, "request exceeds size limit")
	case errors.Is(err, io.EOF):
		c.inputEnded()
	default:
		c.logTransport("read", err)
		c.kill(CloseInternal, "read failed")
	}
}

// awaitRoom blocks while the client does not read its responses; false when no
// request is to be read any more.
func (c *conn) awaitRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := func() bool {
		return c.unsent >= protocol.ResponseBytesQueued && !c.dead && !c.closing && !c.draining
	}
	if full() {
		c.srv.counters.refuse("ResponseBytesQueued")
	}
	for full() {
		c.room.Wait()
	}
	return !c.dead && !c.closing && !c.draining
}

// inputEnded: the peer sends no more. It still gets the answers of what it sent,
// and goes on receiving what it has subscribed to.
func (c *conn) inputEnded() {
	c.mu.Lock()
	c.ended = true
	c.stir()
	c.mu.Unlock()
	if c.half != nil {
		c.half.AwaitHangup()
		c.kill(CloseNormal, "peer is gone")
	}
}

// take handles one frame and returns for how many requests it counts.
func (c *conn) take(sc scope, frame []byte) int {
	m := protocol.ParseMessage(frame)
	switch {
	case m.Heartbeat != nil:
		c.answer(protocol.AppendPong(nil, m.Heartbeat), nil)
	case len(m.Calls) > 0:
		c.takeCalls(sc, &m)
	}
	return max(1, len(m.Calls))
}

func (c *conn) takeCalls(sc scope, m *protocol.Message) {
	j := &job{batch: m.Batch, stats: c.srv.counters}
	for _, call := range m.Calls {
		c.prepare(call, j)
	}
	if c.refused != nil {
		c.refuse(j, errAuthRequired())
		c.finish(c.refused.code, c.refused.reason)
		return
	}
	if j.decided() {
		c.answer(j.answers(), nil)
		return
	}
	for i := range j.tasks {
		j.tasks[i].own()
	}
	if !c.admit(sc, j) {
		c.refuse(j, protocol.Errorf(protocol.ReasonOverloaded, "more than %d requests wait on this connection", protocol.RequestsQueuedMax))
	}
}

// decided reports that nothing of j is left to do.
func (j *job) decided() bool {
	for i := range j.tasks {
		if j.tasks[i].m != nil {
			return false
		}
	}
	return true
}

// answers is the response to a decided job; empty when nobody asked for one.
func (j *job) answers() []byte {
	var out []byte
	for i := range j.tasks {
		out = j.appendAnswer(out, &j.tasks[i])
	}
	return closeBatch(out, j.batch)
}

// refuse answers everything that is left to do of j with err.
func (c *conn) refuse(j *job, err *protocol.Error) {
	for i := range j.tasks {
		if t := &j.tasks[i]; t.m != nil {
			c.auditCall(t.m, &t.request, reply{}, err)
			t.m, t.err = nil, err
		}
	}
	c.answer(j.answers(), nil)
}
