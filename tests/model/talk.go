package model

import (
	"context"
	"time"

	"rejoin/tests/harness"
)

// What those who send commands may send at the moment.
const (
	Silent   int32 = iota // nothing
	Retrying              // commands whose fate is not known
	Talking               // new ones too
)

// Talk calls say again and again, with a pause between, until it fails or the
// connection or ctx ends.
func Talk(ctx context.Context, c *harness.Client, pause time.Duration, say func() error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return nil
		case <-tick.C:
		}
		if err := say(); err != nil {
			return err
		}
	}
}
