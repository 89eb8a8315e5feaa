package full_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"time"
)

// order is a command to the child: it prints a line that names K.
type order struct {
	Type string `json:"type"`
	K    string `json:"k"`
}

const batchLines = 32

func bookPath(dir, session string) string { return filepath.Join(dir, session+".book") }

// printerChild prints numbered lines that do not compress, in batches: one each 50
// ms, or without a pause when the second argument is "fast". What it prints stands
// in its book before. It ends when its stdin does, or after the lines of the third
// argument; then it waits for the end of stdin.
func printerChild(args []string) int {
	var limit int
	if len(args) != 3 {
		return 2
	}
	if _, err := fmt.Sscan(args[2], &limit); err != nil {
		return 2
	}
	book, err := os.OpenFile(bookPath(args[0], path.Base(os.Getenv("REJOIN_SESSION"))), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	orders := make(chan order, 64)
	go func() {
		defer close(orders)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			var o order
			if json.Unmarshal(in.Bytes(), &o) == nil {
				orders <- o
			}
		}
	}()
	p := &printer{book: book, rng: rand.New(rand.NewPCG(uint64(os.Getpid()), 7))}
	gap := time.NewTicker(50 * time.Millisecond)
	defer gap.Stop()
	ready := make(chan time.Time)
	close(ready)
	for {
		pace := gap.C
		switch {
		case p.n >= limit:
			pace = nil
		case args[1] == "fast":
			pace = ready
		}
		select {
		case o, ok := <-orders:
			if !ok {
				p.line(`"type":"bye"`)
				p.flush()
				return 0
			}
			p.line(fmt.Sprintf(`"type":"echo","k":%q`, o.K))
		case <-pace:
			for range batchLines {
				p.line(fmt.Sprintf(`"type":"tick","pad":"%016x%016x%0512x"`, p.rng.Uint64(), p.rng.Uint64(), p.pad()))
			}
		}
		if !p.flush() {
			return 1
		}
	}
}

type printer struct {
	n    int
	book *os.File
	rng  *rand.Rand
	buf  []byte
}

func (p *printer) pad() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(p.rng.Uint32())
	}
	return b
}

func (p *printer) line(members string) {
	p.n++
	p.buf = fmt.Appendf(p.buf, `{"n":%d,%s}`+"\n", p.n, members)
}

func (p *printer) flush() bool {
	_, berr := p.book.Write(p.buf)
	_, err := os.Stdout.Write(p.buf)
	p.buf = p.buf[:0]
	return berr == nil && err == nil
}

// noise is a JSON string of n characters that do not compress well.
func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n+2)
	for i := range b {
		b[i] = ' ' + 3 + byte(rng.IntN(56)) // printable, no quote, no backslash
	}
	b[0], b[n+1] = '"', '"'
	return b
}
