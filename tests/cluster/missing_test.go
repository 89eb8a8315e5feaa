package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"rejoin/journal"
	"rejoin/tests/harness"
	"rejoin/tests/logs"
)

// TestMissingStream: a stream that is gone, or the record of the journal, is an
// error that names it, and nothing is made in its place.
func TestMissingStream(t *testing.T) {
	s := harness.NATS(t, 1)
	logs.Close(t, mustConnect(t, config(t, s, "makes")))

	remove(t, s, "J3")
	var missing *journal.MissingStreamError
	if _, err := journal.Connect(logs.Context(t), config(t, s, "again")); !errors.As(err, &missing) || missing.Stream != "J3" {
		t.Fatalf("a shard is gone: %v, want *MissingStreamError of J3", err)
	}
	if answer := ask(t, s.Addr(0), "$JS.API.STREAM.INFO.J3", ""); !strings.Contains(answer, `"err_code":10059`) {
		t.Fatalf("J3 was made anew: %s", answer)
	}

	remove(t, s, "KV_cluster")
	var format *journal.FormatError
	if _, err := journal.Connect(logs.Context(t), config(t, s, "again")); !errors.As(err, &format) {
		t.Fatalf("the record is gone: %v, want *FormatError", err)
	}
}

// mustConnect is connect without its end.
func mustConnect(tb testing.TB, cfg journal.RemoteConfig) *journal.Node {
	tb.Helper()
	n, err := journal.Connect(logs.Context(tb), cfg)
	if err != nil {
		tb.Fatalf("Connect: %v", err)
	}
	return n
}

func remove(tb testing.TB, s *harness.NATSServers, stream string) {
	tb.Helper()
	if answer := ask(tb, s.Addr(0), "$JS.API.STREAM.DELETE."+stream, ""); !strings.Contains(answer, `"success":true`) {
		tb.Fatalf("delete %s: %s", stream, answer)
	}
}

// TestRefused: servers that cannot carry the journal are an error at once, not a
// wait.
func TestRefused(t *testing.T) {
	s := harness.NATS(t, 1, `authorization { user: rejoin, password: secret }`)
	var refused *journal.RefusedError
	if _, err := journal.Connect(logs.Context(t), config(t, s, "nobody")); !errors.As(err, &refused) {
		t.Errorf("without credentials: %v, want *RefusedError", err)
	}
	cfg := config(t, s, "user")
	for i, url := range cfg.URLs {
		cfg.URLs[i] = strings.Replace(url, "nats://", "nats://rejoin:secret@", 1)
	}
	cfg.Replicas = 3
	if _, err := journal.Connect(logs.Context(t), cfg); !errors.As(err, &refused) {
		t.Errorf("three replicas of one server: %v, want *RefusedError", err)
	}
	cfg.Replicas = 0
	connect(t, cfg)
	cfg.Creds = t.TempDir() + "/none"
	if _, err := journal.Connect(logs.Context(t), cfg); !errors.As(err, &refused) {
		t.Errorf("credentials that are not there: %v, want *RefusedError", err)
	}
}

// TestSmallPayload: the largest record would not pass.
func TestSmallPayload(t *testing.T) {
	s := harness.NATS(t, 1, "max_payload: 1MB")
	var refused *journal.RefusedError
	if _, err := journal.Connect(logs.Context(t), config(t, s, "n")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("got %v, want *RefusedError about max_payload", err)
	}
}
