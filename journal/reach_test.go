package journal

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A connection over which nothing is answered for long is taken elsewhere, once; one
// answer among them lets it stay.
func TestDeafConnectionIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		r := &reach{leave: func() { left++ }}
		after := func(d time.Duration, ok bool) {
			<-time.After(d)
			r.answered(ok)
		}
		after(0, true)
		after(time.Hour, false) // the time before it was asked does not count
		after(deafAfter, false)
		if left != 0 {
			t.Errorf("left after %v", deafAfter)
		}
		after(time.Millisecond, false)
		if left != 1 {
			t.Errorf("left %d times, want once", left)
		}
		after(0, false)
		after(deafAfter, true)
		after(0, false)
		after(deafAfter, false)
		if left != 1 {
			t.Errorf("left %d times though there was an answer", left)
		}
	})
}

// A leader that only ever says that an earlier message is on its way does not reach
// the other servers; one that refuses for another reason does.
func TestLeaderWithoutOthersIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, want := range map[int]int{apiInFlight: 1, apiWrongLast: 0} {
			left := 0
			r := &reach{leave: func() { left++ }}
			for range 8 {
				r.acknowledged(&apiError{Code: 400, ErrCode: code})
				<-time.After(time.Second)
			}
			if left != want {
				t.Errorf("code %d: left %d times, want %d", code, left, want)
			}
		}
	})
}

// Failures that are far apart are no silence; nor is one at the server before.
func TestSilencesDoNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		r := &reach{leave: func() { left++ }}
		fails := func(d time.Duration) {
			<-time.After(d)
			r.answered(false)
		}
		fails(0)
		fails(time.Hour) // nothing was asked between them
		fails(deafAfter)
		if left != 0 {
			t.Errorf("left %d times for failures an hour apart", left)
		}
		n := &Node{remote: &remote{}, life: t.Context(), log: slog.New(slog.DiscardHandler), health: &healthWatch{poke: make(chan struct{}, 1)}}
		n.linkBack(link{name: "x", reach: r})
		fails(time.Second)
		if left != 0 {
			t.Errorf("left %d times for what the server before did not answer", left)
		}
		fails(deafAfter)
		fails(time.Second)
		if left != 1 {
			t.Errorf("left %d times after %v of silence, want once", left, deafAfter+time.Second)
		}
	})
}
