package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// quarantineDir, in the data directory, keeps what the boot guard replaced; one
// folder for each start that found damage.
const quarantineDir = "quarantine"

const reportFile = "report.json"

// Damage is what a start found broken in the journal's files, and did about it.
type Damage struct {
	Time     time.Time       `json:"time"`
	Folder   string          `json:"folder"` // holds the files as they were found
	Streams  []StreamDamage  `json:"streams"`
	Sessions []SessionDamage `json:"sessions"` // as far as what is left tells whose the lost records were
	Settled  bool            `json:"settled"`  // the broker has looked at every session since
}

// StreamDamage is one broken file.
type StreamDamage struct {
	Stream string `json:"stream"`
	File   string `json:"file"`
	What   string `json:"what"`
	From   int    `json:"from,omitempty"` // bytes of the file
	To     int    `json:"to,omitempty"`
	Action string `json:"action"`
	// FirstLost and LastLost are stream sequences between which records may be
	// missing; 0: none are.
	FirstLost uint64 `json:"firstLost,omitempty"`
	LastLost  uint64 `json:"lastLost,omitempty"`
	AtEnd     bool   `json:"atEnd,omitempty"` // nothing follows: they may be the newest of any session
}

// SessionDamage is a hole in a session's log: events After+1 to Before-1.
type SessionDamage struct {
	Workspace string       `json:"workspace"`
	Session   string       `json:"session"`
	Shard     int          `json:"shard"`
	After     protocol.Seq `json:"after"`  // the last event before the hole; 0: not known
	Before    protocol.Seq `json:"before"` // the first event behind it; 0: the log ends before it
}

// Log names the session's log.
func (d SessionDamage) Log() Log {
	return Log{Key: protocol.Key{Workspace: d.Workspace, Session: d.Session}, Shard: d.Shard}
}

// quarantine is the folder of one start, made when the first file needs it.
type quarantine struct {
	dir    string // data directory
	fault  func(string) error
	damage Damage
}

func newQuarantine(dir string, now time.Time, fault func(string) error) *quarantine {
	name := now.UTC().Format("20060102T150405.000000000Z")
	return &quarantine{dir: dir, fault: fault, damage: Damage{Time: now.UTC(), Folder: filepath.Join(dir, quarantineDir, name)}}
}

// place returns where a file of a stream goes, and makes its folder.
func (q *quarantine) place(stream, name string) (string, error) {
	dir := filepath.Join(q.damage.Folder, stream)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make quarantine: %w", err)
	}
	return filepath.Join(dir, name), nil
}

// keep copies a file into the folder, durably.
func (q *quarantine) keep(stream, path string) error {
	to, err := q.place(stream, filepath.Base(path))
	if err != nil {
		return err
	}
	if err := copyFile(to, path); err != nil {
		return fmt.Errorf("keep %s: %w", path, err)
	}
	return errors.Join(syncDir(filepath.Dir(to)), syncDir(q.damage.Folder), syncDir(filepath.Join(q.dir, quarantineDir)), q.fault("kept"))
}

// move takes a file or directory out of the store.
func (q *quarantine) move(stream, path string) error {
	to, err := q.place(stream, filepath.Base(path))
	if err != nil {
		return err
	}
	for n := 2; present(to); n++ { // moved before, and broken again
		to = filepath.Join(filepath.Dir(to), filepath.Base(path)+"."+strconv.Itoa(n))
	}
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("move %s aside: %w", path, err)
	}
	return errors.Join(syncDir(filepath.Dir(to)), syncDir(filepath.Dir(path)), q.fault("moved"))
}

// note adds a finding; write makes it durable.
func (q *quarantine) note(d StreamDamage) { q.damage.Streams = append(q.damage.Streams, d) }

func (q *quarantine) empty() bool { return len(q.damage.Streams) == 0 && len(q.damage.Sessions) == 0 }

// write stores the report: before anything of what it tells is changed, so that
// a start which is cut short is told of by the next one.
func (q *quarantine) write() error {
	if q.empty() {
		return nil
	}
	if err := os.MkdirAll(q.damage.Folder, 0o700); err != nil {
		return fmt.Errorf("make quarantine: %w", err)
	}
	return errors.Join(q.damage.write(), syncDir(filepath.Join(q.dir, quarantineDir)), syncDir(q.dir), q.fault("reported"))
}

func (d *Damage) write() error {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return writeFile(filepath.Join(d.Folder, reportFile), append(data, '\n'))
}

// readDamage returns the reports of all starts so far, oldest first.
func readDamage(dir string) ([]Damage, error) {
	folders, err := os.ReadDir(filepath.Join(dir, quarantineDir))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var out []Damage
	for _, f := range folders {
		folder := filepath.Join(dir, quarantineDir, f.Name())
		data, err := os.ReadFile(filepath.Join(folder, reportFile))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) { // somebody's notes
			continue
		}
		d := Damage{}
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err != nil {
			return nil, fmt.Errorf("read report of %s: %w", folder, err)
		}
		d.Folder = folder // the data directory may have moved
		out = append(out, d)
	}
	return out, nil
}

// Damage returns what starts found broken and SettleDamage has not been called
// for, this one's last. Everything else is as it was.
func (n *Node) Damage() []Damage {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.damage
}

// SettleDamage records that everything the damage asks of the sessions is done
// and durable. Until then every later start reports it again.
func (n *Node) SettleDamage() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.damage {
		d := n.damage[i]
		d.Settled = true
		if err := d.write(); err != nil {
			return err
		}
	}
	n.damage = nil
	return nil
}
