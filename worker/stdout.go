package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
)

// pipeBytesMax is the most that a pipe holds for a process without privileges
// (/proc/sys/fs/pipe-max-size).
const pipeBytesMax = 1 << 20

// stdoutBufferBytes is what one read takes of what a child prints: a burst of some
// dozen lines. A child is a process, next to which this is little; through the 512
// bytes of an idle connection such a burst came two lines at a time.
const stdoutBufferBytes = 16 << 10

// stdout turns what a child prints into events, in order: I-W2. It reads no
// faster than the journal takes it (WaitRoom), until noWait says that what is
// left is finite.
type stdout struct {
	s     *session
	lines *protocol.LineReader
	json  bool
	first bool

	room   context.Context // ends with noWait: a Run-scoped context
	noWait context.CancelFunc
	left   int // bytes that may still come once room has ended

	truncated bool // the stream was cut off; read after run has returned
}

func (s *session) newStdout(life context.Context) *stdout {
	room, noWait := context.WithCancel(life)
	return &stdout{
		s: s, lines: protocol.NewLineReader(s.child.stdout, s.w.cfg.EventBytesMax, stdoutBufferBytes), json: s.adapter.JSONLines(), first: true,
		room: room, noWait: noWait, left: pipeBytesMax + 2*s.w.cfg.EventBytesMax,
	}
}

// cut ends the stream where it is.
func (o *stdout) cut() {
	o.noWait()
	_ = o.s.child.stdout.Close() // what is in the pipe is given up: truncated says so
}

// batch is what is appended under one lock: bodies end to end in one buffer.
type batch struct {
	buf     []byte
	scratch []byte
	events  []piece
}

type piece struct {
	source   protocol.Source
	from, to int
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) add(source protocol.Source, body []byte) {
	from := len(b.buf)
	b.buf = append(b.buf, body...)
	b.events = append(b.events, piece{source, from, len(b.buf)})
}

func (b *batch) full() bool {
	return len(b.buf) >= protocol.RecordBytesMax || len(b.events) >= protocol.RecordEventsMax
}

// recycle keeps buffers of an ordinary size for the next reader.
func (b *batch) recycle() {
	if cap(b.buf) > 2*protocol.RecordBytesMax || cap(b.scratch) > protocol.RecordBytesMax {
		return
	}
	b.buf, b.scratch, b.events = b.buf[:0], b.scratch[:0], b.events[:0]
	batches.Put(b)
}

// run reads to the end of the stream, or until cut or a failed journal.
func (o *stdout) run() {
	defer o.noWait()
	for {
		line, err := o.lines.ReadLine() // an idle child holds no batch
		b := batches.Get().(*batch)
		err = o.fill(b, line, err)
		if len(b.events) > 0 && !o.append(b) {
			return
		}
		b.recycle()
		if err != nil {
			o.truncated = !errors.Is(err, io.EOF)
			return
		}
	}
}

// fill takes in a line that was read and every other one that is at hand, up to
// a batch.
func (o *stdout) fill(b *batch, line []byte, err error) error {
	for {
		switch {
		case errors.Is(err, protocol.ErrLineTooLong):
			if len(b.events) > 0 {
				return nil // the reader says it again: what came before need not wait for the end of this line
			}
			preview := append([]byte(nil), o.lines.Preview(protocol.EventPreviewBytes)...)
			var n int64
			n, err = o.lines.SkipLine()
			o.s.w.counters.met("EventBytesDefault")
			b.add(protocol.SourceBroker, protocol.LineTooLong(n, preview))
			if err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			if source, body, ok := protocol.ChildLine(b.scratch[:0], line, o.first, o.json); ok {
				b.add(source, body)
				if source == protocol.SourceBroker {
					b.scratch = body[:0]
				}
			}
		}
		o.first = false
		if b.full() || !o.lines.Ready() {
			return nil
		}
		line, err = o.lines.ReadLine()
	}
}

// append hands a batch to the journal. It reports false when the run is over.
func (o *stdout) append(b *batch) bool {
	if o.room.Err() == nil {
		if err := o.s.journal.WaitRoom(o.room); err != nil && o.room.Err() == nil {
			return false // the writer has failed; its callback ends the child
		}
	}
	if o.room.Err() != nil {
		if o.left -= len(b.buf); o.left < 0 {
			o.truncated = true // more than was in the pipe: somebody we do not know goes on printing
			return false
		}
	}
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return false
	}
	for _, p := range b.events {
		body := b.buf[p.from:p.to]
		var command string
		var effects []agent.Effect
		if p.source == protocol.SourceChild {
			body, command, effects = s.driver.Hear(s.state, body)
		}
		_, err := s.add(p.source, command, body, nil)
		if errors.Is(err, journal.ErrEventTooLarge) {
			s.w.counters.met("EventBytesDefault")
			_, err = s.add(protocol.SourceBroker, "", protocol.LineTooLong(int64(len(body)), body[:min(len(body), protocol.EventPreviewBytes)]), nil)
		}
		if err != nil {
			s.log.Warn("output is not recorded", slog.Any(protocol.LogError, err))
			return false
		}
		s.perform(effects)
	}
	return true
}
