package cluster_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// rawClient speaks NATS by hand: it sees what is sent to the servers, and may ask
// them what rejoin never would.
type rawClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialRaw(tb testing.TB, addr string) *rawClient {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatalf("dial: %v", err)
	}
	c := &rawClient{conn: conn, in: bufio.NewReaderSize(conn, 1<<20)}
	c.send(tb, `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}`+"\r\n")
	return c
}

func (c *rawClient) send(tb testing.TB, text string) {
	tb.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		tb.Fatalf("send: %v", err)
	}
}

// subscribe returns once the server has the subscription.
func (c *rawClient) subscribe(tb testing.TB, subject string) {
	tb.Helper()
	c.send(tb, "SUB "+subject+" 1\r\nPING\r\n")
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			tb.Fatalf("subscribe: %v", err)
		}
		if strings.HasPrefix(line, "PONG") {
			return
		}
	}
}

// next reads the next message; answers to pings go out between.
func (c *rawClient) next() (subject string, data []byte, err error) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		word := strings.Fields(line)
		switch {
		case len(word) == 0:
		case word[0] == "PING":
			if _, err := io.WriteString(c.conn, "PONG\r\n"); err != nil {
				return "", nil, err
			}
		case word[0] == "MSG", word[0] == "HMSG":
			total, err := strconv.Atoi(word[len(word)-1])
			if err != nil {
				return "", nil, fmt.Errorf("message %q: %w", line, err)
			}
			data := make([]byte, total+2)
			if _, err := io.ReadFull(c.in, data); err != nil {
				return "", nil, err
			}
			data = data[:total]
			if word[0] == "HMSG" {
				hdr, err := strconv.Atoi(word[len(word)-2])
				if err != nil {
					return "", nil, fmt.Errorf("message %q: %w", line, err)
				}
				data = data[hdr:]
			}
			return word[1], data, nil
		}
	}
}

// ask sends one request to a server and returns the answer.
func ask(tb testing.TB, addr, subject, body string) string {
	tb.Helper()
	c := dialRaw(tb, addr)
	defer c.conn.Close()
	c.subscribe(tb, "_INBOX.raw")
	c.send(tb, fmt.Sprintf("PUB %s _INBOX.raw %d\r\n%s\r\n", subject, len(body), body))
	_, data, err := c.next()
	if err != nil {
		tb.Fatalf("ask %s: %v", subject, err)
	}
	return string(data)
}

// tap sees every attempt to store a record, however it ends.
type tap struct {
	mu       sync.Mutex
	taps     int                // each server tells every attempt once
	attempts map[string]attempt // by subject, run, writer, first seq and part
	again    int                // attempts after the first
	differ   []string           // attempts that are not the same bytes
}

// listen taps server i until it ends, or the test does.
func (p *tap) listen(tb testing.TB, s *harness.NATSServers, i int) {
	tb.Helper()
	c := dialRaw(tb, s.Addr(i))
	c.subscribe(tb, "j.>")
	p.mu.Lock()
	p.taps++
	id := p.taps
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			subject, data, err := c.next()
			if err != nil {
				return // the server, or the test, has ended
			}
			p.take(id, subject, data)
		}
	}()
	tb.Cleanup(func() {
		_ = c.conn.Close() // the server may have
		<-ended
	})
}

// take files a record under its subject, run, first seq and part (journal/record.go
// has the layout).
func (p *tap) take(id int, subject string, data []byte) {
	if len(data) < 108 {
		return
	}
	key := fmt.Sprintf("%s %x %x", subject, data[24:56], data[60:62])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempts == nil {
		p.attempts = map[string]attempt{}
	}
	first, found := p.attempts[key]
	switch {
	case !found:
		p.attempts[key] = attempt{tap: id, data: data}
	case !bytes.Equal(first.data, data):
		p.differ = append(p.differ, key)
	case first.tap == id:
		p.again++
	}
}

// attempt is the first one of a record.
type attempt struct {
	tap  int
	data []byte
}
