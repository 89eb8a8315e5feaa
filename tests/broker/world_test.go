package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/agent/pi"
	"rejoin/broker"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
)

var (
	admin    = broker.Principal{Name: "admin", Workspace: "default", Role: broker.RoleAdmin}
	operator = broker.Principal{Name: "op", Workspace: "default", Role: broker.RoleOperator}
	observer = broker.Principal{Name: "obs", Workspace: "default", Role: broker.RoleObserver}
	stranger = broker.Principal{Name: "else", Workspace: "other", Role: broker.RoleAdmin}
)

// testFolds are the adapters whose events are folded.
var testFolds = snapshot.Folds{"pi": pi.Adapter{}}

// world is one data directory with the processes that use it, one after another.
type world struct {
	tb    testing.TB
	ctx   context.Context
	dir   string
	every time.Duration        // durability; zero: always
	more  func(*broker.Config) // what a test adds to the broker's configuration; may be nil

	node   *journal.Node
	folds  *snapshot.Reader
	broker *broker.Broker
	worker *puppet
	halt   func() // ends Run
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{tb: tb, ctx: harness.Context(tb), dir: tb.TempDir()}
	tb.Cleanup(w.kill)
	return w
}

// start begins a process and recovers; run says whether the broker's Run goes too.
func (w *world) start(run bool) {
	w.tb.Helper()
	w.boot()
	if err := w.broker.Recover(w.ctx); err != nil {
		w.tb.Fatalf("Recover: %v", err)
	}
	if run {
		w.run()
	}
}

// boot begins a process up to the point where it would recover.
func (w *world) boot() {
	w.tb.Helper()
	log := slog.New(slog.NewTextHandler(w.tb.Output(), nil))
	node, err := journal.Start(w.ctx, journal.Config{
		Dir: w.dir, Durability: journal.Durability{Interval: w.every}, MaxBytes: 256 << 20, Logger: log,
	})
	if err != nil {
		w.tb.Fatalf("journal: %v", err)
	}
	w.node, w.folds = node, snapshot.NewReader(node, testFolds, 0)
	w.broker = w.newBroker()
	w.worker = newPuppet(w.tb, "w1", node, w.broker.Registry(), w.folds)
}

func (w *world) newBroker() *broker.Broker {
	w.tb.Helper()
	cfg := broker.Config{
		Agents: map[string]broker.AgentConfig{
			"plain": {Adapter: "jsonl", Argv: []string{"prog", "--id={sessionId}", "--agent={agentSessionId}", "--in={cwd}"}},
			"open": {
				Adapter: "jsonl", Argv: []string{"prog"}, ResumeArgv: []string{"prog", "--resume={sessionId}"},
				AllowArgs: true, EnvAllow: []string{"COLOR"}, Env: map[string]string{"A": "1"},
			},
			"talk":  {Adapter: "pi", Argv: []string{"pi"}, ResumeArgv: []string{"pi", "--session={agentSessionId}"}, AllowArgs: true},
			"lost":  {Adapter: "jsonl", Argv: []string{"prog"}, Cwd: "/nonexistent"},
			"home":  {Adapter: "jsonl", Argv: []string{"prog"}, Cwd: "/"},
			"again": {Adapter: "jsonl", Argv: []string{"prog"}, Restart: protocol.RestartResume},
		},
		Default: "plain", Adapters: []string{"jsonl", "lines", "pi"}, Workers: []string{"w1"},
		AllowArgv: true, Token: "secret", DataDir: w.dir, Logger: slog.New(slog.NewTextHandler(w.tb.Output(), nil)),
		RemoveFiles: func(dir string, k protocol.Key) error {
			return os.RemoveAll(filepath.Join(dir, "stderr", k.Workspace, k.Session))
		},
	}
	if w.more != nil {
		w.more(&cfg)
	}
	b, err := broker.New(cfg, w.node, snapshot.NewReader(w.node, testFolds, 0))
	if err != nil {
		w.tb.Fatalf("broker: %v", err)
	}
	return b
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.broker.Run(ctx) }()
	w.halt = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.tb.Errorf("Run: %v", err)
		}
	})
}

// kill ends the process as a kill does, as far as the data directory shows: no
// session is ended, the registry is left as it is.
func (w *world) kill() {
	if w.node == nil {
		return
	}
	if w.halt != nil {
		w.halt()
		w.halt = nil
	}
	w.worker.die()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := w.node.Close(ctx); err != nil {
		w.tb.Errorf("close the journal: %v", err)
	}
	w.node = nil
}

// powerCut makes the directory look as after a boot that followed no clean stop.
func (w *world) powerCut() {
	w.tb.Helper()
	path := filepath.Join(w.dir, "boot")
	data, err := os.ReadFile(path)
	if err != nil {
		w.tb.Fatal(err)
	}
	var mark map[string]any
	if err := json.Unmarshal(data, &mark); err != nil {
		w.tb.Fatal(err)
	}
	mark["clean"], mark["bootId"] = false, "another"
	if data, err = json.Marshal(mark); err != nil {
		w.tb.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) startSession(s broker.StartParams) protocol.SessionInfo {
	w.tb.Helper()
	info, err := w.broker.Start(w.ctx, admin, s)
	if err != nil {
		w.tb.Fatalf("start: %v", err)
	}
	return info
}

func (w *world) info(id string) protocol.SessionInfo {
	w.tb.Helper()
	info, err := w.broker.Info(w.ctx, admin, id)
	if err != nil {
		w.tb.Fatalf("info of %s: %v", id, err)
	}
	return info
}

func (w *world) log(id string) journal.Log {
	k := key(id)
	return journal.Log{Key: k, Shard: w.node.ShardOf(k)}
}

// history returns the log of a session as "seq:run:type" per event; a child's
// event has its body instead of a type.
func (w *world) history(id string) []string {
	w.tb.Helper()
	var out []string
	for after := protocol.Seq(0); ; {
		recs, err := w.node.ReadEpochs(w.ctx, w.log(id), after, 1<<20)
		if err != nil {
			w.tb.Fatalf("read %s: %v", id, err)
		}
		if len(recs) == 0 {
			return out
		}
		for _, rec := range recs {
			for i := range rec.Len() {
				e, err := protocol.ParseEventLine(rec.Line(i))
				if err != nil {
					w.tb.Fatal(err)
				}
				out = append(out, describe(w.tb, &e))
			}
			after = rec.Last()
		}
	}
}

func describe(tb testing.TB, e *protocol.Event) string {
	tb.Helper()
	what := string(e.Body)
	if e.Source == protocol.SourceBroker {
		var b struct{ Type, Reason, CommandID, InteractionID, ResolvedBy, Outcome string }
		if err := json.Unmarshal(e.Body, &b); err != nil {
			tb.Fatal(err)
		}
		what = strings.Join(strings.Fields(strings.Join([]string{b.Type, b.Reason, b.CommandID, b.InteractionID, b.ResolvedBy, b.Outcome}, " ")), " ")
	}
	return fmt.Sprintf("%d %d %s", e.Seq, e.Run, what)
}

func key(id string) protocol.Key { return protocol.Key{Workspace: "default", Session: id} }

// wantReason fails unless err has that reason.
func wantReason(tb testing.TB, err error, want protocol.Reason) {
	tb.Helper()
	_ = refusal(tb, err, want)
}

// refusal returns err as what it must be.
func refusal(tb testing.TB, err error, want protocol.Reason) *protocol.Error {
	tb.Helper()
	e, ok := protocol.AsError(err)
	if !ok || e.Reason != want {
		tb.Fatalf("error: got %v, want reason %s", err, want)
	}
	return e
}

func wantHistory(tb testing.TB, got []string, want ...string) {
	tb.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		tb.Fatalf("history\n got:\n%s\nwant:\n%s", g, w)
	}
}
