package gateway

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"

	"rejoin/broker"
	"rejoin/protocol"
)

// A job is one line of requests that the reader does not answer itself: a single
// request, or what remains of a batch. Jobs that touch the same session run one
// after another in arrival order; others run at the same time.
type job struct {
	batch  bool
	stats  *counters
	tasks  []task
	keys   []string // sessions it touches, without repetition
	weight int      // bytes it may answer, for heavy methods

	blockers int    // jobs it waits for
	next     []*job // jobs that wait for it
}

// A task is one call of a job: what is to be done, or what was decided already.
type task struct {
	id      protocol.RawJSON // nil: a notification
	m       *method          // nil: decided
	request request
	result  []byte // of a decided task
	err     *protocol.Error
}

// lanes order the jobs of a connection; guarded by its mu. At most
// RequestsInWorkMax are in work and RequestsQueuedMax wait; beyond, admit refuses.
type lanes struct {
	last    map[string]*job // the newest open job of a session; nil until the first
	ready   []*job          // wait for a free place only
	open    int             // in work or waiting
	inWork  int
	waiting int
}

// admit takes a job over; false when too many wait already.
func (c *conn) admit(sc scope, j *job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.lanes
	for _, k := range j.keys {
		if l.last[k] != nil {
			j.blockers++
		}
	}
	runs := j.blockers == 0 && l.inWork < protocol.RequestsInWorkMax
	if !runs && l.waiting >= protocol.RequestsQueuedMax {
		c.srv.counters.refuse("RequestsQueuedMax")
		return false
	}
	for _, k := range j.keys {
		if before := l.last[k]; before != nil {
			before.next = append(before.next, j)
		}
		if l.last == nil {
			l.last = make(map[string]*job)
		}
		l.last[k] = j
	}
	l.open++
	switch {
	case runs:
		l.inWork++
		c.jobs.Go(func() { c.runJobs(sc, j) })
	default:
		l.waiting++
		if j.blockers == 0 {
			l.ready = append(l.ready, j)
		}
	}
	return true
}

// runJobs performs j and then whatever its end sets free, one after another.
func (c *conn) runJobs(sc scope, j *job) {
	for j != nil {
		c.performJob(sc, j)
		j = c.done(sc, j)
	}
}

// done closes j. It starts what may run now and returns one of those for the
// caller to run.
func (c *conn) done(sc scope, j *job) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.lanes
	l.open--
	l.inWork--
	for _, k := range j.keys {
		if l.last[k] == j {
			delete(l.last, k)
		}
	}
	if len(l.last) == 0 {
		l.last = nil
	}
	for _, n := range j.next {
		if n.blockers--; n.blockers == 0 {
			l.ready = append(l.ready, n)
		}
	}
	var mine *job
	for len(l.ready) > 0 && l.inWork < protocol.RequestsInWorkMax {
		n := l.ready[0]
		l.ready = l.ready[1:]
		l.waiting--
		l.inWork++
		if mine == nil {
			mine = n
			continue
		}
		c.jobs.Go(func() { c.runJobs(sc, n) })
	}
	if len(l.ready) == 0 {
		l.ready = nil
	}
	c.stir() // the last answer may be what the end waits for
	return mine
}

// performJob performs the tasks of j in order and queues the answer.
func (c *conn) performJob(sc scope, j *job) {
	if j.weight > 0 {
		c.reserve(j.weight)
		defer c.unreserve(j.weight)
	}
	var out []byte
	var then, after []func()
	for i := range j.tasks {
		t := &j.tasks[i]
		if t.m != nil {
			rep := c.performTask(sc, t, len(out))
			if rep.then != nil {
				then = append(then, rep.then)
			}
			if rep.after != nil {
				after = append(after, rep.after)
			}
		}
		out = j.appendAnswer(out, t)
	}
	c.answer(closeBatch(out, j.batch), then)
	for _, f := range after {
		f()
	}
}

// appendAnswer appends the response of a task; nothing for a notification. It is
// called once for each.
func (j *job) appendAnswer(out []byte, t *task) []byte {
	if t.err != nil {
		j.stats.failed(t.err)
	}
	if t.id == nil {
		return out
	}
	if j.batch {
		if len(out) == 0 {
			out = append(out, '[')
		} else {
			out = append(out, ',')
		}
	}
	if t.err != nil {
		return protocol.AppendError(out, t.id, t.err)
	}
	return protocol.AppendResult(out, t.id, t.result)
}

func closeBatch(out []byte, batch bool) []byte {
	if batch && len(out) > 0 {
		out = append(out, ']')
	}
	return out
}

// performTask leaves result or err in t. So far says how much its batch has
// answered already.
func (c *conn) performTask(sc scope, t *task, soFar int) reply {
	if t.m.heavy != nil && soFar > protocol.ResponseBytesQueued {
		t.err = protocol.Errorf(protocol.ReasonOverloaded, "the answers of one batch exceed %d bytes", protocol.ResponseBytesQueued).Met("ResponseBytesQueued")
		return reply{}
	}
	rep, err := c.perform(sc, t)
	if err != nil {
		rep = reply{session: rep.session, command: rep.command}
		t.err = c.wireError(t.m.name, err)
	}
	c.auditCall(t.m, &t.request, rep, t.err)
	t.result = rep.result
	return rep
}

// perform runs the handler of t, unless the token by which it came is good no
// more, or the server stops.
func (c *conn) perform(sc scope, t *task) (reply, error) {
	ctx := sc.reads
	if t.m.effect {
		ctx = sc.effects
	}
	who, _ := c.principal()
	switch {
	case !c.srv.auth.Valid(t.request.who):
		return reply{}, errTokenGone()
	case who != t.request.who: // a later request of the same batch showed another token
		return reply{}, errInUse()
	case ctx.Err() != nil:
		return reply{}, errStopping()
	}
	return c.protect(ctx, t)
}

// protect turns a panic of a handler into an error that carries its stack to the
// log.
func (c *conn) protect(ctx context.Context, t *task) (rep reply, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return t.m.run(ctx, c, &t.request)
}

// reserve waits until n more bytes of answers fit into what may be queued; alone
// a job may always go on.
func (c *conn) reserve(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dead && c.unsent+c.reserved > 0 && c.unsent+c.reserved+n > protocol.ResponseBytesQueued {
		c.room.Wait()
	}
	c.reserved += n
}

func (c *conn) unreserve(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= n
	c.room.Broadcast()
}

// A request is what a handler gets.
type request struct {
	who    broker.Principal
	params protocol.Params
}

// A reply is what a handler gives: the result; then runs under conn.mu when the
// response is queued, after runs outside it afterwards. Session and command are
// for the audit log, where the parameters do not name them.
type reply struct {
	result  []byte
	then    func()
	after   func()
	session string
	command string
}

// addKey adds a session to those the job touches.
func (j *job) addKey(k string) {
	if k == "" {
		return
	}
	for _, have := range j.keys {
		if have == k {
			return
		}
	}
	j.keys = append(j.keys, k)
}

// prepare decides a call as far as the reader may: what is malformed, unknown or
// not allowed, and the methods that are answered at once. The rest becomes a task
// of j.
func (c *conn) prepare(call protocol.Call, j *job) {
	t := task{id: call.ID, err: call.Err}
	if t.err == nil {
		t.err = c.prepareTask(call, &t, j)
	}
	j.tasks = append(j.tasks, t)
}

// own keeps what of t aliases the line, which is gone when its job runs.
func (t *task) own() { t.id = bytes.Clone(t.id) }

func (c *conn) prepareTask(call protocol.Call, t *task, j *job) *protocol.Error {
	m := methods[call.Method]
	who, authed := c.principal()
	if !authed && (m == nil || !m.open) {
		return errAuthRequired()
	}
	if m == nil {
		return protocol.Errorf(protocol.ReasonMethodNotFound, "method not found")
	}
	c.srv.counters.requests[m.index].Add(1)
	if m.answered && t.id == nil {
		return protocol.Errorf(protocol.ReasonInvalidRequest, "%s needs an id", m.name) // seen by nobody
	}
	if authed && !c.srv.auth.Valid(who) {
		c.expel()
		return errTokenGone()
	}
	raw := call.Params
	if m.inline == nil {
		raw = bytes.Clone(raw)
	}
	params, err := protocol.ParseParams(raw)
	if authed && who.Role < m.role {
		err = protocol.Errorf(protocol.ReasonForbidden, "%s is not allowed for this token", m.name)
	}
	if err != nil {
		e := c.wireError(m.name, err)
		c.auditCall(m, &request{who: who, params: params}, reply{}, e)
		return e
	}
	if m.inline != nil {
		if t.result, err = m.inline(c, params); err != nil {
			return c.wireError(m.name, err)
		}
		return nil
	}
	t.m = m
	t.request = request{who: who, params: params}
	if m.key != nil {
		j.addKey(m.key(c, params))
	}
	if m.heavy != nil {
		j.weight = max(j.weight, m.heavy(params))
	}
	return nil
}
