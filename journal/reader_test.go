package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rejoin/protocol"
)

// scribe stores records of its own making: what no writer would write. These
// tests stand here and not under tests/ because only this package can.
type scribe struct {
	t   *testing.T
	ctx context.Context
	n   *Node
	l   Log
	pos uint64
	sum chainHash
	seq protocol.Seq // last event written
}

func newScribe(t *testing.T) *scribe {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	n, err := Start(ctx, Config{Dir: t.TempDir(), Shards: 1, Durability: Durability{Interval: 500 * time.Millisecond}, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &scribe{t: t, ctx: ctx, n: n, l: Log{Key: protocol.Key{Workspace: "w", Session: "s"}}}
}

// put stores data as the next message and moves the chain on.
func (s *scribe) put(data []byte) {
	s.t.Helper()
	pos, err := s.n.publish(s.ctx, subjectOf(s.l), data, s.pos)
	if err != nil {
		s.t.Fatal(err)
	}
	s.pos, s.sum = pos, hashRecord(data)
}

func (s *scribe) header(base protocol.Seq, count uint32) header {
	return header{epoch: testEpoch(1), run: 1, base: base, count: count, part: 1, parts: 1, prev: s.sum}
}

// whole stores count one-event records.
func (s *scribe) whole(count int) {
	s.t.Helper()
	for range count {
		s.seq++
		h := s.header(s.seq, 1)
		s.put(appendRecord(nil, &h, fmt.Appendf(nil, "\"seq\":%d}\n", s.seq)))
	}
}

// parts stores the first have of n parts of the next event.
func (s *scribe) parts(have, n int, writer byte) {
	s.t.Helper()
	line := bytes.Repeat([]byte("x"), 10*n)
	for i := range have {
		h := s.header(s.seq+1, 1)
		h.writer[0], h.part, h.parts, h.total = writer, uint16(i+1), uint16(n), lineCRC(line)
		s.put(appendRecord(nil, &h, line[10*i:10*i+10]))
	}
	if have == n {
		s.seq++
	}
}

// noise stores records of other sessions.
func (s *scribe) noise(count int) {
	s.t.Helper()
	for i := range count {
		o := Log{Key: protocol.Key{Workspace: "w", Session: fmt.Sprint("noise", i%7)}}
		last, err := s.n.last(s.ctx, o)
		if err != nil {
			s.t.Fatal(err)
		}
		h, pos := header{epoch: testEpoch(2), run: 1, base: 1, count: 1, part: 1, parts: 1}, uint64(0)
		if last.rec != nil {
			h.base, h.prev, pos = last.rec.Last()+1, last.rec.sum, last.rec.pos
		}
		if _, err := s.n.publish(s.ctx, subjectOf(o), appendRecord(nil, &h, []byte("\"seq\":1}\n")), pos); err != nil {
			s.t.Fatal(err)
		}
	}
}

// dense fails unless recs hold exactly from…to.
func (s *scribe) dense(recs []*Record, err error, from, to protocol.Seq) {
	s.t.Helper()
	if err != nil || len(recs) == 0 || recs[0].Base() != from || recs[len(recs)-1].Last() != to {
		s.t.Fatalf("got %v, %v; want %d to %d", bases(recs), err, from, to)
	}
	for i := 1; i < len(recs); i++ {
		if recs[i].Base() != recs[i-1].Last()+1 {
			s.t.Fatalf("not dense: %v", bases(recs))
		}
	}
}

func bases(recs []*Record) (b []protocol.Seq) {
	for _, r := range recs {
		b = append(b, r.Base())
	}
	return b
}

func (s *scribe) wantDamage(recs []*Record, err error, seq protocol.Seq) {
	s.t.Helper()
	var d *DamageError
	if !errors.Is(err, ErrDamaged) || !errors.As(err, &d) || d.Seq != seq || d.Log != s.l || len(recs) != 0 {
		s.t.Fatalf("got %v, %v; want damage at %d", bases(recs), err, seq)
	}
}

// A set of parts that was cut off is skipped; its seq is the next record's.
func TestReadSkipsCutOffSets(t *testing.T) {
	s := newScribe(t)
	s.whole(3)
	s.parts(2, 3, 1) // cut off
	if tail, err := s.n.Tail(s.ctx, s.l); err != nil || tail.Head != 3 {
		t.Fatalf("Tail = %+v, %v", tail, err)
	}
	recs, err := s.n.Read(s.ctx, s.l, 0, 1<<20)
	s.dense(recs, err, 1, 3)
	recs, err = s.n.ReadBefore(s.ctx, s.l, 100, 2, 1<<20)
	s.dense(recs, err, 2, 3)

	s.parts(1, 3, 2) // cut off again, by another set
	s.parts(3, 3, 3) // complete: seq 4
	s.whole(1)
	s.parts(1, 2, 4) // cut off by the head record's successor
	s.whole(200)
	for after := range s.seq {
		recs, err = s.n.Read(s.ctx, s.l, after, 1<<20)
		s.dense(recs, err, after+1, s.seq)
		recs, err = s.n.ReadBefore(s.ctx, s.l, after+2, 1000, 1<<20)
		s.dense(recs, err, 1, after+1)
	}
	w, err := s.n.Hub().Watch(s.ctx, s.l)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	if p := w.Position(); p.Head != s.seq || p.Floor != 1 {
		t.Fatalf("Position = %+v", p)
	}
	// Live: a cut-off set, then its seq by another writer, then a whole set.
	s.parts(1, 2, 5)
	s.whole(1)
	s.parts(2, 2, 6)
	s.whole(1)
	if p, err := w.Sync(s.ctx); err != nil || p.Head != s.seq {
		t.Fatalf("Sync = %+v, %v; want %d", p, err, s.seq)
	}
}

func TestReadFindsDamage(t *testing.T) {
	tests := []struct {
		name string
		bad  func(s *scribe) // writes seq 6
	}{
		{"flipped bit", func(s *scribe) {
			s.seq++
			h := s.header(s.seq, 1)
			data := appendRecord(nil, &h, []byte("\"seq\":6}\n"))
			data[len(data)-3] ^= 1
			s.put(data)
		}},
		{"no record", func(s *scribe) {
			s.seq++
			s.put([]byte("rubbish"))
		}},
		{"hole", func(s *scribe) {
			s.seq++
			sum := s.sum
			s.sum[0] ^= 1 // the record that belonged here is gone
			s.seq++
			h := s.header(s.seq, 1)
			s.sum = sum
			s.put(appendRecord(nil, &h, []byte("\"seq\":7}\n")))
		}},
		{"other predecessor", func(s *scribe) {
			s.seq++
			h := s.header(s.seq, 1)
			h.prev[0] ^= 1
			s.put(appendRecord(nil, &h, []byte("\"seq\":6}\n")))
		}},
		{"not dense", func(s *scribe) {
			s.seq += 2
			h := s.header(s.seq, 1)
			s.put(appendRecord(nil, &h, []byte("\"seq\":7}\n")))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScribe(t)
			s.whole(5)
			tt.bad(s)
			s.whole(5)
			recs, err := s.n.Read(s.ctx, s.l, 0, 1<<20)
			s.dense(recs, err, 1, 5)
			recs, err = s.n.Read(s.ctx, s.l, 5, 1<<20)
			s.wantDamage(recs, err, 6)
			recs, err = s.n.Read(s.ctx, s.l, 7, 1<<20)
			s.dense(recs, err, 8, s.seq)
			recs, err = s.n.ReadBefore(s.ctx, s.l, s.seq+1, 3, 1<<20)
			s.dense(recs, err, s.seq-2, s.seq)
			recs, err = s.n.ReadBefore(s.ctx, s.l, 6, 3, 1<<20)
			s.dense(recs, err, 3, 5)
			if recs, err = s.n.ReadBefore(s.ctx, s.l, s.seq+1, 1000, 1<<20); err != nil || recs[0].Base() < 6 {
				t.Errorf("ReadBefore over the damage = %v, %v", bases(recs), err)
			}

			w, err := s.n.Hub().Watch(s.ctx, s.l)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Release()
			b := make(bell, 1)
			w.Add(b)
			defer w.Remove(b)
			c := protocol.Cursor{Epoch: w.Position().Epoch}
			for st := PullMore; st != PullDamaged; {
				if _, c.Seq, st = w.Pull(nil, nil, c, 0, 1<<20, 0); st == PullWait {
					select {
					case <-b:
					case <-s.ctx.Done():
						t.Fatal(s.ctx.Err())
					}
				} else if st != PullMore && st != PullDamaged {
					t.Fatalf("status %d at %d", st, c.Seq)
				}
			}
			if c.Seq != 5 {
				t.Errorf("damage met after %d", c.Seq)
			}
		})
	}
}

// locate finds every seq of a log, with and without an index, in few reads.
func TestLocate(t *testing.T) {
	s := newScribe(t)
	for i := range 150 { // dense and sparse stretches
		s.whole(1 + i%3)
		s.noise(i % 11 % (1 + i/30))
	}
	newest, err := s.n.rd.newest(s.ctx, s.l)
	if err != nil {
		t.Fatal(err)
	}
	for _, indexed := range []bool{false, true} {
		for seq := protocol.Seq(1); seq <= s.seq; seq++ {
			if !indexed {
				s.n.rd.index.drop(s.l)
			}
			before := s.n.rd.gets.Load()
			pos, err := s.n.rd.locate(s.ctx, s.l, seq, newest)
			if err != nil {
				t.Fatal(err)
			}
			if gets := s.n.rd.gets.Load() - before; gets > locateGetsMax+1 {
				t.Errorf("seq %d: %d gets", seq, gets)
			}
			raw, ok, err := s.n.rd.at(s.ctx, s.l, pos)
			if err != nil || !ok {
				t.Fatalf("seq %d: nothing at %d: %v", seq, pos, err)
			}
			if h, err := decodeHeader(raw.data); err != nil || h.base > seq || h.base+8 < seq {
				t.Errorf("seq %d: located at base %d, %v", seq, h.base, err)
			}
			recs, err := s.n.rd.span(s.ctx, s.l, newest.Epoch(), seq, newest, 1)
			s.dense(recs, err, seq, seq)
		}
	}
}

func TestIndexIsBounded(t *testing.T) {
	x := newIndex()
	for i := range indexLogsMax + 10 {
		l := Log{Key: protocol.Key{Session: fmt.Sprint(i)}}
		for k := range 2 * indexStride {
			x.note(l, protocol.Seq(k+1), uint64(k+1))
		}
	}
	if n := len(x.logs); n != indexLogsMax || x.lru.Len() != n {
		t.Errorf("%d sessions in the index", n)
	}
	l := Log{Key: protocol.Key{Session: "long"}}
	for k := range 1_000_000 {
		x.note(l, protocol.Seq(k+1), uint64(5*k+1))
		if k%100_000 == 0 {
			x.read(l, protocol.Seq(k/2+1), uint64(5*(k/2)+1), 0)
		}
	}
	li := x.logs[l].Value.(*logIndex)
	if n := len(li.marks); n > indexMarksMax || n < indexMarksMax/4 {
		t.Errorf("%d marks of one session", n)
	}
	for i, m := range li.marks {
		if m.pos != uint64(5*(m.base-1)+1) || i > 0 && m.base <= li.marks[i-1].base {
			t.Fatalf("mark %d is %+v", i, m)
		}
	}
	lo, hi := x.around(l, 500_000)
	if lo.base > 500_000 || hi.base <= 500_000 || hi.base-lo.base > 10_000 {
		t.Errorf("around = %+v, %+v", lo, hi)
	}
}

func TestParseStored(t *testing.T) {
	const hdrs = "TkFUUy8xLjANCk5hdHMtRXhwZWN0ZWQtTGFzdC1TdWJqZWN0LVNlcXVlbmNlOiA3DQoNCg=="
	tests := []struct {
		name, in string
		want     rawMsg
		ok, fail bool
	}{
		{"as the server writes it", `{"type":"io.nats","message":{"subject":"j.0.w.s","seq":12,"hdrs":"` + hdrs + `","data":"aGVsbG8=","time":"2026-01-01T00:00:00Z"}}`, rawMsg{[]byte("hello"), 12, 7}, true, false},
		{"no headers", `{"type":"x","message":{"subject":"j.0.w.s","seq":12,"data":"aGVsbG8=","time":"t"}}`, rawMsg{[]byte("hello"), 12, 0}, true, false},
		{"another order", `{"message":{"seq":12,"data":"aGVsbG8=","hdrs":"` + hdrs + `","subject":"j.0.w.s"}}`, rawMsg{[]byte("hello"), 12, 7}, true, false},
		{"none", `{"type":"x","error":{"code":404,"err_code":10037,"description":"no message found"}}`, rawMsg{}, false, false},
		{"error", `{"type":"x","error":{"code":503,"err_code":10008,"description":"system unavailable"}}`, rawMsg{}, false, true},
		{"empty", `{}`, rawMsg{}, false, true},
		{"not JSON", `<html>`, rawMsg{}, false, true},
		{"bad base64", `{"message":{"subject":"s","seq":1,"data":"a","time":"t"}}`, rawMsg{}, false, true},
		{"cut", `{"message":{"subject":"s","seq":1,"data":"aGVs`, rawMsg{}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := parseStored([]byte(tt.in))
			if ok != tt.ok || (err != nil) != tt.fail || got.pos != tt.want.pos || got.back != tt.want.back || !bytes.Equal(got.data, tt.want.data) {
				t.Errorf("parseStored = %+v, %v, %v", got, ok, err)
			}
		})
	}
}

// BenchmarkNewest measures the leader read that every Sync makes, by record size.
func BenchmarkNewest(b *testing.B) {
	for _, size := range []int{250, protocol.RecordBytesMax} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			n := coldStart(b, Config{Dir: b.TempDir(), Shards: 1, Durability: Durability{Interval: time.Second}, MaxBytes: 1 << 30})
			l := Log{Key: protocol.Key{Workspace: "w", Session: "s"}}
			h := header{epoch: testEpoch(1), run: 1, base: 1, count: 1, part: 1, parts: 1}
			rnd := rand.New(rand.NewPCG(1, 1))
			body := make([]byte, size)
			for i := range body {
				body[i] = byte('a' + rnd.IntN(26))
			}
			body[size-1] = '\n'
			if _, err := n.publish(b.Context(), subjectOf(l), appendRecord(nil, &h, body), 0); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if r, err := n.rd.newest(b.Context(), l); err != nil || r == nil {
					b.Fatal(err)
				}
			}
			if err := n.Close(context.WithoutCancel(b.Context())); err != nil {
				b.Fatal(err)
			}
		})
	}
}
