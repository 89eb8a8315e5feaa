package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rejoin/broker"
	"rejoin/gateway"
	"rejoin/protocol"
)

var aTime = time.Date(2026, 1, 31, 12, 0, 0, 7e6, time.UTC)

func entry(n int) gateway.AuditEntry {
	return gateway.AuditEntry{
		At: aTime, Who: broker.Principal{Name: "ann", Role: broker.RoleOperator, Workspace: "w", Token: "aaaaaaaa"},
		Connection: 7, Remote: "tcp 127.0.0.1:1", Method: "send", SessionID: "s", CommandID: fmt.Sprint(n),
	}
}

// run lets l write what was recorded, to its end.
func run(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, path string) []line {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []line
	for text := range strings.Lines(string(b)) {
		var v line
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v: %q", path, err, text)
		}
		out = append(out, v)
	}
	return out
}

func TestEntriesAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	l.Record(entry(1))
	refusal := gateway.AuditEntry{At: aTime, Method: "authenticate", Err: protocol.Errorf(protocol.ReasonAuthFailed, "invalid token")}
	l.Record(refusal)
	run(t, l)
	b, err := os.ReadFile(path)
	want := `{"ts":"2026-01-31T12:00:00.007Z","name":"ann","role":"operator","workspace":"w","token":"aaaaaaaa","connection":7,"remote":"tcp 127.0.0.1:1","method":"send","sessionId":"s","commandId":"1","outcome":"ok"}
{"ts":"2026-01-31T12:00:00.007Z","method":"authenticate","outcome":"refused","code":-32001,"reason":"auth_failed"}
`
	if err != nil || string(b) != want {
		t.Errorf("%v\n got %s\nwant %s", err, b, want)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// The file is rotated by size and a bounded number of them is kept.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	const runs, each = 12, 20
	for i := range runs {
		l, err := Open(Config{Path: path, BytesMax: 6 << 10, FilesMax: 3})
		if err != nil {
			t.Fatal(err)
		}
		for n := range each {
			l.Record(entry(i*each + n))
		}
		run(t, l)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 4 {
		t.Errorf("%d files, %v", len(names), err)
	}
	next := -1
	for i := 3; i >= 0; i-- {
		name := path
		if i > 0 {
			name += fmt.Sprint(".", i)
		}
		if st, err := os.Stat(name); err != nil || st.Size() > 6<<10 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		for _, v := range lines(t, name) {
			if next >= 0 && v.CommandID != fmt.Sprint(next) {
				t.Fatalf("%s: %s where %d follows", name, v.CommandID, next)
			}
			if _, err := fmt.Sscan(v.CommandID, &next); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	if next != runs*each {
		t.Errorf("the last one is %d", next-1)
	}
}

// A line that a crash tore is ended before the next one.
func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(`{"ts":"x`), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	l.Record(entry(1))
	run(t, l)
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(b), `{"ts":"x`+"\n{") || strings.Count(string(b), "\n") != 2 {
		t.Errorf("%v %q", err, b)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// What is lost, to a full queue or a file that cannot be written, is counted, said
// in the log, and stands in the file as soon as it can.
func TestLossesAreTold(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Config{Path: path, Queued: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		l.Record(entry(n))
	}
	if l.Lost() != 3 {
		t.Errorf("%d lost, want 3", l.Lost())
	}
	if err := l.file.Close(); err != nil { // as a disk that fails
		t.Fatal(err)
	}
	l.write(<-l.queue)
	if l.Lost() != 5 || !strings.Contains(log.String(), "audit log is not complete") || !strings.Contains(log.String(), "lost=5") {
		t.Errorf("%d lost; the log says %s", l.Lost(), &log)
	}
	l.Record(entry(9))
	run(t, l)
	all := lines(t, path)
	if len(all) != 2 || all[0].Method != "entries_lost" || all[0].Count != 5 || all[1].CommandID != "9" {
		t.Errorf("the file has %+v", all)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, "/dev/null", filepath.Join(dir, "no", "such")} {
		if l, err := Open(Config{Path: path}); err == nil {
			t.Errorf("%s was opened: %v", path, l.Close())
		}
	}
}
