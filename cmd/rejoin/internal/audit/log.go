package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"rejoin/gateway"
	"rejoin/protocol"
)

const (
	batchBytes    = 64 << 10         // of one write
	complainEvery = 10 * time.Second // about losses, at most
)

// Config of a Log.
type Config struct {
	Path     string       // required
	BytesMax int64        // of the file; zero means protocol.AuditBytesMax
	FilesMax int          // older ones that are kept; zero means protocol.AuditFilesMax
	Queued   int          // entries that may wait; zero means protocol.AuditEntriesQueued
	Logger   *slog.Logger // nil: discard
}

func (c Config) withDefaults() Config {
	if c.BytesMax == 0 {
		c.BytesMax = protocol.AuditBytesMax
	}
	if c.FilesMax == 0 {
		c.FilesMax = protocol.AuditFilesMax
	}
	if c.Queued == 0 {
		c.Queued = protocol.AuditEntriesQueued
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Log is an open audit log. Record and Lost are safe for concurrent use; the
// rest is Run's.
type Log struct {
	cfg   Config
	queue chan gateway.AuditEntry // when full, Record loses
	lost  atomic.Uint64           // in all
	told  uint64                  // of those, how many stand in the file

	file       *os.File
	size       int64
	torn       bool // the last line of the file lacks its end
	complained time.Time
}

// Open opens or makes the file, which only its owner may read.
func Open(cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	l := &Log{cfg: cfg, queue: make(chan gateway.AuditEntry, cfg.Queued)}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log %s: %w", cfg.Path, err)
	}
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is there and no file")
	}
	if err == nil && st.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err == nil && st.Size() > 0 {
		var last [1]byte
		_, err = f.ReadAt(last[:], st.Size()-1)
		l.torn = last[0] != '\n'
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, st.Size()
	return nil
}

// Record takes an entry. It does not wait: when too many do, it is lost.
func (l *Log) Record(e gateway.AuditEntry) {
	select {
	case l.queue <- e:
	default:
		l.lost.Add(1)
	}
}

// Lost is how many entries are not in the log.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Run writes what is recorded until ctx ends; then what is at hand, and closes
// the file. Nothing may be recorded after that.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case e := <-l.queue:
			l.write(e)
		case <-ctx.Done():
			for len(l.queue) > 0 {
				l.write(<-l.queue)
			}
			return l.Close()
		}
	}
}

// Close closes the file of a Log that does not run.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	if err != nil {
		return fmt.Errorf("close audit log: %w", err)
	}
	return nil
}

// write appends first and what waits behind it, in one write.
func (l *Log) write(first gateway.AuditEntry) {
	lost := l.lost.Load()
	buf, n := l.appendEntry(l.appendLosses(nil, lost-l.told), first), uint64(1)
	for more := true; more && len(buf) < batchBytes; {
		select {
		case e := <-l.queue:
			buf = l.appendEntry(buf, e)
			n++
		default:
			more = false
		}
	}
	err := l.rotate(int64(len(buf)))
	if err == nil {
		err = l.put(buf)
	}
	if err != nil {
		l.lost.Add(n)
		err = errors.Join(err, l.Close()) // the next write opens it again
	} else {
		l.told = lost
	}
	l.complain(err)
}

// put writes whole lines, or remembers that it did not.
func (l *Log) put(b []byte) error {
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	if n > 0 {
		l.torn = b[n-1] != '\n'
	}
	return err
}

// complain says that entries are lost.
func (l *Log) complain(err error) {
	lost := l.lost.Load()
	if lost == l.told && err == nil || time.Since(l.complained) < complainEvery {
		return
	}
	l.complained = time.Now()
	l.cfg.Logger.Error("audit log is not complete", slog.String("file", l.cfg.Path), slog.Uint64("lost", lost), slog.Any(protocol.LogError, err))
}

// rotate makes room for n bytes: the file becomes FILE.1, that FILE.2 and so on,
// and the last one goes.
func (l *Log) rotate(n int64) error {
	if l.file != nil && (l.size == 0 || l.size+n <= l.cfg.BytesMax) {
		return nil
	}
	if l.file != nil {
		if err := l.Close(); err != nil {
			l.cfg.Logger.Warn("rotate audit log", slog.Any(protocol.LogError, err))
		}
		for i := l.cfg.FilesMax; i > 0; i-- {
			if err := os.Rename(l.name(i-1), l.name(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
				l.cfg.Logger.Warn("rotate audit log", slog.Any(protocol.LogError, err))
			}
		}
	}
	l.torn = false
	return l.open()
}

func (l *Log) name(i int) string {
	if i == 0 {
		return l.cfg.Path
	}
	return l.cfg.Path + "." + strconv.Itoa(i)
}

// line is an entry as it is written.
type line struct {
	TS         string `json:"ts"`
	Name       string `json:"name,omitempty"`
	Role       string `json:"role,omitempty"`
	Workspace  string `json:"workspace,omitempty"`
	Token      string `json:"token,omitempty"` // the id
	Connection uint64 `json:"connection,omitempty"`
	Remote     string `json:"remote,omitempty"`
	Method     string `json:"method"`
	SessionID  string `json:"sessionId,omitempty"`
	CommandID  string `json:"commandId,omitempty"`
	Outcome    string `json:"outcome"` // ok, refused, lost
	Code       int    `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Count      uint64 `json:"count,omitempty"` // of entries_lost
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// lineOf is what of an entry is written.
func lineOf(e *gateway.AuditEntry) line {
	out := line{
		TS: e.At.UTC().Format(timeFormat), Name: e.Who.Name, Workspace: e.Who.Workspace, Token: e.Who.Token,
		Connection: e.Connection, Remote: e.Remote, Method: e.Method, SessionID: e.SessionID, CommandID: e.CommandID, Outcome: "ok",
	}
	if e.Who.Name != "" {
		out.Role = e.Who.Role.String()
	}
	if e.Err != nil {
		out.Outcome, out.Code, out.Reason = "refused", e.Err.Code(), string(e.Err.Reason)
	}
	return out
}

func (l *Log) appendEntry(dst []byte, e gateway.AuditEntry) []byte {
	return l.appendLine(dst, lineOf(&e))
}

// appendLosses appends that n entries are lost, unless none is.
func (l *Log) appendLosses(dst []byte, n uint64) []byte {
	if n > 0 {
		dst = l.appendLine(dst, line{TS: time.Now().UTC().Format(timeFormat), Method: "entries_lost", Outcome: "lost", Count: n})
	}
	return dst
}

func (l *Log) appendLine(dst []byte, v line) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers: it cannot be
		l.lost.Add(1)
		return dst
	}
	return append(append(dst, b...), '\n')
}
