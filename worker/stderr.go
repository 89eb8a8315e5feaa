package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rejoin/protocol"
)

// Bounds of stderr.
const (
	stderrChunk    = 16 << 10
	stderrLineMax  = 64 << 10 // of a stderr event; longer lines are cut into several
	stderrRunsKept = 64       // files per session; the oldest runs go first
)

// stderrTop holds the tails of sessions, <workspace>/<session> each.
const stderrTop = "stderr"

// stderrTail keeps the last StderrTailBytes of what a run wrote to stderr, in
// memory and in DataDir/stderr/<workspace>/<session>/<run>.log, so that it
// outlives the server. The file holds at most twice that much. It is written by
// one goroutine; tail may be called by others.
type stderrTail struct {
	path string
	log  *slog.Logger
	seal *Seal // of the file; nil: in clear

	mu   sync.Mutex
	last []byte // at most twice StderrTailBytes

	file     *os.File // of the writing goroutine, as what follows
	size     int64
	unusable bool // the file cannot be written; the memory goes on
}

func stderrDir(dataDir string, k protocol.Key) string {
	return filepath.Join(dataDir, stderrTop, k.Workspace, k.Session)
}

func stderrFile(run protocol.Run) string { return strconv.FormatUint(uint64(run), 10) + ".log" }

func newStderrTail(dataDir string, k protocol.Key, run protocol.Run, log *slog.Logger) *stderrTail {
	return &stderrTail{path: filepath.Join(stderrDir(dataDir, k), stderrFile(run)), log: log}
}

// write never fails: what the disk does not take is still in memory.
func (t *stderrTail) write(b []byte) {
	t.mu.Lock()
	t.last = append(t.last, b...)
	if n := len(t.last); n > 2*protocol.StderrTailBytes {
		t.last = append(t.last[:0], t.last[n-protocol.StderrTailBytes:]...)
	}
	t.mu.Unlock()
	if t.unusable {
		return
	}
	if err := t.store(b); err != nil {
		t.unusable = true
		t.log.Warn("stderr tail is kept in memory only", slog.Any(protocol.LogError, err))
	}
}

func (t *stderrTail) store(b []byte) error {
	if t.file == nil || t.size+int64(len(b)) > 2*protocol.StderrTailBytes {
		return t.rewrite()
	}
	n, err := t.file.Write(t.seal.seal(b))
	t.size += int64(n)
	return err
}

// rewrite begins the file, or begins it anew with the tail; a crash leaves the
// old one or the new one.
func (t *stderrTail) rewrite() error {
	if t.file == nil {
		if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
			return err
		}
		prune(filepath.Dir(t.path))
	}
	f, err := os.OpenFile(t.path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	tail := t.bytes(protocol.StderrTailBytes)
	n, err := f.Write(t.seal.seal(tail))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := os.Rename(t.path+".new", t.path); err != nil {
		return errors.Join(err, f.Close())
	}
	t.closeFile()
	t.file, t.size = f, int64(n)
	return nil
}

func (t *stderrTail) closeFile() {
	if t.file == nil {
		return
	}
	if err := t.file.Close(); err != nil {
		t.log.Warn("close the stderr tail", slog.Any(protocol.LogError, err))
	}
	t.file = nil
}

func (t *stderrTail) close() { t.closeFile() }

func (t *stderrTail) bytes(n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.last[max(0, len(t.last)-n):])
}

// tail returns the last n bytes as valid text.
func (t *stderrTail) tail(n int) string { return tailText(t.bytes(n), n) }

// tailText is at most n bytes of the end of b, valid UTF-8, beginning with a whole character.
func tailText(b []byte, n int) string {
	b = b[max(0, len(b)-n):]
	for i := 0; i < 3 && len(b) > 0 && b[0]&0xc0 == 0x80; i++ {
		b = b[1:]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// prune forgets the oldest runs of a session. What cannot be removed stays.
func prune(dir string) {
	runs, err := keptRuns(dir)
	if err != nil {
		return
	}
	for len(runs) >= stderrRunsKept {
		_ = os.Remove(filepath.Join(dir, stderrFile(runs[0])))
		runs = runs[1:]
	}
}

func keptRuns(dir string) ([]protocol.Run, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var runs []protocol.Run
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".log")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(name, 10, 64); err == nil {
			runs = append(runs, protocol.Run(n))
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// StderrTail returns what is kept of a run's stderr (run 0: the newest), at most
// StderrTailBytes of valid text; nothing when the run wrote nothing. For
// read_stderr.
func StderrTail(dataDir string, k protocol.Key, run protocol.Run) (string, error) {
	return (*Seal)(nil).StderrTail(dataDir, k, run)
}

// StderrTail is the package's for files that were sealed by s.
func (s *Seal) StderrTail(dataDir string, k protocol.Key, run protocol.Run) (string, error) {
	if err := checkKey(k); err != nil {
		return "", err
	}
	dir := stderrDir(dataDir, k)
	if run == 0 {
		runs, err := keptRuns(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && len(runs) == 0:
			return "", nil
		case err != nil:
			return "", fmt.Errorf("read stderr: %w", err)
		}
		run = runs[len(runs)-1]
	}
	b, err := os.ReadFile(filepath.Join(dir, stderrFile(run)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read stderr: %w", err)
	}
	return tailText(s.open(b), protocol.StderrTailBytes), nil
}

// readStderr drains stderr to its end, whatever the journal does.
func (s *session) readStderr() {
	events := stderrEvents{s: s}
	buf := make([]byte, stderrChunk)
	for {
		n, err := s.child.stderr.Read(buf)
		if n > 0 {
			s.stderr.write(buf[:n])
			if s.rec.Stderr == "event" {
				events.take(buf[:n])
			}
		}
		if err != nil { // the end, or closed by endStderr
			events.flush()
			return
		}
	}
}

// endStderr gives stderr a moment to end, then cuts it off.
func (s *session) endStderr(done <-chan struct{}) {
	limit := time.NewTimer(stderrLinger)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		_ = s.child.stderr.Close() // somebody we do not know holds the other end
		<-done
	}
}

// stderrEvents makes stderr events of lines, where the agent's configuration
// asks for them. It never waits: what finds no room is dropped and counted.
type stderrEvents struct {
	s       *session
	line    []byte // at most stderrLineMax
	dropped int64

	mu      sync.Mutex
	pending int
}

func (v *stderrEvents) take(b []byte) {
	for len(b) > 0 {
		part := b[:min(len(b), stderrLineMax-len(v.line))]
		if i := bytes.IndexByte(part, '\n'); i >= 0 {
			v.line = append(v.line, part[:i]...)
			b = b[i+1:]
			v.emit()
			continue
		}
		v.line = append(v.line, part...)
		b = b[len(part):]
		if len(v.line) >= stderrLineMax {
			v.emit()
		}
	}
}

func (v *stderrEvents) flush() {
	if len(v.line) > 0 {
		v.emit()
	}
}

func (v *stderrEvents) emit() {
	text := bytes.TrimSuffix(v.line, []byte("\r"))
	v.line = v.line[:0]
	n := len(text)
	v.mu.Lock()
	room := v.pending+n <= protocol.StderrQueuedBytes
	if room {
		v.pending += n
	}
	v.mu.Unlock()
	if !room {
		if v.dropped == 0 {
			v.s.w.counters.met("StderrQueuedBytes")
		}
		v.dropped += int64(n)
		return
	}
	body := stderrBody(bytes.ToValidUTF8(text, []byte("\uFFFD")), v.dropped)
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil || s.phase >= phaseEnded {
		return
	}
	_, err := s.add(protocol.SourceBroker, "", body, func(error) {
		v.mu.Lock()
		v.pending -= n
		v.mu.Unlock()
	})
	if err != nil {
		s.log.Warn("stderr is not recorded", slog.Any(protocol.LogError, err))
		return
	}
	v.dropped = 0
}
