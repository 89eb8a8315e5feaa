package journal

import (
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
