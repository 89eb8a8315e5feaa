package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/worker"
)

// server is a process that runs a worker with one stubborn session in the data
// directory that its argument names, tells its pids, and waits to be killed.
func server(args []string) int {
	f, instance, err := serveOne(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	fmt.Printf("{\"pid\":%d,\"grandchild\":%d,\"instance\":%q}\n", f.PID, f.Grandchild, instance)
	return block()
}

func serveOne(dir string) (f family, instance string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	node, err := journal.Start(ctx, journal.Config{Dir: dir, MaxBytes: 64 << 20})
	if err != nil {
		return f, "", err
	}
	reg := &registry{records: make(map[protocol.Key]protocol.SessionRecord)}
	w, err := worker.New(worker.Config{
		ID: "w1", DataDir: dir, Adapters: map[string]agent.Adapter{"jsonl": jsonl.Adapter{}},
	}, node, reg, snapshot.NewReader(node, nil, 0))
	if err != nil {
		return f, "", err
	}
	go func() { _ = w.Run(context.Background()) }() // until the process is killed

	k := protocol.Key{Workspace: protocol.DefaultWorkspace, Session: "s"}
	rec := protocol.SessionRecord{
		Workspace: k.Workspace, ID: k.Session, Shard: node.ShardOf(k), Epoch: protocol.NewEpoch(time.Now()), Run: 1,
		Adapter: "jsonl", Argv: harness.ChildArgv("stubborn"), Cwd: dir,
	}
	reg.put(rec)
	req, err := json.Marshal(protocol.WorkerRequest{Op: protocol.OpStart, Workspace: k.Workspace, Session: k.Session, Record: &rec})
	if err != nil {
		return f, "", err
	}
	if !harness.Within(harness.Patience, func() bool {
		_, err = node.Bus().Request(ctx, protocol.WorkerSubject("w1"), req)
		return err == nil
	}) {
		return f, "", err
	}
	found := harness.Within(harness.Patience, func() bool {
		recs, err := node.Read(ctx, journal.Log{Key: k, Shard: rec.Shard}, 1, 1<<20)
		if err != nil || len(recs) == 0 {
			return false
		}
		e, err := protocol.ParseEventLine(recs[len(recs)-1].Line(0))
		return err == nil && json.Unmarshal(e.Body, &f) == nil && f.Grandchild != 0
	})
	if !found {
		return f, "", fmt.Errorf("the child did not name its grandchild")
	}
	return f, node.Instance(), nil
}

// Proves I-W3 for an owner that is killed: the leader, which ignores TERM, dies
// with it; what it left dies by KillOrphans.
func TestKilledOwner(t *testing.T) {
	harness.Covers(t, "I-W3")
	argv := harness.ChildArgv("server", t.TempDir())
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var f struct {
		family
		Instance string
	}
	if err != nil || json.Unmarshal(line, &f) != nil {
		t.Fatalf("server printed %q, %v", line, err)
	}
	if !harness.Living(f.PID) || !harness.Living(f.Grandchild) {
		t.Fatalf("not alive before the kill: %+v", f)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed: the error says so
	harness.Eventually(t, "the leader dies with its owner", func() bool { return !harness.Living(f.PID) })
	if !harness.Living(f.Grandchild) {
		t.Fatal("the grandchild did not outlive its parent: nothing is left to prove")
	}
	if n, err := worker.KillOrphans(harness.Context(t), f.Instance, nil); err != nil || n != 1 {
		t.Errorf("KillOrphans: %d, %v", n, err)
	}
	if harness.Living(f.Grandchild) {
		t.Error("the grandchild is alive")
	}
}
