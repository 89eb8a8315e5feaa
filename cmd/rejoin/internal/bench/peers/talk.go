package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"rejoin/cmd/rejoin/internal/bench"
)

// A step says something over a connection and waits for the text that answers it.
type step struct{ say, want string }

const stepMax = 30 * time.Second

// dial connects and takes steps; first is everything that was read.
func dial(ctx context.Context, address string, steps ...step) (c net.Conn, first []byte, err error) {
	var d net.Dialer
	if c, err = d.DialContext(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	for _, s := range steps {
		b, err := s.take(c)
		if err != nil {
			_ = c.Close() // the step says more
			return nil, nil, err
		}
		first = append(first, b...)
	}
	return c, first, nil
}

func (s step) take(c net.Conn) (got []byte, err error) {
	if _, err := io.WriteString(c, s.say); err != nil {
		return nil, err
	}
	if err := c.SetReadDeadline(time.Now().Add(stepMax)); err != nil {
		return nil, err
	}
	buf := make([]byte, 16<<10)
	for !bytes.Contains(got, []byte(s.want)) {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return got, fmt.Errorf("%w after %.300q, waiting for %q", err, got, s.want)
		}
	}
	return got, c.SetReadDeadline(time.Time{})
}

// frame is a WebSocket text frame of a client, its mask zero.
func frame(text string) string {
	h := []byte{0x81, 0x80}
	if n := len(text); n < 126 {
		h[1] |= byte(n)
	} else {
		h[1] |= 126
		h = binary.BigEndian.AppendUint16(h, uint16(n))
	}
	return string(append(h, 0, 0, 0, 0)) + text
}

// upgrade asks for a WebSocket.
func upgrade(address, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
}

// stream is a stream of a peer: this process publishes what it makes.
type stream struct {
	lines     *bench.Lines
	send      func(lines [][]byte) error
	subscribe func(ctx context.Context, after int64) (c net.Conn, first []byte, err error)
	close     func() error
	batch     [][]byte
}

// Emit publishes n lines in one call.
func (s *stream) Emit(n int) error { return s.emit(n, false) }

func (s *stream) emit(n int, timed bool) error {
	s.batch = s.batch[:0]
	for range n {
		at := int64(0)
		if timed {
			at = time.Now().UnixNano()
		}
		s.batch = append(s.batch, s.lines.Append(nil, at))
	}
	return s.send(s.batch)
}

// Pace publishes on a schedule.
func (s *stream) Pace(ctx context.Context, n, rate, burst int) error {
	return bench.OnSchedule(ctx, n, rate, func() error { return s.emit(burst, true) })
}

// Digest is of what was sent.
func (s *stream) Digest(context.Context) (bench.Digest, error) { return s.lines.Digest(), nil }

// Subscribe connects o and lets it find the lines in whatever comes.
func (s *stream) Subscribe(ctx context.Context, o *bench.Observer, bufferBytes int) error {
	c, first, err := s.subscribe(ctx, o.Seen())
	if err != nil {
		return err
	}
	o.Follow(c, bufferBytes, first, o.Scan)
	return nil
}

// Close ends the publisher's connection.
func (s *stream) Close() error { return s.close() }

// publisher sends batches over c, each line encoded, and discards what comes back.
func publisher(c net.Conn, encode func(dst, line []byte) []byte) (send func([][]byte) error, closeIt func() error) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, c) // acknowledgements; its end is ours
	}()
	var buf []byte
	send = func(lines [][]byte) error {
		buf = buf[:0]
		for _, l := range lines {
			buf = encode(buf, l)
		}
		_, err := c.Write(buf)
		return err
	}
	return send, func() error {
		err := c.Close()
		<-drained
		return err
	}
}
