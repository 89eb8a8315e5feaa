package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"rejoin/protocol"
)

// stream is a connection whose server lets everyone in and then sends events
// without end, as fast as they are read.
type stream struct {
	net.Conn // nil: nothing else is called
	out      bytes.Buffer
	body     []byte
	seq      protocol.Seq
	events   bool
}

func (s *stream) Write(p []byte) (int, error) {
	var r struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(p, &r); err != nil {
		return 0, err
	}
	result := `{}`
	if r.Method == "subscribe" {
		result = `{"subscriptionId":7,"mode":"replay","epoch":"` + epoch + `","after":0,"head":0}`
		s.events = true
	}
	fmt.Fprintf(&s.out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
	return len(p), nil
}

func (s *stream) Read(p []byte) (int, error) {
	for s.events && s.out.Len() < len(p) {
		s.seq++
		b := protocol.AppendEventPrefix(s.out.AvailableBuffer(), 7, "s", "")
		b = protocol.AppendEventLine(b, &protocol.Event{Seq: s.seq, TS: 1700000000000, Run: 1, Body: s.body})
		s.out.Write(append(b, '\n'))
	}
	return s.out.Read(p)
}

func (s *stream) Close() error                     { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// idle is a connection that is only let in.
type idle struct {
	stream
	once   sync.Once
	closed chan struct{}
}

func (s *idle) Read(p []byte) (int, error) {
	if s.out.Len() > 0 {
		return s.out.Read(p)
	}
	<-s.closed
	return 0, io.EOF
}

func (s *idle) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// BenchmarkEvents is what one subscription takes from its socket to Next: decode,
// density check, copy, hand over.
func BenchmarkEvents(b *testing.B) {
	for _, size := range []int{250, 4096} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			body := fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte("x"), size-11))
			first := true
			c, err := Dial(b.Context(), Options{URL: "tcp://x:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
				if first {
					first = false
					return &idle{closed: make(chan struct{})}, nil
				}
				return &stream{body: body}, nil
			}})
			if err != nil {
				b.Fatal(err)
			}
			s, err := c.Subscribe(b.Context(), "s", SubscribeOptions{From: "start"})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if m, err := s.Next(b.Context()); err != nil || m.Kind != KindEvent {
					b.Fatal(m.Kind, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
