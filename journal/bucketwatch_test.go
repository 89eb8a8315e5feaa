package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

// steppedWatch is the watch of a cluster's bucket, read by the test's hand from an
// embedded server: nothing is told live.
type steppedWatch struct {
	*bucketWatch
	ctx  context.Context
	n    *Node
	have map[string]string
	told int
}

func stepWatch(t *testing.T) *steppedWatch {
	t.Helper()
	s := newScribe(t)
	w := &steppedWatch{ctx: s.ctx, n: s.n, have: map[string]string{}}
	w.bucketWatch = &bucketWatch{b: s.n.bucket(protocol.BucketSessions), known: map[string]uint64{}, live: make(chan *nats.Msg, 1)}
	w.f = func(e Entry) {
		switch w.told++; {
		case e.Key == "":
		case e.Deleted:
			delete(w.have, e.Key)
		default:
			w.have[e.Key] = string(e.Value)
		}
	}
	return w
}

func (w *steppedWatch) create(t *testing.T, key string) {
	t.Helper()
	if _, err := w.b.Create(w.ctx, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func (w *steppedWatch) mustRead(t *testing.T, want ...string) {
	t.Helper()
	if err := w.read(w.ctx); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, key := range want {
		all[key] = "x"
	}
	if !maps.Equal(w.have, all) {
		t.Fatalf("the watch has %v, want %v", w.have, all)
	}
}

// TestWatchLearnsOfVanishedKeys: after an outage that outlasted the note of a deleted
// key nothing in the bucket tells of it.
func TestWatchLearnsOfVanishedKeys(t *testing.T) {
	w := stepWatch(t)
	for _, key := range []string{"a", "b", "c"} {
		w.create(t, key)
	}
	w.mustRead(t, "a", "b", "c")
	if err := w.b.Delete(w.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	st, err := w.n.kvjs.Stream(w.ctx, bucketStream(protocol.BucketSessions))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(w.ctx); err != nil { // the note has expired; so has, here, everything
		t.Fatal(err)
	}
	w.create(t, "d")
	w.mustRead(t, "a", "b", "c", "d") // it was away for a moment only
	w.sure = time.Now().Add(-2 * watchForget)
	w.mustRead(t, "d")
}

// TestWatchOfADeposedLeader: a bucket that seems to end before what was read of it is
// not believed at once; one that lost something is read again.
func TestWatchOfADeposedLeader(t *testing.T) {
	w := stepWatch(t)
	w.create(t, "a")
	w.create(t, "b")
	w.mustRead(t, "a", "b")
	w.last += 10
	w.known["gone"] = w.last
	w.have["gone"] = "x"
	if err := w.read(w.ctx); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	w.short = time.Now().Add(-2 * watchBack)
	w.mustRead(t, "a", "b")
	w.create(t, "c")
	w.mustRead(t, "a", "b", "c")
}

// TestWatchFindsGaps: a live change that does not follow what was told is not told.
func TestWatchFindsGaps(t *testing.T) {
	w := stepWatch(t)
	w.create(t, "a")
	w.mustRead(t, "a")
	live := func(seq uint64, key string) *nats.Msg {
		return &nats.Msg{Subject: "live", Data: []byte("x"), Header: nats.Header{
			headerSubject: {bucketPrefix(protocol.BucketSessions) + key}, headerSequence: {fmt.Sprint(seq)},
		}}
	}
	told := w.told
	if w.change(live(w.last+2, "c")) || w.told != told {
		t.Error("a change behind a gap was told")
	}
	if !w.change(live(w.last, "a")) || w.told != told {
		t.Error("a change was told twice")
	}
	if !w.change(live(w.last+1, "b")) || w.told != told+1 {
		t.Error("the next change was not told")
	}
}
