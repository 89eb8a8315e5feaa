package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"rejoin/cmd/rejoin/internal/bench"
)

// centrifugoConfig keeps enough history for the rows. By default a recovery of more
// than 300 events, or 1 MiB, fails: QUEUE lifts that for the rows that need it.
const centrifugoConfig = `{
  "http_server": {"address": "HOST", "port": PORT},
  "log": {"level": "error"},
  "engine": {"type": "memory"},
  "client": {"insecure": true, "recovery_max_publication_limit": 300000, "ping_interval": "300s", "pong_timeout": "30s",
    "connection_limit": 0, "allowed_origins": ["*"]QUEUE},
  "channel": {"without_namespace": {"history_size": 200000, "history_ttl": "90s", "force_recovery": true,
    "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true}, "history_meta_ttl": "1h"},
  "http_api": {"insecure": true},
  "node": {"info_metrics_aggregate_interval": "60s"}
}`

// startCentrifugo runs Centrifugo; observers come by WebSocket with JSON, events by
// its HTTP API.
func startCentrifugo(ctx context.Context, o *options, row string) (bench.Target, func() error, error) {
	queue := ""
	if row == "resume" || row == "replay" {
		queue = `, "queue_max_size": 134217728`
	}
	s, stop, err := run(ctx, o, filepath.Join(o.bin, "centrifugo"), strings.Replace(centrifugoConfig, "QUEUE", queue, 1))
	if err != nil {
		return nil, nil, err
	}
	s.make = func(_ context.Context, name string) (*stream, error) {
		c := &channel{address: s.address, name: name, http: &http.Client{Timeout: stepMax, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
		return &stream{send: c.send, subscribe: c.subscribe, close: func() error {
			c.http.CloseIdleConnections()
			return nil
		}}, nil
	}
	return s, stop, nil
}

// channel of Centrifugo.
type channel struct {
	address string
	name    string
	http    *http.Client

	mu    sync.Mutex
	epoch string // of its history, once a subscription has said so
}

func (c *channel) send(lines [][]byte) error {
	if len(lines) == 1 {
		return c.post("/api/publish", `{"channel":"`+c.name+`","data":`+string(lines[0])+`}`)
	}
	var b strings.Builder
	for i, l := range lines {
		sep := byte(',')
		if i == 0 {
			b.WriteString(`{"commands":`)
			sep = '['
		}
		fmt.Fprintf(&b, `%c{"publish":{"channel":"%s","data":%s}}`, sep, c.name, l)
	}
	b.WriteString("]}")
	return c.post("/api/batch", b.String())
}

func (c *channel) post(path, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(resp.Body)
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(b, []byte(`"error"`))) {
		err = fmt.Errorf("%s: %s %.200s", path, resp.Status, b)
	}
	return err
}

func (c *channel) subscribe(ctx context.Context, after int64) (net.Conn, []byte, error) {
	recovery := ""
	c.mu.Lock()
	if c.epoch != "" {
		recovery = fmt.Sprintf(`,"recover":true,"offset":%d,"epoch":"%s"`, after, c.epoch)
	}
	c.mu.Unlock()
	conn, first, err := dial(
		ctx, c.address,
		step{upgrade(c.address, "/connection/websocket"), "\r\n\r\n"},
		step{frame(`{"id":1,"connect":{}}`), `"connect":`},
		step{frame(fmt.Sprintf(`{"id":2,"subscribe":{"channel":"%s"%s}}`, c.name, recovery)), `"subscribe":{`},
	)
	if _, rest, found := bytes.Cut(first, []byte(`"epoch":"`)); found {
		epoch, _, _ := bytes.Cut(rest, []byte(`"`))
		c.mu.Lock()
		c.epoch = string(epoch)
		c.mu.Unlock()
	}
	return conn, first, err
}
