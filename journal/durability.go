package journal

import (
	"fmt"
	"time"
)

// Bounds of a durability interval.
const (
	syncIntervalMin = time.Millisecond
	syncIntervalMax = 10 * time.Minute
)

// Durability is the sync level of the journal. The zero value means always: an
// acknowledgement survives power loss. Else Interval is the time between two
// fsyncs: an acknowledgement survives a process crash.
type Durability struct{ Interval time.Duration }

// ParseDurability reads "always" or a Go duration from 1ms to 10m.
func ParseDurability(s string) (Durability, error) {
	if s == "always" {
		return Durability{}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return Durability{}, fmt.Errorf("durability %q: want always or a duration such as 20ms", s)
	}
	if d < syncIntervalMin || d > syncIntervalMax {
		return Durability{}, fmt.Errorf("durability %q: want %s to %s", s, syncIntervalMin, syncIntervalMax)
	}
	return Durability{Interval: d}, nil
}

// String returns what ParseDurability reads.
func (d Durability) String() string {
	if d.always() {
		return "always"
	}
	return d.Interval.String()
}

func (d Durability) always() bool { return d.Interval <= 0 }
