package kill_test

import (
	"bufio"
	"fmt"
	"os"
	"sync"

	"rejoin/tests/harness"
)

// A notebook is an append-only file of lines that one client keeps. Lines are fsynced
// in batches; check makes every line so far durable before it is read back.
type notebook struct {
	mu   sync.Mutex
	f    *os.File
	w    *bufio.Writer
	open int // lines since the last fsync
	err  error
}

const bookBatch = 1024 // lines between two fsyncs of a busy book

func newNotebook(path string) (*notebook, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &notebook{f: f, w: bufio.NewWriterSize(f, 256<<10)}, nil
}

func (b *notebook) add(line []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	if _, b.err = b.w.Write(append(line, '\n')); b.err != nil {
		return
	}
	if b.open++; b.open >= bookBatch {
		b.flush()
	}
}

// flush runs under mu.
func (b *notebook) flush() {
	if b.open == 0 || b.err != nil {
		return
	}
	b.open = 0
	if b.err = b.w.Flush(); b.err == nil {
		b.err = b.f.Sync()
	}
}

// read returns what the file holds.
func (b *notebook) read() ([]byte, error) {
	b.mu.Lock()
	b.flush()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("a client's book: %w", err)
	}
	return os.ReadFile(b.f.Name())
}

func (b *notebook) sync() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
}

func (b *notebook) close() error {
	b.sync()
	return b.f.Close()
}

// eventLine is how an event stands in a book: everything a client can tell of it.
func eventLine(dst []byte, e *harness.Event) []byte {
	dst = fmt.Appendf(dst, "%s %d %d %d %s %q ", e.Epoch, e.Seq, e.TS, e.Run, e.Source, e.CommandID)
	return append(dst, e.Body...)
}
