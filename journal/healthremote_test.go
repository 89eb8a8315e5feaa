package journal

import (
	"testing"
	"time"
)

// The silence of a shard goes on over a time without connections, which it does not
// contain.
func TestSilenceOutlivesReconnects(t *testing.T) {
	t.Parallel()
	from := time.Unix(1000, 0)
	r := remoteLook{heard: []time.Time{from}, next: from.Add(time.Hour)}
	r.back(from.Add(time.Second)) // it was not away
	if !r.heard[0].Equal(from) || !r.next.Equal(from.Add(time.Hour)) {
		t.Errorf("heard %v, next look %v without a loss", r.heard[0], r.next)
	}
	r.away = from.Add(6 * time.Second)
	now := from.Add(9 * time.Second)
	r.back(now)
	if silent := now.Sub(r.heard[0]); silent != 6*time.Second {
		t.Errorf("silent for %v, want the 6 s before the loss", silent)
	}
	if !r.away.IsZero() || !r.next.Equal(now) {
		t.Errorf("away since %v, next look %v: want none, and at once", r.away, r.next)
	}
}
