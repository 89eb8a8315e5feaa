package journal

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestTurnstileOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurnstile(2)
		ctx := t.Context()
		for range 2 {
			if err := ts.enter(ctx, make(chan struct{}, 1)); err != nil {
				t.Fatal(err)
			}
		}
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if err := ts.enter(ctx, make(chan struct{}, 1)); err == nil {
					order <- i
				}
			}()
			synctest.Wait()
		}
		for want := range 3 {
			ts.leave()
			synctest.Wait()
			if got := <-order; got != want {
				t.Errorf("turn %d went to %d", want, got)
			}
		}
		ts.leave()
		ts.leave()
		if ts.free != 2 {
			t.Errorf("%d free, want 2", ts.free)
		}
	})
}

// A writer that gives up passes on a turn which came at the same moment.
func TestTurnstileGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTurnstile(1)
		if err := ts.enter(t.Context(), make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ts.enter(ctx, make(chan struct{}, 1)) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil {
			t.Error("enter: no error")
		}
		gone := make(chan struct{}, 1)
		ts.wait = append(ts.wait, gone)
		ts.leave() // given to gone
		if ts.giveUp(gone) {
			t.Error("giveUp: the turn was given already")
		}
		<-gone
		ts.leave()
		if ts.free != 1 {
			t.Errorf("%d free, want 1", ts.free)
		}
	})
}
