package member_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// children are what sessions of these tests run.
var children = harness.Children{
	// echo prints every line back.
	"echo": func([]string) int {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Println(in.Text())
		}
		return 0
	},
}

func TestMain(m *testing.M) { harness.Main(m, children) }

const token = "a-token-of-all-three"

// trio are three servers, each with all roles, that keep the journal together.
type trio struct {
	t       *testing.T
	args    [][]string // of each
	at      []string   // host:port for peers, of each
	members []*harness.Server
}

// newTrio returns three servers that do not run yet, and let each other in by a secret.
func newTrio(t *testing.T) *trio {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("what the three show each other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newTrioBy(t, func() []string { return []string{"--cluster-secret-file", secret} })
}

// newTrioBy is newTrio with flags of each by which the others let it in.
func newTrioBy(t *testing.T, proof func() []string) *trio {
	t.Helper()
	var at, routes []string
	for range 3 {
		address := strings.TrimPrefix(harness.FixedPort(t), "tcp://")
		at = append(at, address)
		routes = append(routes, "nats-route://"+address)
	}
	s := &trio{t: t, at: at}
	for i := range 3 {
		name := fmt.Sprintf("m%d", i)
		args := []string{
			"--cluster-name", "trio", "--cluster-routes", strings.Join(routes, ","), "--cluster-listen", at[i],
			"--worker-id", name, "--label", "at=" + name, "--token", token,
		}
		args = append(args, proof()...)
		m := harness.New(t, harness.Options{Args: args, Listen: []string{harness.FixedPort(t)}})
		m.Use(token)
		s.args, s.members = append(s.args, args), append(s.members, m)
	}
	return s
}

// run starts members at once and waits until they are ready.
func (s *trio) run(who ...int) {
	s.t.Helper()
	errs := make([]error, len(who))
	var starting sync.WaitGroup
	for at, i := range who {
		starting.Go(func() { errs[at] = s.members[i].TryRun() })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, i := range who {
			s.t.Log(s.members[i].LogTail())
		}
		s.t.Fatalf("start members: %v", err)
	}
}

// dial connects to a member.
func (s *trio) dial(i int) *harness.Client {
	s.t.Helper()
	network, address := s.members[i].Addr()
	c, err := harness.Connect(harness.Context(s.t), network, address, token)
	if err != nil {
		s.t.Fatalf("connect to member %d: %v", i, err)
	}
	s.t.Cleanup(func() { _ = c.Close() }) // a breach is what every call returns
	return c
}

// said reports whether a member's log says something.
func (s *trio) said(i int, what string) bool {
	s.t.Helper()
	b, err := os.ReadFile(s.members[i].LogPath)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Contains(string(b), what)
}

// session is one whose child runs on a member, and what a reader got of it.
type session struct {
	id   string
	sent int
	got  []harness.Event
}

type answer struct {
	SessionID string `json:"sessionId"`
	Status    string `json:"status"`
}

// start starts an echo on member i, over client.
func (s *trio) start(client *harness.Client, i int) *session {
	s.t.Helper()
	a := harness.Insist[answer](s.t, client, "start_session", map[string]any{
		"argv": harness.ChildArgv("echo"), "cwd": s.t.TempDir(), "labels": map[string]string{"at": fmt.Sprintf("m%d", i)},
	})
	return &session{id: a.SessionID}
}

// subscribe reads a session from its start, as soon as its shard can be read.
func (s *trio) subscribe(ctx context.Context, client *harness.Client, of *session) (stream *harness.Stream) {
	s.t.Helper()
	harness.Eventually(s.t, "subscribe to "+of.id, func() bool {
		var err error
		stream, err = client.Subscribe(ctx, of.id, map[string]any{"from": "start"})
		return err == nil
	})
	return stream
}

// talk sends n lines and reads until each has come back.
func (s *trio) talk(client *harness.Client, of *session, n int) {
	s.t.Helper()
	ctx := harness.Context(s.t)
	stream := s.subscribe(ctx, client, of)
	var lines []string
	for range n {
		line := fmt.Sprintf("line-%d-%s", of.sent, strings.Repeat("x", 500))
		of.sent++
		lines = append(lines, line)
		harness.Insist[answer](s.t, client, "send", map[string]any{"sessionId": of.id, "command": map[string]any{"say": line}})
	}
	var err error
	of.got, err = stream.Until(ctx, func(e harness.Event) bool {
		return e.Source == "child" && strings.Contains(string(e.Body), lines[len(lines)-1])
	})
	if err != nil {
		s.t.Fatalf("session %s: %v", of.id, err)
	}
	if err := client.Unsubscribe(ctx, stream); err != nil {
		s.t.Fatal(err)
	}
}

// kept looks that a member still has every event that was read before, byte for byte.
func (s *trio) kept(client *harness.Client, all ...*session) {
	s.t.Helper()
	for _, of := range all {
		ctx := harness.Context(s.t)
		stream := s.subscribe(ctx, client, of)
		last := of.got[len(of.got)-1].Seq
		have, err := stream.Until(ctx, func(e harness.Event) bool { return e.Seq == last })
		if err != nil {
			s.t.Fatalf("session %s after %d of %d events: %v", of.id, len(have), len(of.got), err)
		}
		for i, e := range of.got {
			if string(have[i].Body) != string(e.Body) || have[i].Seq != e.Seq {
				s.t.Fatalf("session %s: event %d is %s, was %s", of.id, e.Seq, have[i].Body, e.Body)
			}
		}
		if err := client.Unsubscribe(ctx, stream); err != nil {
			s.t.Fatal(err)
		}
	}
}

// largest returns the largest file of a member that matches.
func (s *trio) largest(i int, pattern ...string) string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(append([]string{s.members[i].Dir, "jetstream"}, pattern...)...))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no file %q: %v", pattern, err)
	}
	best, most := "", int64(-1)
	for _, path := range files {
		fi, err := os.Stat(path)
		if err != nil {
			s.t.Fatal(err)
		}
		if fi.Size() > most {
			best, most = path, fi.Size()
		}
	}
	return best
}

// flip changes a bit in the middle of a file.
func (s *trio) flip(path string) {
	s.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(b) == 0 {
		s.t.Fatalf("%s is empty", path)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reports are those of a member's quarantine.
func (s *trio) reports(i int) string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.members[i].Dir, "quarantine", "*", "report.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// logged is how long a member's log is.
func (s *trio) logged(i int) int64 {
	s.t.Helper()
	fi, err := os.Stat(s.members[i].LogPath)
	if err != nil {
		s.t.Fatal(err)
	}
	return fi.Size()
}

// saidSince reports whether a member's log says something behind what it had.
func (s *trio) saidSince(i int, had int64, what string) bool {
	s.t.Helper()
	b, err := os.ReadFile(s.members[i].LogPath)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Contains(string(b[had:]), what)
}
