package soak_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// disk is where the data directory lies: a file system of its own where this
// process may mount one.
type disk struct {
	t    *testing.T
	path string
	why  string // not mounted, and why
}

const diskBytes = "768m"

func newDisk(t *testing.T, path string) *disk {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, path: path}
	if err := syscall.Mount("rejoin-soak", path, "tmpfs", 0, "size="+diskBytes+",mode=0700"); err != nil {
		d.why = "mount: " + err.Error()
		return d
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return d
}

func (d *disk) dir() string { return filepath.Join(d.path, "data") }

// setReadOnly while nothing on it is open for writing.
func (d *disk) setReadOnly(on bool) {
	d.t.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if on {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("rejoin-soak", d.path, "tmpfs", flags, "size="+diskBytes+",mode=0700"); err != nil {
		d.t.Fatalf("remount: %v", err)
	}
}

func needsDisk(s *soak) string { return s.data.why }

// readOnly: killed in the middle of writes, the server finds its disk read-only;
// it says so, does nothing, and goes on when the disk is back.
func (s *soak) readOnly() {
	s.t.Helper()
	s.server.Kill9()
	s.data.setReadOnly(true)
	err := s.server.TryRun("--durability", "always")
	s.data.setReadOnly(false)
	if err == nil {
		s.t.Fatal("the server started on a read-only disk")
	}
	if !strings.Contains(s.server.LogTail(), syscall.EROFS.Error()) {
		s.t.Fatalf("on a read-only disk the server said:\n%s", s.server.LogTail())
	}
	s.recover()
}

// reboot: killed in the middle of writes, the server starts under another boot.
// Below always every session goes on in a new epoch; its old one is read from a
// copy of the data directory, which stays under the old boot.
func (s *soak) reboot() {
	s.t.Helper()
	s.server.Kill9()
	level := s.level
	if level != "always" {
		s.readCopy()
	}
	s.otherBoot()
	old := map[string]string{}
	for _, u := range s.world {
		if len(u.Logs) > 0 {
			old[u.Session] = u.Logs[len(u.Logs)-1].Epoch
		}
	}
	s.start()
	c := harness.Dial(s.t, s.server)
	for _, u := range s.world {
		i := u.Info(c)
		if was := old[u.Session]; was != "" && (i.Epoch == was) != (level == "always") {
			s.t.Fatalf("after another boot at durability %s session %s is in epoch %s, before in %s", level, u.Session, i.Epoch, was)
		}
		u.cutAt(c)
	}
	s.recovered()
}

// otherBoot makes the mark of the last process one of another boot.
func (s *soak) otherBoot() {
	s.t.Helper()
	path := filepath.Join(s.data.dir(), "boot")
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	mark := map[string]any{}
	if err := json.Unmarshal(b, &mark); err != nil {
		s.t.Fatal(err)
	}
	if mark["clean"] != false {
		s.t.Fatalf("a killed server left the mark %s", b)
	}
	mark["bootId"] = "00000000-0000-4000-8000-000000000000"
	if b, err = json.Marshal(mark); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// readCopy reads every log to its end from a server on a copy of the data.
func (s *soak) readCopy() {
	s.t.Helper()
	dir := s.t.TempDir()
	if out, err := exec.Command("cp", "-a", s.data.dir(), dir).CombinedOutput(); err != nil {
		s.t.Fatalf("copy: %v\n%s", err, out)
	}
	copied := harness.New(s.t, harness.Options{Bin: s.bin, DataDir: filepath.Join(dir, "data"), Args: []string{"--max-event-bytes", "1MiB"}})
	copied.Run("--durability", "20ms")
	c := harness.Dial(s.t, copied)
	for _, u := range s.world {
		u.ReadLog(c)
	}
	if err := c.Close(); err != nil {
		s.t.Fatal(err)
	}
	copied.Kill9()
	if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
		s.t.Fatal(err)
	}
}

// cutAt takes from the log of an epoch that has ended what only the copy wrote:
// its recovery.
func (u *subject) cutAt(c *harness.Client) {
	u.s.t.Helper()
	i := u.Info(c)
	if len(u.Logs) == 0 || u.Logs[len(u.Logs)-1].Epoch == i.Epoch {
		return
	}
	u.dropAfter(u.beginning(c, i).PreviousHead)
}

// opening is how an epoch that follows another begins.
type opening struct {
	PreviousHead uint64 `json:"previousHead"`
	Reason       string `json:"reason"`
}

// beginning of the epoch that the session is in.
func (u *subject) beginning(c *harness.Client, i model.SessionInfo) (b opening) {
	u.s.t.Helper()
	l := model.Log{Epoch: i.Epoch, Floor: i.Floor}
	if _, err := model.ReadMore(u.s.t.Context(), c, u.Session, &l); err != nil {
		u.s.t.Fatal(err)
	}
	if len(l.Events) == 0 || json.Unmarshal(l.Events[0].Body, &b) != nil {
		u.s.t.Fatalf("epoch %s of %s begins with nothing", i.Epoch, u.Session)
	}
	return b
}

// dropAfter takes from the log what comes after an event, which must be nothing
// but the recovery of the copy.
func (u *subject) dropAfter(seq uint64) {
	u.s.t.Helper()
	was := &u.Logs[len(u.Logs)-1]
	if was.Head() < seq {
		u.s.t.Fatalf("broke I-J2: the disk has %d events of %s, its copy shows %d", seq, u.Session, was.Head())
	}
	for was.Head() > seq {
		last := &was.Events[len(was.Events)-1]
		if last.Source != "broker" || last.Type() == "command" {
			u.s.t.Fatalf("broke I-J2: epoch %s ended at %d, the disk had event %d: %.200s", was.Epoch, seq, last.Seq, last.Body)
		}
		was.Events = was.Events[:len(was.Events)-1]
	}
}

// fullDisk: something else takes all the space while everybody writes. What is
// asked for is refused until there is space again; then all goes on by itself.
func (s *soak) fullDisk() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	runs := make([]uint64, len(s.world))
	for i, u := range s.world {
		runs[i] = u.Info(c).Run
	}
	filler := filepath.Join(s.data.path, "filler")
	f, err := os.Create(filler)
	if err != nil {
		s.t.Fatal(err)
	}
	var have int64
	for step := int64(64 << 20); step >= 4096; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, have, step); err {
		case nil:
			have += step
		case syscall.ENOSPC:
			step /= 2
		default:
			s.t.Fatalf("fill the disk: %v", err)
		}
	}
	harness.Eventually(s.t, "the journal says that it is full or sick", func() bool { return s.journal(c) != "ok" })
	s.hold(100*time.Millisecond, 500*time.Millisecond)
	if err := errors.Join(f.Close(), os.Remove(filler)); err != nil {
		s.t.Fatal(err)
	}
	harness.Eventually(s.t, "the journal is well again", func() bool { return s.journal(c) == "ok" })
	for i, u := range s.world {
		if now := u.Info(c); now.State != "running" || now.Run != runs[i] {
			s.t.Fatalf("broke the failure table: after a full disk session %s is %+v", u.Session, now)
		}
	}
}

// journal is the state of the journal.
func (s *soak) journal(c *harness.Client) string {
	s.t.Helper()
	s.site.Check()
	r := harness.Do[struct {
		Journal struct {
			State string `json:"state"`
		} `json:"journal"`
	}](s.t, c, "server_status", nil)
	if r.Journal.State == "" {
		s.t.Fatal("server_status says nothing of the journal")
	}
	return r.Journal.State
}
