package broker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rejoin/protocol"
)

var (
	keyA = protocol.Key{Workspace: "default", Session: "a"}
	keyB = protocol.Key{Workspace: "default", Session: "b"}
)

// firings records when an agenda hands out what.
type firings struct {
	began time.Time
	mu    sync.Mutex
	at    map[protocol.Key][]time.Duration
}

func newFirings() *firings {
	return &firings{began: time.Now(), at: make(map[protocol.Key][]time.Duration)}
}

func (f *firings) note(k protocol.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[k] = append(f.at[k], time.Since(f.began))
}

func (f *firings) want(t *testing.T, k protocol.Key, want ...time.Duration) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.at[k]) != len(want) {
		t.Fatalf("%s: fired at %v, want %v", k, f.at[k], want)
	}
	for i, w := range want {
		if f.at[k][i] != w {
			t.Fatalf("%s: fired at %v, want %v", k, f.at[k], want)
		}
	}
}

func TestAgenda(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f := newAgenda(time.Now), newFirings()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { a.run(ctx, f.note) })
		a.set(keyA, time.Now().Add(time.Minute))
		a.set(keyB, time.Now().Add(time.Second))
		a.set(keyA, time.Now().Add(2*time.Second)) // moved
		<-time.After(3 * time.Second)
		synctest.Wait()
		f.want(t, keyA, 2*time.Second)
		f.want(t, keyB, time.Second)
		a.set(keyA, time.Now().Add(time.Second))
		if !a.has(keyA) || a.has(keyB) {
			t.Error("appointments are wrong")
		}
		a.cancel(keyA)
		a.set(keyB, time.Now().Add(-time.Second)) // overdue
		<-time.After(time.Hour)
		synctest.Wait()
		f.want(t, keyA, 2*time.Second)
		f.want(t, keyB, time.Second, 3*time.Second)
		cancel()
		wg.Wait()
	})
}

// TestRestarts: at most three in ten minutes, 1, 5 and 30 s apart.
func TestRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRestarts(time.Now), newFirings()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var refused int
		wg.Go(func() {
			r.agenda.run(ctx, func(k protocol.Key) { // each restart fails at once
				f.note(k)
				r.done(k)
				if !r.plan(k, false) {
					refused++
				}
			})
		})
		for range 2 { // twice is once
			if !r.plan(keyA, false) {
				t.Fatal("refused")
			}
		}
		<-time.After(time.Minute)
		synctest.Wait()
		f.want(t, keyA, time.Second, 6*time.Second, 36*time.Second)
		if refused != 1 || r.refused.Load() != 1 || r.scheduled(keyA) {
			t.Errorf("refused %d times, scheduled %v", refused, r.scheduled(keyA))
		}
		<-time.After(protocol.RestartWindow)
		if !r.plan(keyA, true) {
			t.Error("refused in a new window")
		}
		r.done(keyA) // called off
		<-time.After(time.Minute)
		synctest.Wait()
		f.want(t, keyA, time.Second, 6*time.Second, 36*time.Second)
		cancel()
		wg.Wait()
	})
}

func TestRestartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRestarts(time.Now)
		r.again(keyA, 0)
		if r.agenda.has(keyA) {
			t.Error("a restart that nobody planned")
		}
		r.plan(keyA, true)
		if due, _ := r.agenda.take(); len(due) != 1 {
			t.Fatalf("due: %v", due)
		}
		r.again(keyA, time.Second)
		if due, next := r.agenda.take(); len(due) != 0 || next != time.Second || !r.scheduled(keyA) {
			t.Errorf("due %v, next %v", due, next)
		}
	})
}

func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks()
		unlock, err := l.lock(t.Context(), keyA)
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.lock(t.Context(), keyB)
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.lock(ctx, keyA); err == nil {
			t.Fatal("two holders")
		}
		order := make(chan int, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			next, err := l.lock(t.Context(), keyA)
			if err != nil {
				t.Error(err)
				return
			}
			order <- 2
			next()
		})
		synctest.Wait()
		order <- 1
		unlock()
		wg.Wait()
		if a, b := <-order, <-order; a != 1 || b != 2 {
			t.Errorf("order %d, %d", a, b)
		}
		if len(l.held) != 0 {
			t.Errorf("%d locks are kept", len(l.held))
		}
	})
}
