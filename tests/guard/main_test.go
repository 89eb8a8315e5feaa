package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"writer": writer, "starter": starter})
}

const sessions = 6

// config makes blocks of 4 MB.
func config(dir string, logger *slog.Logger) journal.Config {
	return journal.Config{Dir: dir, Durability: journal.Durability{Interval: 500 * time.Millisecond}, Shards: 2, MaxBytes: 48 << 20, Logger: logger}
}

// body is what event i of a session says; its length varies, and it does not pack.
func body(session string, i uint64) string {
	rng := rand.New(rand.NewPCG(i, uint64(len(session))))
	pad := make([]byte, 0, 2048)
	for range 10 + i*7919%90 {
		pad = strconv.AppendUint(pad, rng.Uint64(), 36)
	}
	return fmt.Sprintf(`{"s":%q,"i":%d,"pad":%q}`, session, i, pad)
}

// writer writes events of several sessions until it is killed, and says on
// stdout how far each is acknowledged. Its entry in the registry's bucket is
// renewed on the way.
func writer(args []string) int {
	ctx := context.Background()
	n, err := journal.Start(ctx, config(args[0], nil))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	for k := range sessions {
		name := "s" + strconv.Itoa(k)
		wg.Go(func() {
			if err := write(ctx, n, name, func(seq uint64) {
				mu.Lock()
				defer mu.Unlock()
				_ = out.Encode(ack{name, seq}) // the reader kills us
			}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	return 1
}

// ack says that a session's events up to Seq are durable.
type ack struct {
	Session string
	Seq     uint64
}

func write(ctx context.Context, n *journal.Node, name string, told func(uint64)) error {
	w, err := n.OpenWriter(ctx, logs.Begin(logs.Of(n, name), 1, logs.Epoch(0)))
	if err != nil {
		return err
	}
	b, err := n.Bucket(ctx, "sessions")
	if err != nil {
		return err
	}
	rev, err := b.Create(ctx, "default."+name, fmt.Appendf(nil, `{"id":%q}`, name))
	if err != nil {
		return err
	}
	for i := uint64(2); ; i++ {
		if _, err := w.Append(&protocol.Event{TS: 1, Source: protocol.SourceChild, Body: []byte(body(name, i))}, nil); err != nil {
			return err
		}
		if i%5 != 0 {
			continue
		}
		if err := w.Flush(ctx); err != nil {
			return err
		}
		told(i)
		if i%200 == 0 {
			if rev, err = b.Update(ctx, "default."+name, fmt.Appendf(nil, `{"id":%q,"head":%d}`, name, i), rev); err != nil {
				return err
			}
		}
	}
}
