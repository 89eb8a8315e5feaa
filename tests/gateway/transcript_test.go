package gateway_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/tests/harness"
)

// A transcript is a txtar file: prose, then sections of client and server lines
// in turn. In a line of the server … stands for anything; in one of the client
// $ECHO is the argv of the echo child.
type exchange struct {
	client bool
	lines  []string
}

func readTranscript(t *testing.T, path string) []exchange {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []exchange
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "-- client --", line == "-- server --":
			out = append(out, exchange{client: line == "-- client --"})
		case len(out) > 0 && line != "":
			out[len(out)-1].lines = append(out[len(out)-1].lines, line)
		}
	}
	return out
}

// matches reports whether got is want with something in place of each ….
func matches(want, got string) bool {
	parts := strings.Split(want, "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// Proves I-G3: every transport yields the same lines.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	transports := map[string]func(t *testing.T, w *world) io.ReadWriteCloser{
		"tcp": func(t *testing.T, w *world) io.ReadWriteCloser {
			return dialURL(t, w.listen("tcp://127.0.0.1:0").URL())
		},
		"unix": func(t *testing.T, w *world) io.ReadWriteCloser { return dialURL(t, w.listen(socketURL(t)).URL()) },
		"stdio": func(t *testing.T, w *world) io.ReadWriteCloser {
			server, c := net.Pipe()
			served := make(chan struct{})
			go func() {
				defer close(served)
				w.core.Serve(w.serving, gatewaytcp.NewStdio(server, server, 0), "stdio:")
			}()
			t.Cleanup(func() {
				_ = c.Close()
				w.stop()
				<-served
			})
			return c
		},
	}
	echo := strings.Join(harness.ChildArgv("echo"), `","`)
	for _, file := range files {
		for name, dial := range transports {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+name, func(t *testing.T) {
				w := newWorld(t, gateway.Config{RequestBytesMax: 64 << 10})
				conn := dial(t, w)
				defer func() { _ = conn.Close() }()
				play(t, conn, readTranscript(t, file), echo)
			})
		}
	}
}

func play(t *testing.T, conn io.ReadWriter, exchanges []exchange, echo string) {
	t.Helper()
	c := bufio.NewReader(conn)
	for _, x := range exchanges {
		for _, line := range x.lines {
			if x.client {
				if _, err := conn.Write([]byte(strings.ReplaceAll(line, "$ECHO", `"`+echo+`"`) + "\n")); err != nil {
					t.Fatal(err)
				}
				continue
			}
			got, err := c.ReadString('\n')
			if err != nil {
				t.Fatalf("want %s: %v", line, err)
			}
			if got = strings.TrimSuffix(got, "\n"); !matches(line, got) {
				t.Fatalf("\nwant %s\n got %s", line, got)
			}
		}
	}
}
