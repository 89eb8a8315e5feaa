package kill_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rejoin/tests/harness"
)

// An order is a command to the child. K is its command id, so that what the
// child received can be told without rejoin.
type order struct {
	Type string `json:"type"` // echo: answer; burst: print N lines at once; steady: print N lines, paced; big: print one line of N bytes; kill: kill the server
	K    string `json:"k"`
	N    int    `json:"n,omitempty"`
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

// journals of the child: what it printed and what it received, per run.
func outPath(dir, session string, run uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.out", session, run))
}

func inPath(dir, session string, run uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.in", session, run))
}

// floodChild keeps its own books: a line stands in its file, fsynced, before it
// is printed, and an order stands in its file before it is obeyed.
func floodChild(args []string) int {
	var run uint64
	if _, err := fmt.Sscan(os.Getenv("REJOIN_RUN"), &run); err != nil || len(args) != 1 {
		fmt.Fprintln(os.Stderr, "the flood child needs a folder and REJOIN_RUN:", err)
		return 2
	}
	session := path.Base(os.Getenv("REJOIN_SESSION")) // it may carry the workspace
	out, err := os.OpenFile(outPath(args[0], session, run), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	in, err := os.OpenFile(inPath(args[0], session, run), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := startBystander(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	f := &flood{run: run, out: out, rng: rand.New(rand.NewPCG(run, 7))}
	orders := make(chan order, 64)
	go readOrders(in, orders)
	return f.loop(orders)
}

// startBystander leaves a process in a session of its own that survives the
// child's death, as tools of agents do.
func startBystander() error {
	argv := harness.ChildArgv("bystander")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// bystanderChild ends by itself long after the test has looked for it.
func bystanderChild([]string) int {
	<-time.After(10 * time.Minute)
	return 0
}

// readOrders books what arrives, one fsync per read, before anybody obeys it.
func readOrders(in *os.File, orders chan<- order) {
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
		if slices.ContainsFunc(read, func(o order) bool { return o.Type == "kill" }) {
			killServer(in, batch)
			return
		}
		if !book(in, batch) {
			return
		}
		for _, o := range read {
			orders <- o
		}
	}
}

func parse(batch []byte) []order {
	var all []order
	for l := range bytes.Lines(batch) {
		var o order
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

func book(f *os.File, b []byte) bool {
	if _, err := f.Write(b); err != nil {
		fmt.Fprintln(os.Stderr, "the child's book:", err)
		return false
	}
	if err := f.Sync(); err != nil {
		fmt.Fprintln(os.Stderr, "the child's book:", err)
		return false
	}
	return true
}

type flood struct {
	run  uint64
	n    int // lines printed
	left int // of bursts
	slow int // of steady ones
	out  *os.File
	rng  *rand.Rand
	buf  []byte
}

func (f *flood) loop(orders <-chan order) int {
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
		f.obey(o)
	}
	return 1
}

// next waits for an order, or for when the next lines are due, and makes those.
func (f *flood) next(orders <-chan order, gap <-chan time.Time) (o order, ok bool) {
	switch {
	case f.left > 0:
		select {
		case o, ok = <-orders:
			return o, ok
		default:
			f.ticks(&f.left)
			return order{}, true
		}
	case f.slow > 0:
		select {
		case o, ok = <-orders:
			return o, ok
		case <-gap:
			f.ticks(&f.slow)
			return order{}, true
		}
	}
	o, ok = <-orders
	return o, ok
}

func (f *flood) ticks(left *int) {
	for range min(*left, batchLines) {
		f.tick()
		*left--
	}
}

func (f *flood) obey(o order) {
	switch o.Type {
	case "burst":
		f.left += o.N
	case "steady":
		f.slow += o.N
	case "echo":
		f.line(fmt.Sprintf(`"type":"echo","k":%q`, o.K))
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

func (f *flood) line(members string) {
	f.n++
	f.buf = fmt.Appendf(f.buf, `{"run":%d,"n":%d,%s}`+"\n", f.run, f.n, members)
}

// print books the lines at hand, then prints them.
func (f *flood) print() bool {
	if len(f.buf) == 0 {
		return true
	}
	if !book(f.out, f.buf) {
		return false
	}
	_, err := io.Copy(os.Stdout, bytes.NewReader(f.buf))
	f.buf = f.buf[:0]
	return err == nil
}
