package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
)

// bootIDFile names this boot of the machine.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bootMark is DATA/boot: under which boot, how durably and how far a process
// uses the directory.
type bootMark struct {
	BootID     string `json:"bootId"`
	Clean      bool   `json:"clean"`      // it stopped in order, everything synced
	Durability string `json:"durability"` // of that process
	// Unclean says that an unclean boot was found and is not settled yet: it
	// outlives a crash between finding and settling.
	Unclean bool `json:"unclean"`
}

func readBootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// openBoot reads what the last process left, decides whether acknowledged
// events may be lost, and marks the directory as in use.
func openBoot(dir, bootID string, d Durability) (*bootMark, error) {
	prev, found, err := readBoot(dir)
	if err != nil {
		return nil, err
	}
	m := &bootMark{BootID: bootID, Durability: d.String(), Unclean: found && prev.lost(bootID)}
	if found && !prev.Clean && prev.BootID == bootID {
		// What a killed process wrote may still be only in the page cache, and
		// from here on this mark speaks for it.
		if err := syncFS(dir); err != nil {
			return nil, fmt.Errorf("sync data directory: %w", err)
		}
	}
	return m, m.write(dir)
}

// lost reports whether acknowledged events of the process that left m may be
// gone under the boot now.
func (m *bootMark) lost(now string) bool {
	if m.Unclean {
		return true
	}
	return !m.Clean && m.BootID != now && m.Durability != Durability{}.String()
}

func readBoot(dir string) (m bootMark, found bool, err error) {
	path := filepath.Join(dir, "boot")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("read boot mark: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, false, &FormatError{Path: path, Reason: "not readable: " + err.Error()}
	}
	return m, true, nil
}

func (m *bootMark) write(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode boot mark: %w", err)
	}
	return writeFile(filepath.Join(dir, "boot"), append(data, '\n'))
}

// openInstance returns the name of the data directory, made at its first use.
func openInstance(dir string, now time.Time) (string, error) {
	path := filepath.Join(dir, "instance")
	data, err := os.ReadFile(path)
	if err == nil {
		id := string(bytes.TrimSpace(data))
		if _, err := ulid.ParseStrict(id); err != nil {
			return "", &FormatError{Path: path, Reason: "holds no ULID"}
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read instance: %w", err)
	}
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make instance id: %w", err)
	}
	return id.String(), writeFile(path, []byte(id.String()+"\n"))
}
