package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rejoin/protocol"
)

// unwatched starts a node and ends its health watch, which would restart the
// engine, too. Its log l has one event.
func unwatched(ctx context.Context, t *testing.T, cfg Config) (n *Node, l Log) {
	t.Helper()
	n, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l = Log{Key: protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "s"}}
	w, err := n.OpenWriter(ctx, WriterConfig{
		Log: l, Run: 1, Epoch: protocol.NewEpoch(time.Now()),
		First: func(context.Context, Tail, protocol.Seq) ([]*protocol.Event, error) {
			return []*protocol.Event{{Body: []byte("1")}}, nil
		},
		Deleted: func(context.Context) (bool, error) { return false, nil },
	})
	if err == nil {
		err = w.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.end()
	n.watching.Wait()
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	return n, l
}

// TestReopenWithoutDescription: what describes a stream is gone while the engine is
// restarted in place, and so is the copy. The restart fails for good, the guard
// copies stay, and the next start of the server has every record.
func TestReopenWithoutDescription(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := Config{Dir: t.TempDir(), Durability: Durability{Interval: time.Second}, Shards: 1, MaxBytes: 64 << 20}
	n, l := unwatched(ctx, t, cfg)
	gone := errors.Join(os.Remove(filepath.Join(streamsDir(cfg.Dir), "J0", metaSum)), os.RemoveAll(filepath.Join(cfg.Dir, metaDir, "J0")))
	if gone != nil {
		t.Fatal(gone)
	}
	if err := n.restart(ctx, nil); !isMissingStream(err) {
		t.Errorf("restart: %v", err)
	}
	if !present(filepath.Join(cfg.Dir, guardDir, "J0")) {
		t.Error("the guard copies are gone")
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if tail, err := n.Tail(ctx, l); err != nil || tail.Head != 1 {
		t.Errorf("head %d, %v", tail.Head, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestRestartEndsEveryLife: a restart that opens the streams twice, because the
// server loses one at first, ends what waits for an engine that is gone.
func TestRestartEndsEveryLife(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := Config{Dir: t.TempDir(), Durability: Durability{Interval: time.Second}, Shards: 1, MaxBytes: 64 << 20}
	n, l := unwatched(ctx, t, cfg)
	lives := []*engineLife{n.reach.alive.Load()}
	n.cfg.GuardFault = func(step string) error {
		switch {
		case step == "opening" && len(lives) == 1:
			return os.RemoveAll(filepath.Join(streamsDir(cfg.Dir), "J0"))
		case step == "opened":
			lives = append(lives, n.reach.alive.Load())
		}
		return nil
	}
	if err := n.restart(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if len(lives) != 3 {
		t.Fatalf("the streams were opened %d times, want 2", len(lives)-1)
	}
	for i, a := range lives {
		if ended := a.ctx.Err() != nil; ended != (i < 2) {
			t.Errorf("engine %d: ended %v", i, ended)
		}
	}
	if tail, err := n.Tail(ctx, l); err != nil || tail.Head != 1 {
		t.Errorf("head %d, %v", tail.Head, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
