package journal

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A record that waits for a leader's answer, or for its next attempt, goes to the
// leader that was elected meanwhile, at once.
func TestElectionIsHeard(t *testing.T) {
	for _, silent := range []bool{true, false} { // the former leader; else nobody takes the request
		synctest.Test(t, func(t *testing.T) {
			f := newFakeLog()
			st := f.store()
			st.gate.term = newTerm(t.Context())
			leaderless := false
			st.publish = func(ctx context.Context, subject string, data []byte, expect uint64) (uint64, error) {
				switch {
				case leaderless && silent:
					<-ctx.Done()
					return 0, ctx.Err()
				case leaderless:
					return 0, errLost
				}
				return f.publish(ctx, subject, data, expect)
			}
			life, abort := context.WithCancel(t.Context())
			w, err := newWriter(st, testConfig(1), abort)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.open(t.Context(), life, func() {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			leaderless = true
			done := put(t, w, `"x"`)
			const away = 20 * time.Second // the pauses are as long as they get by then
			<-time.After(away)
			synctest.Wait()
			leaderless = false
			elected := time.Now()
			st.gate.term.over(t.Context())
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if d := time.Since(elected); d != 0 {
				t.Errorf("silent %v: the new leader was asked %v after its election", silent, d)
			}
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.check(t)
		})
	}
}
