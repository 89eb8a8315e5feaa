package broker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"rejoin/protocol"
)

func TestWordsAreShared(t *testing.T) {
	var w words
	decode := func(id string, argv ...string) *protocol.SessionRecord {
		b, err := json.Marshal(protocol.SessionRecord{
			Workspace: "default", ID: id, Agent: "pi", Cwd: "/src", Argv: argv, ResumeArgv: argv, Exit: &protocol.Exit{Reason: "exited"},
		})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := decodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		w.share(rec)
		return rec
	}
	one, two := decode("a", "pi", "--mode", "rpc"), decode("b", "pi", "--mode", "rpc")
	for _, same := range [][2]string{{one.Workspace, two.Workspace}, {one.Agent, two.Agent}, {one.Cwd, two.Cwd}} {
		if same[0] != same[1] || unsafe.StringData(same[0]) != unsafe.StringData(same[1]) {
			t.Errorf("%q is in memory twice", same)
		}
	}
	if &one.Argv[0] != &two.Argv[0] || &one.Argv[0] != &two.ResumeArgv[0] {
		t.Error("the same list is in memory twice")
	}
	if one.Exit != two.Exit {
		t.Error("the same exit is in memory twice")
	}
	for _, argv := range [][]string{{"pi\x00--mode", "rpc"}, {"pi", "--mode\x00rpc"}, {"pi\x00", "x"}, {"pi", "\x00x"}, {""}, {strings.Repeat("x", wordBytesMax)}} {
		if rec := decode("c", argv...); !reflect.DeepEqual(rec.Argv, argv) || !reflect.DeepEqual(rec.ResumeArgv, argv) {
			t.Errorf("%q became %q and %q", argv, rec.Argv, rec.ResumeArgv)
		}
	}
}

// What is long is not kept for those that are to come.
func TestLongExitsAreNotKept(t *testing.T) {
	var w words
	long := func(n int) *protocol.Exit { return &protocol.Exit{Reason: "x", Detail: strings.Repeat("x", n-1)} }
	for n, want := range map[int]int{wordBytesMax: 1, wordBytesMax + 1: 0} {
		w = words{}
		if e := long(n); w.exit(e) != e || len(w.exits) != want {
			t.Errorf("%d bytes: %d exits are kept", n, len(w.exits))
		}
	}
}

func TestExitsThatDifferAreNotShared(t *testing.T) {
	var w words
	zero, one, kill := 0, 1, "SIGKILL"
	exits := []*protocol.Exit{
		{Reason: "exited"},
		{Reason: "exited", Code: &zero},
		{Reason: "exited", Code: &one},
		{Reason: "exited", Signal: &kill},
		{Reason: "stopped", Code: &zero},
		{Reason: "exited", Code: &zero, Detail: "oom_killed"},
		{Reason: "exited", Code: &zero, StderrTail: "no"},
		nil,
	}
	for range 2 {
		for i, e := range exits {
			if got := w.exit(e); got != e {
				t.Errorf("exit %d became %+v", i, got)
			}
		}
	}
	other := 0
	if got := w.exit(&protocol.Exit{Reason: "exited", Code: &other}); got != exits[1] {
		t.Error("the same exit is in memory twice")
	}
}

func TestWordsAreBounded(t *testing.T) {
	var w words
	for i := range 3 * wordsMax {
		s := fmt.Sprint(i)
		w.share(&protocol.SessionRecord{Title: s, Argv: []string{s}, Exit: &protocol.Exit{Detail: s}})
		if len(w.texts) > wordsMax || len(w.lists) > wordsMax || len(w.exits) > wordsMax {
			t.Fatalf("%d strings, %d lists, %d exits", len(w.texts), len(w.lists), len(w.exits))
		}
	}
	long := strings.Repeat("x", wordBytesMax+1)
	w = words{}
	w.share(&protocol.SessionRecord{Title: long, Argv: []string{long}})
	if len(w.texts) != 0 || len(w.lists) != 0 {
		t.Error("a long string is kept for others")
	}
}

// A session that has ended costs its record and a place in the feed.
func TestMemoryOfEndedSessions(t *testing.T) {
	const sessions = 4000
	code, text := 0, [16]byte{}
	feed := newFeed(nil)
	r := newRegistry(func(_, rec *protocol.SessionRecord) { feed.look(rec.ID) })
	feed.records = func(id string) *protocol.SessionRecord {
		return r.record(protocol.Key{Workspace: "default", Session: id})
	}
	before := heap()
	for i := range sessions {
		id := fmt.Sprintf("01m8qacqrn988hknc8m9h%05d", i)
		value, err := json.Marshal(protocol.SessionRecord{
			Workspace: "default", ID: id, Epoch: protocol.Epoch(strings.ToUpper(id)), Run: 1, Host: "local", Settled: true, Status: protocol.StatusEnded,
			Agent: "pi", Adapter: "pi", Argv: []string{"pi", "--mode", "rpc"}, ResumeArgv: []string{"pi", "--mode", "rpc", "--session", "{agentSessionId}"},
			Cwd: "/home/ann/src/coffee", Head: 3, Floor: 1, Exit: &protocol.Exit{Code: &code, Reason: "exited"},
			StartKey: fmt.Sprintf("default.%064x", text),
		})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := decodeRecord(value)
		if err != nil {
			t.Fatal(err)
		}
		// As the bucket's key comes: a piece of a longer string.
		r.put(protocol.Key{Workspace: "default", Session: ("prefix." + id)[len("prefix."):]}, rec, uint64(i+1))
	}
	if each := (heap() - before) / sessions; each > 1100 {
		t.Errorf("%d bytes each", each)
	} else {
		t.Logf("%d bytes each", each)
	}
	runtime.KeepAlive(feed)
	runtime.KeepAlive(r)
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
