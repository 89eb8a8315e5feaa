package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// ChildCommand is the hidden command that runs the child of a row.
const ChildCommand = "bench-child"

// What a row tells its child over a socket, a line each:
//
//	emit N               print N lines at once
//	pace N RATE BURST    print BURST timed lines N times, RATE times a second; answered by "done"
//	flood                print until stop; answered by "done"
//	stop                 ends a flood
//	sum                  answered by "sum LINES HEX": what was printed
//
// With every line of stdin the child says "in COUNT NS HEX": when it had it, and
// the SHA-256 of what came on stdin so far.

// floodBytes is one write of a flood: what a pipe takes.
const floodBytes = 64 << 10

type child struct {
	ctl   net.Conn
	out   io.Writer
	lines *Lines
	buf   []byte
	stop  atomic.Bool // a flood is to end
}

// Child runs the child of a row: socket is where its orders come from, stdin is
// listened to, and its end is the child's.
func Child(socket string, size int, stdin io.Reader, stdout io.Writer) error {
	var d net.Dialer
	ctl, err := d.DialContext(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	c := &child{ctl: ctl, out: stdout, lines: NewLines(size)}
	orders := make(chan string)
	ended := make(chan error, 2)
	go func() { ended <- c.hear(stdin) }() // it ends with the process at the latest
	go func() { ended <- c.listen(orders) }()
	for {
		select {
		case err := <-ended:
			return err
		case order := <-orders:
			if err := c.obey(order); err != nil {
				return err
			}
		}
	}
}

// listen hands on orders; stop takes effect at once.
func (c *child) listen(orders chan<- string) error {
	in := bufio.NewScanner(c.ctl)
	for in.Scan() {
		if in.Text() == "stop" {
			c.stop.Store(true)
			continue
		}
		orders <- in.Text()
	}
	return in.Err()
}

// hear reads stdin to its end.
func (c *child) hear(stdin io.Reader) error {
	sum := sha256.New()
	n := int64(0)
	in := bufio.NewReader(stdin)
	for {
		line, err := in.ReadBytes('\n')
		now := time.Now().UnixNano()
		if len(line) > 0 {
			n++
			sum.Write(bytes.TrimSuffix(line, []byte{'\n'}))
			if _, err := fmt.Fprintf(c.ctl, "in %d %d %s\n", n, now, hex.EncodeToString(sum.Sum(nil))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *child) obey(order string) error {
	verb, args, _ := strings.Cut(order, " ")
	var n, rate, burst int
	switch verb {
	case "emit":
		if _, err := fmt.Sscan(args, &n); err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
		return c.emit(n, false)
	case "pace":
		if _, err := fmt.Sscan(args, &n, &rate, &burst); err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
		if err := c.pace(n, rate, burst); err != nil {
			return err
		}
	case "flood":
		for n = floodBytes / (c.lines.size + 1); !c.stop.Load(); {
			if err := c.emit(n, false); err != nil {
				return err
			}
		}
		c.stop.Store(false)
	case "sum":
		d := c.lines.Digest()
		_, err := fmt.Fprintf(c.ctl, "sum %d %s\n", d.Lines, d.Sum)
		return err
	default:
		return fmt.Errorf("no order %q", order)
	}
	_, err := io.WriteString(c.ctl, "done\n")
	return err
}

// emit prints n lines, in one write when they are fewer than a flood's.
func (c *child) emit(n int, timed bool) error {
	for n > 0 {
		c.buf = c.buf[:0]
		for ; n > 0 && len(c.buf)+c.lines.size < floodBytes; n-- {
			at := int64(0)
			if timed {
				at = time.Now().UnixNano()
			}
			c.buf = append(c.lines.Append(c.buf, at), '\n')
		}
		if _, err := c.out.Write(c.buf); err != nil {
			return err
		}
	}
	return nil
}

// pace prints on a schedule, so that what is late does not slow down what follows.
func (c *child) pace(n, rate, burst int) error {
	return OnSchedule(context.Background(), n, rate, func() error { return c.emit(burst, true) })
}

// OnSchedule calls f n times, rate times a second.
func OnSchedule(ctx context.Context, n, rate int, f func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	began := time.Now()
	for i := range n {
		if d := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))); d > 0 {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
