package stalled

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rejoin/tests/harness"
)

// reader is a subscriber on a bare socket. It hashes every event from its seq on,
// that is all that is not its own subscription's.
type reader struct {
	conn net.Conn
	in   *bufio.Reader
	last uint64 // seq of the newest event
	sum  hash.Hash
	read int64 // bytes of event lines
	lag  []time.Duration
}

// open connects, with a receive buffer of so many bytes if not zero, and
// subscribes to what comes from now on.
func open(ctx context.Context, s *harness.Server, session string, rcvbuf int) (*reader, error) {
	network, address := s.Addr()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if rcvbuf == 0 {
			return nil
		}
		var inner error
		err := raw.Control(func(fd uintptr) {
			inner = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, rcvbuf)
		})
		return errors.Join(err, inner)
	}}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	r := &reader{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), sum: sha256.New()}
	for _, line := range []string{
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"authenticate","params":{"token":%q}}`, s.Token()),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"subscribe","params":{"sessionId":%q}}`, session),
	} {
		if _, err := fmt.Fprintln(conn, line); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	for _, want := range []string{`"authenticated":true`, `"mode":"live"`, `"method":"synced"`} {
		line, err := r.in.ReadSlice('\n')
		if err != nil || !bytes.Contains(line, []byte(want)) {
			return nil, errors.Join(fmt.Errorf("got %.200s, want %s: %w", line, want, err), conn.Close())
		}
	}
	return r, nil
}

// drain reads up to and including the event of a seq.
func (r *reader) drain(to uint64) error {
	for r.last < to {
		line, err := r.in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("after event %d: %w", r.last, err)
		}
		at := bytes.Index(line, []byte(`"seq":`))
		if at < 0 || !bytes.Contains(line[:at], []byte(`"method":"event"`)) {
			return fmt.Errorf("after event %d came %.200s", r.last, line)
		}
		seq, err := number(line[at+len(`"seq":`):])
		if err != nil || r.last != 0 && seq != r.last+1 {
			return fmt.Errorf("event %d came after %d, %w", seq, r.last, err)
		}
		r.last = seq
		r.read += int64(len(line))
		r.sum.Write(line[at:])
		if i := bytes.Index(line, []byte(`,"at":`)); i >= 0 && r.lag != nil {
			printed, err := number(line[i+len(`,"at":`):])
			if err != nil {
				return err
			}
			r.lag = append(r.lag, time.Since(time.Unix(0, int64(printed))))
		}
	}
	return nil
}

// digest names every byte of events so far.
func (r *reader) digest() string { return fmt.Sprintf("%x", r.sum.Sum(nil)) }

func number(b []byte) (uint64, error) {
	end := bytes.IndexFunc(b, func(c rune) bool { return c < '0' || c > '9' })
	return strconv.ParseUint(string(b[:max(end, 0)]), 10, 64)
}

// queued returns the bytes that wait in the kernel for each reader, by its port:
// what the server has written and no reader has read.
func queued(server string) (map[int]int64, error) {
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	// The table is not read at once: a connection may stand in it twice, and counts once.
	sent, got := map[int]int64{}, map[int]int64{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] == "sl" {
			continue
		}
		local, remote := hexPort(f[1]), hexPort(f[2])
		tx, rx, _ := strings.Cut(f[4], ":")
		switch port {
		case strconv.Itoa(local): // the server's end
			sent[remote] = hexNumber(tx)
		case strconv.Itoa(remote):
			got[local] = hexNumber(rx)
		}
	}
	for port, n := range got {
		sent[port] += n
	}
	return sent, nil
}

func hexPort(address string) int {
	_, port, _ := strings.Cut(address, ":")
	return int(hexNumber(port))
}

func hexNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return 0
	}
	return n
}
