package snapshot_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// turnsChild speaks a little of pi's RPC: each line of input is five turns of
// sixty messages.
func turnsChild([]string) int {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		for turn := range 5 {
			fmt.Fprintln(out, `{"type":"turn_start"}`)
			for i := range 60 {
				fmt.Fprintf(out, `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"message %d of turn %d"}],"stopReason":"stop"}}`+"\n", i, turn)
			}
			fmt.Fprintln(out, `{"type":"agent_end"}`)
			if out.Flush() != nil {
				return 1
			}
		}
	}
	return 0
}

// printTurns has the child of a session print, and waits for the last line.
func printTurns(t *testing.T, c *harness.Client, id string, n *int) {
	t.Helper()
	ctx := harness.Context(t)
	s, err := c.Subscribe(ctx, id, nil)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	*n++
	if _, err := c.Call(ctx, "send", map[string]any{"sessionId": id, "command": map[string]any{"type": "get_state"}, "commandId": fmt.Sprintf("c%d", *n)}); err != nil {
		t.Fatalf("send: %v", err)
	}
	ends := 0
	if _, err := s.Until(ctx, func(e harness.Event) bool {
		if e.Type() == "agent_end" {
			ends++
		}
		return ends == 5
	}); err != nil {
		t.Fatalf("what the child prints: %v", err)
	}
	if err := c.Unsubscribe(ctx, s); err != nil {
		t.Fatalf("unsubscribe: %v", err)
	}
}

// flipLast damages the last block of a stream, some bytes before its end.
func flipLast(t *testing.T, dir, stream string) {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "$G", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks of %s: %v, %v", stream, blocks, err)
	}
	last := blocks[0]
	for _, b := range blocks {
		if len(b) > len(last) || len(b) == len(last) && b > last {
			last = b
		}
	}
	b, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-40] ^= 0xff
	if err := os.WriteFile(last, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// noInternal calls a method that may be refused, but not with an internal error.
func noInternal(t *testing.T, c *harness.Client, method string, params map[string]any) json.RawMessage {
	t.Helper()
	raw, err := c.Call(harness.Context(t), method, params)
	var rpc *harness.RPCError
	if errors.As(err, &rpc) && rpc.Code == -32603 || err != nil && !errors.As(err, &rpc) {
		t.Errorf("%s %v: %v", method, params, err)
	}
	return raw
}

// TestDamagedBlockOfCheckpoints: the last block of the checkpoints is damaged
// while the server is down, the server goes on, and is started once more. No
// session hangs on a checkpoint that vanished with the block.
func TestDamagedBlockOfCheckpoints(t *testing.T) {
	config := filepath.Join(t.TempDir(), "rejoin.yaml")
	argv, err := json.Marshal(harness.ChildArgv("turns"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "agents: {a: {adapter: demo, argv: %s}}\ndefault: a\nretention: {maxEvents: 20}\n", argv), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{Args: []string{"--config", config}})
	c, ctx := harness.Dial(t, s), harness.Context(t)
	ids, sent := []string{"one", "two"}, 0
	for _, id := range ids {
		if _, err := c.Call(ctx, "start_session", map[string]any{"sessionId": id}); err != nil {
			t.Fatal(err)
		}
		printTurns(t, c, id, &sent)
	}
	for round := range 3 {
		if code := s.Term(); code != 0 {
			t.Fatalf("status %d", code)
		}
		if round == 0 {
			flipLast(t, s.Dir, "SNAP")
		}
		s.Run()
		c = harness.Dial(t, s)
		for _, id := range ids {
			p := map[string]any{"sessionId": id}
			noInternal(t, c, "verify_session", p)
			noInternal(t, c, "get_snapshot", p)
			if raw := noInternal(t, c, "resume_session", p); raw == nil {
				t.Fatalf("round %d: session %s cannot be resumed", round, id)
			}
			printTurns(t, c, id, &sent)
			var raw json.RawMessage
			harness.Eventually(t, "a state at the floor", func() bool { // which moves
				var info struct{ Floor uint64 }
				if err := json.Unmarshal(noInternal(t, c, "get_session", p), &info); err != nil {
					t.Fatal(err)
				}
				raw = noInternal(t, c, "get_snapshot", map[string]any{"sessionId": id, "at": info.Floor - 1})
				return raw != nil
			})
			if strings.Contains(string(raw), `"damaged":true`) {
				t.Errorf("round %d: the state before the floor of %s is lost: %.200s", round, id, raw)
			}
		}
	}
	for _, id := range ids {
		if _, err := c.Call(ctx, "stop_session", map[string]any{"sessionId": id}); err != nil {
			t.Fatal(err)
		}
		raw := noInternal(t, c, "verify_session", map[string]any{"sessionId": id})
		if !strings.Contains(string(raw), `"clean":true`) {
			t.Errorf("verify %s in the end: %s", id, raw)
		}
	}
}
