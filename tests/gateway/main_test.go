// Package gateway_test runs the connection core behind real sockets, over a real
// journal, broker and worker in this process.
package gateway_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rejoin/agent"
	"rejoin/agent/jsonl"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/broker"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
	"rejoin/tests/harness"
	"rejoin/worker"
)

const (
	testToken   = "a-token"
	testTimeout = harness.Patience
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"echo": echo})
}

// echo prints every line it reads.
func echo([]string) int {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		return 1
	}
	return 0
}

// world is a server in this process.
type world struct {
	t       testing.TB
	core    *gateway.Server
	node    *journal.Node
	serving context.Context // of connections that a test serves itself
	listen  func(url string) *gatewaytcp.Listener
	stop    func() // the listeners; returns when their connections have ended
}

// newWorld starts everything; it ends with the test.
func newWorld(t testing.TB, cfg gateway.Config) *world {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	node, err := journal.Start(ctx, journal.Config{Dir: dir, Durability: journal.Durability{Interval: 10 * time.Second}, MaxBytes: 256 << 20, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	adapters := map[string]agent.Adapter{"jsonl": jsonl.Adapter{}, "lines": lines.Adapter{}, "pi": pi.Adapter{}}
	folds := snapshot.NewReader(node, adapters, 0)
	checkpoints := snapshot.NewStore(node, adapters, log, snapshot.StoreConfig{})
	b, err := broker.New(broker.Config{Adapters: []string{"jsonl", "lines", "pi"}, Workers: []string{"w"}, AllowArgv: true, Token: testToken, Checkpoints: checkpoints, DataDir: dir, Logger: log}, node, folds)
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(worker.Config{ID: "w", DataDir: dir, Adapters: adapters, Checkpoints: checkpoints, Logger: log}, node, b.Registry(), folds)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Logger = log
	core, err := gateway.New(cfg, b, node.Hub(), node, folds)
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	serving, cut := context.WithCancel(context.WithoutCancel(ctx))
	var parts, listeners sync.WaitGroup
	for _, run := range []func(context.Context) error{w.Run, b.Run} {
		parts.Go(func() {
			if err := run(life); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Eventually(t, "the worker serves", func() bool {
		_, err := node.Bus().Request(ctx, protocol.WorkerSubject("w"), []byte(`{"op":"info"}`))
		return err == nil
	})
	s := &world{t: t, core: core, node: node, serving: serving}
	s.listen = func(url string) *gatewaytcp.Listener {
		t.Helper()
		l, err := gatewaytcp.Listen(url, gatewaytcp.Limits{RequestBytesMax: cfg.RequestBytesMax, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		listeners.Go(func() {
			if err := l.Serve(serving, core); err != nil {
				t.Error(err)
			}
		})
		return l
	}
	s.stop = func() {
		cut()
		listeners.Wait()
	}
	t.Cleanup(func() {
		s.stop()
		core.Close()
		end()
		parts.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a raw connection.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialURL(t testing.TB, url string) *client {
	t.Helper()
	network, address, _ := strings.Cut(url, "://")
	var d net.Dialer
	c, err := d.DialContext(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) write(s string) {
	c.t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) line() string {
	c.t.Helper()
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("after %q: %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// ask writes a line and wants an answer that contains want.
func (c *client) ask(line, want string) string {
	c.t.Helper()
	c.write(line + "\n")
	return c.expect(want)
}

func (c *client) expect(want string) string {
	c.t.Helper()
	got := c.line()
	if !strings.Contains(got, want) {
		c.t.Fatalf("want %s, got %.400s", want, got)
	}
	return got
}

// ended wants the end of the connection and nothing before it.
func (c *client) ended() {
	c.t.Helper()
	if b, err := c.r.ReadBytes('\n'); len(b) > 0 || err == nil || os.IsTimeout(err) {
		c.t.Fatalf("want the end, got %q %v", b, err)
	}
}

func (c *client) authenticate() *client {
	c.t.Helper()
	c.ask(`{"id":"auth","method":"authenticate","params":{"token":"`+testToken+`"}}`, `"authenticated":true`)
	return c
}

// start starts a session of the echo child.
func (c *client) start(session string) {
	c.t.Helper()
	argv := harness.ChildArgv("echo")
	c.ask(`{"id":"start","method":"start_session","params":{"sessionId":"`+session+`","argv":["`+strings.Join(argv, `","`)+`"]}}`, `"sessionId":"`+session+`"`)
}

func socketURL(t testing.TB) string {
	t.Helper()
	return "unix://" + filepath.Join(t.TempDir(), "s")
}
