package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rejoin/protocol"
)

func seqs(from, to protocol.Seq) (s []protocol.Seq) {
	for ; from <= to; from++ {
		s = append(s, from)
	}
	return s
}

func (s *steps) wantPull(c protocol.Cursor, want []protocol.Seq, wantSt PullStatus) {
	s.tb.Helper()
	got, last, st := s.pull(c, 0, 1<<30, 0)
	if !slices.Equal(got, want) || st != wantSt {
		s.tb.Fatalf("Pull after %d = %v, status %d; want %v, %d", c.Seq, got, st, want, wantSt)
	}
	if n := len(want); n > 0 && last != want[n-1] || n == 0 && last != c.Seq {
		s.tb.Fatalf("Pull after %d: last = %d", c.Seq, last)
	}
}

func at(seq protocol.Seq) protocol.Cursor { return protocol.Cursor{Seq: seq} }

func TestLiveInOrder(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.wantPull(at(0), nil, PullIdle)
	for i := range 3 {
		s.live(s.log.append(2, 10))
		if s.bell != i+1 {
			t.Fatalf("%d wakes after %d records", s.bell, i+1)
		}
	}
	s.wantPull(at(0), seqs(1, 6), PullIdle)
	s.wantPull(at(3), seqs(4, 6), PullIdle) // in the middle of a record
	s.wantPull(protocol.Cursor{Epoch: s.w.epoch, Seq: 6}, nil, PullIdle)
	if s.hub.lanes[0].fills.work != nil || s.log.reads != 0 {
		t.Error("the journal was read for what came live")
	}
}

func TestLiveDuplicateIsDropped(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	a, b := s.log.append(2, 0), s.log.append(1, 0)
	for _, r := range []*Record{a, a, b, a, b} {
		s.live(r)
	}
	s.wantPull(at(0), seqs(1, 3), PullIdle)
	if s.bell != 2 || s.fill() {
		t.Errorf("%d wakes for two records, or a fill", s.bell)
	}
}

// Proves I-J4. A live record behind a hole is not served before the hole is filled.
func TestLiveGapIsFilled(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(2, 0)
	late := s.log.append(1, 0)
	s.live(late)
	s.wantPull(at(0), seqs(1, 1), PullIdle)
	next := s.log.append(1, 0)
	s.live(next) // noted while the fill runs
	s.wantPull(at(1), nil, PullIdle)
	if !s.fill() {
		t.Fatal("no fill queued")
	}
	s.wantPull(at(1), seqs(2, 5), PullIdle)
	s.live(s.log.append(1, 0))
	s.wantPull(at(5), seqs(6, 6), PullIdle)
	if s.fill() {
		t.Error("a fill is left")
	}
}

// What came live during a fill is applied without reading it again.
func TestFillAppliesNoted(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.live(s.log.append(1, 0))
	stored := s.log.recs
	after := s.log.append(1, 0)
	s.live(after)
	s.log.recs = stored // the replica that is read lags
	s.fill()
	if s.head() != 4 || s.w.filling {
		t.Fatalf("head %d, filling %v", s.head(), s.w.filling)
	}
}

func TestShortFillIsRetriedThenGivenUp(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.live(s.log.append(1, 0))
	s.log.short = 2
	s.settle()
	if s.head() != 3 {
		t.Fatalf("head %d after a short fill", s.head())
	}
	// Announced, but not in the log: the head stays, live goes on.
	s.w.announce(9)
	s.settle()
	if s.head() != 3 {
		t.Fatalf("head %d", s.head())
	}
	s.live(s.log.append(1, 0))
	if s.head() != 4 {
		t.Fatalf("head %d: live does not go on", s.head())
	}
}

func TestFillWhileJournalIsAway(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.log.fail = 3
	s.w.check()
	s.fill()
	if s.fill() {
		t.Fatal("a failed fill is retried at once")
	}
	s.settle()
	s.wantPull(at(0), seqs(1, 2), PullIdle)
}

// The tail of a silent log is checked: the last live record may be the lost one.
func TestIdleTailCheck(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.time = s.time.Add(idleCheck - time.Millisecond)
	s.hub.tick(s.time)
	if s.fill() {
		t.Fatal("checked too early")
	}
	s.time = s.time.Add(time.Millisecond)
	s.hub.tick(s.time)
	bell := s.bell
	s.settle()
	s.wantPull(at(0), seqs(1, 2), PullIdle)
	if s.bell == bell {
		t.Error("nobody was woken")
	}
	s.hub.tick(s.time)
	if s.fill() {
		t.Error("checked again at once")
	}
}

func TestSlowConsumerNoticeChecksAtOnce(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.hub.checkAll()
	s.settle()
	s.wantPull(at(0), seqs(1, 2), PullIdle)
}

// A check asked for while a fill runs is made after it: the fill may have
// looked before the record was stored whose live copy got lost.
func TestCheckDuringFill(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.live(s.log.append(1, 0))
	s.log.during = func() {
		s.log.append(1, 0)
		s.w.check()
	}
	s.settle()
	s.wantPull(at(0), seqs(1, 4), PullIdle)
}

// A record that claims to follow but does not is never served.
func TestLiveForgery(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(3, 0))
	last := s.log.last()
	other := record(nil, last.epoch, 1, 3, 50, 9)
	for name, r := range map[string]*Record{
		"not dense":         record(last, last.epoch, 6, 1, 0, 10),
		"overlaps":          record(last, last.epoch, 3, 2, 0, 10),
		"other predecessor": record(other, last.epoch, 4, 1, 0, 10),
		"older epoch":       record(last, testEpoch(0), 2, 1, 0, 10),
	} {
		s.live(r)
		s.settle()
		if p := s.w.Position(); p.Head != 3 || p.Epoch != last.Epoch() {
			t.Errorf("%s: Position = %+v", name, p)
		}
		s.wantPull(at(0), seqs(1, 3), PullIdle)
	}
	s.live(s.log.append(1, 0))
	s.wantPull(at(3), seqs(4, 4), PullIdle)
}

func TestEpochSwitch(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("first record lost %v", lost), func(t *testing.T) {
			s := newSteps(t, hubBytes)
			s.watch()
			s.live(s.log.append(3, 0))
			old := protocol.Cursor{Epoch: s.w.epoch, Seq: 1}
			r := s.log.startEpoch(2, 4)
			if !lost {
				s.live(r)
			}
			s.live(s.log.append(1, 0))
			s.settle()
			p := s.w.Position()
			if p.Epoch != r.Epoch() || p.Floor != 8 || p.Head != 9 {
				t.Fatalf("Position = %+v", p)
			}
			s.wantPull(old, nil, PullEpoch)
			s.wantPull(protocol.Cursor{Epoch: p.Epoch, Seq: 6}, nil, PullTrimmed)
			s.wantPull(protocol.Cursor{Epoch: p.Epoch, Seq: 7}, seqs(8, 9), PullIdle)
		})
	}
}

func TestRingLimits(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	for range ringRecordsMax + 10 {
		s.live(s.log.append(1, 0))
	}
	if n := len(s.w.ring.slots); n != ringRecordsMax {
		t.Errorf("%d records in the ring", n)
	}
	s.wantPull(at(0), seqs(1, ringRecordsMax+10), PullIdle) // what left it is at hand still
	for range 8 {
		s.live(s.log.append(1, ringBytesMax/4))
	}
	if s.w.ring.bytes > ringBytesMax || len(s.w.ring.slots) != 3 {
		t.Errorf("%d bytes in %d records", s.w.ring.bytes, len(s.w.ring.slots))
	}
	r := s.log.append(1, 3*ringBytesMax)
	s.live(r)
	if len(s.w.ring.slots) != 1 || s.w.ring.newest() != r {
		t.Errorf("the newest event is not in the ring")
	}
	if got := s.hub.ringBytes.Load(); got != int64(s.w.ring.bytes) {
		t.Errorf("rings hold %d bytes, counted are %d", s.w.ring.bytes, got)
	}
}

// All rings together stay within half of the budget; the rest is the cache's.
func TestRingsShareTheBudget(t *testing.T) {
	const budget = 1 << 20
	s := newSteps(t, budget)
	s.watch()
	for range 100 {
		s.live(s.log.append(1, 10<<10))
	}
	for i := range 9 {
		w, err := s.hub.Watch(t.Context(), Log{Key: protocol.Key{Session: fmt.Sprint(i)}})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Release()
	}
	s.hub.tick(s.time)
	if max := budget / 2 / 10; s.w.ring.bytes > max {
		t.Errorf("ring holds %d bytes of %d", s.w.ring.bytes, max)
	}
	if used := s.hub.cache.used + int(s.hub.ringBytes.Load()); used > budget {
		t.Errorf("hub holds %d bytes of %d", used, budget)
	}
}

// Proves I-J5. A reader that is behind reads ranges; one read serves all, and
// what has left the cache is read again.
func TestBehindReadsRanges(t *testing.T) {
	const budget = 8 << 20
	s := newSteps(t, budget)
	for range 300 {
		s.log.append(1, 100<<10)
	}
	s.watch()
	if p := s.w.Position(); p.Head != 300 || p.Floor != 1 {
		t.Fatalf("Position = %+v", p)
	}
	for range 5 { // five readers at the same place: one read
		s.wantPull(at(0), nil, PullWait)
	}
	bell := s.bell
	if !s.read() || s.read() || s.bell == bell {
		t.Fatal("not one read, or nobody woken")
	}
	for range 2 { // all of it, twice: the first part is long evicted
		c := at(0)
		for c.Seq < 300 {
			_, last, st := s.pull(c, 0, 64<<10, 0)
			if st == PullWait {
				s.settle()
			}
			c.Seq = last
			if used := s.hub.cache.used; used > budget {
				t.Fatalf("cache holds %d bytes", used)
			}
		}
	}
	if s.log.reads < 40 {
		t.Errorf("%d reads: nothing was evicted", s.log.reads)
	}
	s.wantPull(at(300), nil, PullIdle)
	if got := s.w.ring.bytes; got > 2*100<<10 {
		t.Errorf("ring took history: %d bytes", got)
	}
}

// With a cache that holds nothing every reader still gets on.
func TestThrashMakesProgress(t *testing.T) {
	s := newSteps(t, 1)
	for range 50 {
		s.log.append(1, 300<<10)
	}
	s.watch()
	cursors := []protocol.Cursor{at(0), at(7), at(20), at(33)}
	for round := 0; ; round++ {
		busy := false
		for i := range cursors {
			if cursors[i].Seq == 50 {
				continue
			}
			busy = true
			_, cursors[i].Seq, _ = s.pull(cursors[i], 0, 64<<10, 0)
		}
		if !busy {
			break
		}
		for s.read() {
		}
		if round > 200 {
			t.Fatalf("no progress: %v", cursors)
		}
	}
}

func TestPullBounds(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(10, 99)) // 101 bytes each with prefix and LF
	s.live(s.log.append(10, 99))
	tests := []struct {
		name       string
		after      protocol.Seq
		until      protocol.Seq
		max, limit int
		want       []protocol.Seq
		st         PullStatus
	}{
		{"everything", 0, 0, 1 << 20, 0, seqs(1, 20), PullIdle},
		{"max", 0, 0, 1010, 0, seqs(1, 10), PullMore},
		{"max less one", 0, 0, 1009, 0, seqs(1, 9), PullMore},
		{"at least one", 3, 0, 1, 0, seqs(4, 4), PullMore},
		{"limit", 5, 0, 1 << 20, 7, seqs(6, 12), PullMore},
		{"until", 0, 12, 1 << 20, 0, seqs(1, 12), PullMore},
		{"until reached", 12, 12, 1 << 20, 0, nil, PullMore},
		{"until beyond the head", 18, 30, 1 << 20, 0, seqs(19, 20), PullIdle},
		{"at the head", 20, 0, 1 << 20, 0, nil, PullIdle},
		{"beyond the head", 25, 0, 1 << 20, 0, nil, PullIdle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, last, st := s.pull(at(tt.after), tt.until, tt.max, tt.limit)
			want := tt.after
			if n := len(tt.want); n > 0 {
				want = tt.want[n-1]
			}
			if !slices.Equal(got, tt.want) || last != want || st != tt.st {
				t.Errorf("Pull = %v, %d, status %d; want %v, %d, %d", got, last, st, tt.want, want, tt.st)
			}
		})
	}
	t.Run("appends", func(t *testing.T) {
		out, _, _ := s.w.Pull([]byte("head "), []byte("<"), at(0), 0, 1<<20, 2)
		if string(out[:6]) != "head <" || len(out) != 5+202 {
			t.Errorf("out = %q", out)
		}
	})
}

func TestPullTrimmed(t *testing.T) {
	s := newSteps(t, hubBytes)
	for range 10 {
		s.log.append(1, rangeBytes/8)
	}
	s.watch()
	s.log.trim(5)
	s.wantPull(at(0), nil, PullWait)
	s.settle()
	s.wantPull(at(0), nil, PullTrimmed)
	if p := s.w.Position(); p.Floor != 6 {
		t.Errorf("Position = %+v", p)
	}
	s.wantPull(at(5), nil, PullWait)
	s.settle()
	s.wantPull(at(5), seqs(6, 10), PullIdle)
}

func TestPullDamaged(t *testing.T) {
	s := newSteps(t, hubBytes)
	for range 10 {
		s.log.append(1, 100)
	}
	s.log.broken[s.log.recs[4].pos] = true
	s.watch()
	s.wantPull(at(0), nil, PullWait)
	s.settle()
	s.wantPull(at(0), seqs(1, 4), PullWait)
	s.settle()
	s.wantPull(at(4), nil, PullDamaged)
	s.wantPull(at(5), nil, PullWait)
	s.settle()
	s.wantPull(at(5), seqs(6, 10), PullIdle)
	s.log.broken = map[uint64]bool{}
	s.time = s.time.Add(verdictFor)
	s.wantPull(at(4), nil, PullWait) // looked at again after a while
}

// A fill that meets damage goes on behind it; readers learn of it at the hole.
func TestFillOverDamage(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	s.live(s.log.append(1, 0))
	s.log.append(1, 0)
	s.log.broken[s.log.append(1, 0).pos] = true
	s.live(s.log.append(1, 0))
	s.settle()
	if s.head() != 4 {
		t.Fatalf("head %d", s.head())
	}
	s.wantPull(at(3), seqs(4, 4), PullIdle)
	c := at(0)
	for range 5 {
		_, last, st := s.pull(c, 0, 1<<20, 0)
		c.Seq = last
		if st == PullDamaged {
			break
		}
		s.settle()
	}
	s.wantPull(c, nil, PullDamaged)
	if c.Seq != 2 {
		t.Errorf("damage met after %d", c.Seq)
	}
	s.live(s.log.append(1, 0))
	s.wantPull(at(4), seqs(5, 5), PullIdle)
}

func TestPullFailedThenWoken(t *testing.T) {
	s := newSteps(t, hubBytes)
	for range 10 {
		s.log.append(1, 0)
	}
	s.watch()
	s.log.fail = 2
	s.wantPull(at(0), nil, PullWait)
	s.read()
	s.wantPull(at(0), nil, PullFailed)
	bell := s.bell
	s.hub.tick(s.time)
	if s.bell != bell {
		t.Fatal("woken without back-off")
	}
	s.time = s.time.Add(time.Second)
	s.hub.tick(s.time)
	if s.bell == bell {
		t.Fatal("not woken")
	}
	s.wantPull(at(0), nil, PullWait)
	s.settle()
	s.wantPull(at(0), nil, PullWait)
	s.settle()
	s.wantPull(at(0), seqs(1, 10), PullIdle)
}

// A watch has a bounded number of reads under way; who is not among them asks
// again at the next wake.
func TestRangesAreBounded(t *testing.T) {
	s := newSteps(t, hubBytes)
	for range 100 {
		s.log.append(1, rangeBytes)
	}
	s.watch()
	for i := range 50 {
		s.wantPull(at(protocol.Seq(i)), nil, PullWait)
	}
	if n := len(s.hub.lanes[0].reads.work); n != rangesMax {
		t.Errorf("%d reads queued", n)
	}
}

func TestWatchIsShared(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.log.append(1, 0)
	w := s.watch()
	w2, err := s.hub.Watch(t.Context(), w.log)
	if err != nil || w2 != w {
		t.Fatalf("second Watch = %p, %v", w2, err)
	}
	w.Release()
	if len(s.hub.watches) != 1 {
		t.Fatal("dropped while in use")
	}
	s.wantPull(at(0), seqs(1, 1), PullIdle)
	w.Release()
	if len(s.hub.watches) != 0 || s.hub.ringBytes.Load() != 0 || len(s.hub.cache.logs) != 0 {
		t.Error("something of the watch is left")
	}
	s.log.fail = 1
	if _, err := s.hub.Watch(t.Context(), w.log); !errors.Is(err, ErrUnavailable) || len(s.hub.watches) != 0 {
		t.Errorf("Watch while the journal is away: %v", err)
	}
	s.watch()
	s.wantPull(at(0), seqs(1, 1), PullIdle)
}

func TestSyncWaitsForTheHead(t *testing.T) {
	s := newSteps(t, hubBytes)
	s.watch()
	if p, err := s.w.Sync(t.Context()); err != nil || p.Head != 0 {
		t.Fatalf("Sync of an empty log = %+v, %v", p, err)
	}
	s.log.append(2, 0)
	done := make(chan Position)
	go func() {
		p, err := s.w.Sync(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- p
	}()
	w, ok := s.hub.lanes[0].fills.get() // the live record never comes: patience ends in a fill
	if !ok {
		t.Fatal("no fill")
	}
	s.hub.fill(w)
	if p := <-done; p.Head != 2 {
		t.Fatalf("Sync = %+v", p)
	}
	// Closing ends a Sync that waits for what never comes.
	s.log.append(1, 0)
	errs := make(chan error)
	go func() {
		_, err := s.w.Sync(t.Context())
		errs <- err
	}()
	if _, ok := s.hub.lanes[0].fills.get(); !ok {
		t.Fatal("no fill")
	}
	s.w.Release()
	if err := <-errs; !errors.Is(err, ErrClosed) {
		t.Fatalf("Sync of a closed watch: %v", err)
	}
}

// FuzzHub runs a random program of appends, losses, delays, trims, epochs,
// outages and slow readers, and checks what every reader saw. Proves I-J4.
func FuzzHub(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		prog := make([]byte, 400)
		for i := range prog {
			prog[i] = byte(r.Uint32())
		}
		f.Add(prog)
	}
	f.Fuzz(func(t *testing.T, prog []byte) {
		if len(prog) > 2000 {
			return
		}
		runHubProgram(t, prog)
	})
}

type fuzzReader struct {
	c       protocol.Cursor
	history []step
}

func runHubProgram(t *testing.T, prog []byte) {
	s := newSteps(t, 64<<10)
	var air []*Record // republished, not yet delivered
	epoch := 1
	s.watch()
	readers := make([]fuzzReader, 4)
	// place puts a reader behind what a snapshot covers.
	place := func(r *fuzzReader) {
		p := s.w.Position()
		r.c = protocol.Cursor{Epoch: p.Epoch, Seq: p.Head}
		r.history = append(r.history, step{jump: true, seq: p.Head})
	}
	pull := func(r *fuzzReader, max, limit int) PullStatus {
		got, last, st := s.pull(r.c, 0, max, limit)
		for _, seq := range got {
			r.history = append(r.history, step{seq: seq})
		}
		if n := len(got); n > 0 && got[n-1] != last {
			t.Fatalf("last is %d, delivered %d", last, got[n-1])
		}
		r.c.Seq = last
		switch st {
		case PullTrimmed, PullEpoch, PullDamaged:
			place(r)
		case PullMore, PullIdle, PullWait, PullFailed:
		}
		return st
	}
	for i := range readers {
		place(&readers[i])
		readers[i].c.Epoch = ""
	}
	for len(prog) >= 2 {
		op, arg := prog[0]%16, int(prog[1])
		prog = prog[2:]
		r := &readers[arg%len(readers)]
		switch op {
		case 0, 1, 2, 3:
			air = append(air, s.log.append(1+arg%3, 20+arg*8))
		case 4, 5, 6: // deliver in order
			for range 1 + arg%4 {
				if len(air) > 0 {
					s.live(air[0])
					air = air[1:]
				}
			}
		case 7: // lose
			if len(air) > 0 {
				air = air[1:]
			}
		case 8: // deliver late and twice
			if len(air) > 0 {
				k := arg % len(air)
				s.live(air[k])
				s.live(s.log.recs[arg%len(s.log.recs)])
			}
		case 9:
			s.fill()
		case 10:
			s.read()
		case 11, 12:
			pull(r, 1+arg*16, arg%5)
		case 13:
			s.time = s.time.Add(time.Duration(arg) * 30 * time.Millisecond)
			s.hub.tick(s.time)
			if arg%4 == 0 { // a new connection resumes at the cursor
				r.history = append(r.history, step{jump: true, seq: r.c.Seq})
			}
		case 14:
			switch {
			case arg < 40:
				s.log.trim(arg % 8)
			case arg < 60:
				epoch++
				air = append(air, s.log.startEpoch(epoch, arg%3))
			case arg < 120:
				s.log.fail = arg % 4
			default:
				s.log.short = arg % 3
			}
		case 15:
			s.w.check()
		}
	}
	// At rest: the journal answers, what was lost is found by the idle check.
	s.log.fail, s.log.short = 0, 0
	s.time = s.time.Add(idleCheck)
	s.hub.tick(s.time)
	s.settle()
	s.time = s.time.Add(idleCheck)
	s.hub.tick(s.time)
	s.settle()
	head := protocol.Seq(0)
	if r := s.log.last(); r != nil {
		head = r.Last()
	}
	if s.head() != head {
		t.Fatalf("head %d, the log ends at %d", s.head(), head)
	}
	for i := range readers {
		r := &readers[i]
		for range 10000 {
			st := pull(r, 4096, 0)
			if st == PullIdle {
				break
			}
			if st == PullWait || st == PullFailed {
				s.settle()
			}
		}
		if err := validate(r.history, head); err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
	}
	if got := s.hub.ringBytes.Load(); got != int64(s.w.ring.bytes) {
		t.Errorf("ring accounting: %d, want %d", got, s.w.ring.bytes)
	}
}
