package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// rawLog is one stream of the raw server: every line there ever was, LF included.
type rawLog struct {
	mu    sync.Mutex
	lines [][]byte
	wake  chan struct{} // closed and replaced when lines grow
}

// rawServer is the shared log as a server: "SUB NAME AFTER" or "PUB NAME", answered
// by OK, and then lines.
type rawServer struct {
	mu   sync.Mutex
	logs map[string]*rawLog
}

func (r *rawServer) log(name string) *rawLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.logs[name]
	if l == nil {
		l = &rawLog{wake: make(chan struct{})}
		r.logs[name] = l
	}
	return l
}

// serveRaw serves until the process ends.
func serveRaw(address string) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	r := &rawServer{logs: map[string]*rawLog{}}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go r.serve(c) // until its client leaves
	}
}

func (r *rawServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }() // the client is gone, or what it sent makes no sense
	in := bufio.NewReaderSize(c, 64)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	var verb, name string
	var after int
	if _, err := fmt.Sscan(strings.TrimSuffix(line, "\n"), &verb, &name, &after); err != nil {
		fmt.Fprintln(os.Stderr, "raw:", err)
		return
	}
	if _, err := io.WriteString(c, "OK\n"); err != nil {
		return
	}
	if verb == "SUB" {
		r.log(name).follow(c, after)
		return
	}
	r.log(name).publish(in)
}

// publish appends what is read, as many lines at a time as there are.
func (l *rawLog) publish(in io.Reader) {
	buf, have := make([]byte, 256<<10), 0
	for {
		n, err := in.Read(buf[have:])
		have += n
		if end := bytes.LastIndexByte(buf[:have], '\n') + 1; end > 0 {
			l.append(bytes.Clone(buf[:end]))
			have = copy(buf, buf[end:have])
		}
		if err != nil {
			return
		}
	}
}

func (l *rawLog) append(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n') + 1
		l.lines = append(l.lines, lines[:i])
		lines = lines[i:]
	}
	close(l.wake)
	l.wake = make(chan struct{})
}

// follow writes everything after a line, and then whatever comes.
func (l *rawLog) follow(c net.Conn, after int) {
	const linesPerWrite = 1024
	for {
		l.mu.Lock()
		pending, wake := l.lines[min(after, len(l.lines)):], l.wake
		l.mu.Unlock()
		if len(pending) == 0 {
			<-wake
			continue
		}
		pending = pending[:min(len(pending), linesPerWrite)]
		after += len(pending)
		var v net.Buffers
		for _, line := range pending {
			if n := len(v); n > 0 && follows(v[n-1], line) {
				v[n-1] = v[n-1][:len(v[n-1])+len(line)]
			} else {
				v = append(v, line)
			}
		}
		if _, err := v.WriteTo(c); err != nil {
			return
		}
	}
}

// follows reports whether b lies right behind a in memory, as lines that were read
// together do.
func follows(a, b []byte) bool { return cap(a) >= len(a)+len(b) && &a[:len(a)+1][len(a)] == &b[0] }
