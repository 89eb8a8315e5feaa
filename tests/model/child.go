package model

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rejoin/tests/harness"
)

// Order is a command to the child. K is its command id, so that what the child
// received can be told without rejoin.
//
//	echo     answer
//	burst    print N lines at once
//	steady   print N lines, paced, B at a time
//	calm     print no more than what is asked for
//	noise    print N lines of 2 KB that do not pack
//	chat     print a line of N bytes in answer, then another
//	big      print one line of N bytes
//	kill     kill the server
//	exit     end with status N
type Order struct {
	Type string `json:"type"`
	K    string `json:"k"`
	N    int    `json:"n,omitempty"`
	B    int    `json:"b,omitempty"`
}

const batchLines = 64 // in one write

// batchGap is the time between two writes when paced: the clients keep up with
// that, so that they are at the tail when the server dies.
func batchGap() time.Duration {
	if harness.RaceDetector {
		return 30 * time.Millisecond
	}
	return 5 * time.Millisecond
}

// Child is a program that keeps its own books in the folder that its first
// argument names: a line stands in its file, fsynced, before it is printed, and an
// order stands in its file before it is obeyed. With a second argument, nosync,
// the books are not fsynced: they outlive any process, but not the machine.
func Child(args []string) int {
	var run uint64
	if _, err := fmt.Sscan(os.Getenv("REJOIN_RUN"), &run); err != nil || len(args) == 0 {
		fmt.Fprintln(os.Stderr, "the flood child needs a folder and REJOIN_RUN:", err)
		return 2
	}
	session := path.Base(os.Getenv("REJOIN_SESSION")) // it may carry the workspace
	out, err := os.OpenFile(outPath(args[0], session, run), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		err = errors.Join(err, noteRival(args[0], session, run))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	in, err := os.OpenFile(inPath(args[0], session, run), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	signal.Ignore(syscall.SIGTERM) // it ends with its stdin, and prints what it booked
	if err := startBystander(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	sync := len(args) < 2 || args[1] != "nosync"
	f := &flood{run: run, out: &childBook{out, sync}, rng: rand.New(rand.NewPCG(run, 7))}
	orders := make(chan Order, 64)
	go readOrders(&childBook{in, sync}, orders)
	return f.loop(orders)
}

// noteRival tells the judge that a run had another child already.
func noteRival(dir, session string, run uint64) error {
	f, err := os.OpenFile(rivalPath(dir, session, run), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return errors.Join(err, f.Close())
}

// childBook is one file of a book.
type childBook struct {
	f    *os.File
	sync bool
}

// startBystander leaves a process in a session of its own that survives the
// child's death, as tools of agents do.
func startBystander() error {
	argv := harness.ChildArgv("bystander")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// Bystander is the program of that process: it ends by itself long after anybody
// has looked for it.
func Bystander([]string) int {
	<-time.After(10 * time.Minute)
	return 0
}

// readOrders books what arrives, one fsync per read, before anybody obeys it.
func readOrders(in *childBook, orders chan<- Order) {
	defer close(orders)
	r := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return // stdin ends: the server wants the child to end
		}
		batch := bytes.Clone(line)
		for r.Buffered() > 0 {
			if line, err = r.ReadBytes('\n'); err != nil {
				return
			}
			batch = append(batch, line...)
		}
		read := parse(batch)
		if slices.ContainsFunc(read, func(o Order) bool { return o.Type == "kill" }) {
			killServer(in.f, batch)
			return
		}
		if !in.add(batch) {
			return
		}
		for _, o := range read {
			orders <- o
		}
	}
}

func parse(batch []byte) []Order {
	var all []Order
	for l := range bytes.Lines(batch) {
		var o Order
		if json.Unmarshal(l, &o) != nil {
			o.Type = "unreadable"
		}
		all = append(all, o)
	}
	return all
}

// killServer books what was read, without the fsync that a death of the server
// does not need, and kills it at once: whatever reached this child before it was
// in the journal will be missing there.
func killServer(in *os.File, batch []byte) {
	if _, err := in.Write(batch); err != nil {
		fmt.Fprintln(os.Stderr, "the child's book:", err)
	}
	if err := syscall.Kill(os.Getppid(), syscall.SIGKILL); err != nil {
		fmt.Fprintln(os.Stderr, "kill the server:", err)
	}
}

func (b *childBook) add(lines []byte) bool {
	if _, err := b.f.Write(lines); err != nil {
		fmt.Fprintln(os.Stderr, "the child's book:", err)
		return false
	}
	if !b.sync {
		return true
	}
	if err := b.f.Sync(); err != nil {
		fmt.Fprintln(os.Stderr, "the child's book:", err)
		return false
	}
	return true
}

type flood struct {
	run   uint64
	n     int // lines printed
	left  int // of bursts
	slow  int // of steady ones
	batch int // of those in one write
	out   *childBook
	rng   *rand.Rand
	buf   []byte
}

func (f *flood) loop(orders <-chan Order) int {
	gap := time.NewTicker(batchGap())
	defer gap.Stop()
	f.line(`"type":"hello"`)
	for f.print() {
		o, ok := f.next(orders, gap.C)
		if !ok {
			f.line(`"type":"bye"`)
			f.print()
			return 0
		}
		if o.Type == "exit" {
			return o.N
		}
		f.obey(o)
	}
	return 1
}

// next waits for an order, or for when the next lines are due, and makes those.
func (f *flood) next(orders <-chan Order, gap <-chan time.Time) (o Order, ok bool) {
	switch {
	case f.left > 0:
		select {
		case o, ok = <-orders:
			return o, ok
		default:
			f.ticks(&f.left, batchLines)
			return Order{}, true
		}
	case f.slow > 0:
		select {
		case o, ok = <-orders:
			return o, ok
		case <-gap:
			f.ticks(&f.slow, cmp.Or(f.batch, batchLines))
			return Order{}, true
		}
	}
	o, ok = <-orders
	return o, ok
}

func (f *flood) ticks(left *int, batch int) {
	for range min(*left, batch) {
		f.tick()
		*left--
	}
}

func (f *flood) obey(o Order) {
	switch o.Type {
	case "burst":
		f.left += o.N
	case "steady":
		f.slow += o.N
		f.batch = o.B
	case "calm":
		f.left, f.slow = 0, 0
		f.line(fmt.Sprintf(`"type":"calm","k":%q`, o.K))
	case "echo":
		f.line(fmt.Sprintf(`"type":"echo","k":%q`, o.K))
	case "noise":
		for range o.N {
			f.noise()
		}
	case "chat":
		f.line(fmt.Sprintf(`"type":"say","k":%q,"pad":"%s"`, o.K, strings.Repeat("c", o.N)))
		f.line(`"type":"said"`)
	case "big":
		f.line(fmt.Sprintf(`"type":"big","k":%q,"pad":"%s"`, o.K, strings.Repeat("b", o.N)))
	case "unreadable":
		f.line(`"type":"unreadable"`)
	}
}

// tick is one line of a burst; sizes and characters vary.
func (f *flood) tick() {
	pad := strings.Repeat("x", f.rng.IntN(300))
	switch {
	case f.n%1000 == 999:
		pad = strings.Repeat("y", 20<<10)
	case f.n%97 == 0:
		pad = "\u2028 \u00e9 \U0001f600 \\u0000 9007199254740993"
	}
	f.line(`"type":"tick","pad":"` + pad + `"`)
}

// noise is a line that does not pack.
func (f *flood) noise() {
	pad := make([]byte, 0, 2048)
	for len(pad) < 2000 {
		pad = strconv.AppendUint(pad, f.rng.Uint64(), 36)
	}
	f.line(`"type":"noise","pad":"` + string(pad) + `"`)
}

// line has white space, which must stay.
func (f *flood) line(members string) {
	f.n++
	f.buf = fmt.Appendf(f.buf, `{"run":%d, "n":%d, %s}`+"\n", f.run, f.n, members)
}

// print books the lines at hand, then prints them.
func (f *flood) print() bool {
	if len(f.buf) == 0 {
		return true
	}
	if !f.out.add(f.buf) {
		return false
	}
	_, err := io.Copy(os.Stdout, bytes.NewReader(f.buf))
	f.buf = f.buf[:0]
	return err == nil
}
