package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// readyData says where a server is: the content of --ready-file and of
// server.json in its data directory.
type readyData struct {
	PID       int             `json:"pid"`
	Listeners []readyListener `json:"listeners"`
	TokenFile string          `json:"tokenFile"` // empty: no token, or one given on the command line
	DataDir   string          `json:"dataDir"`
}

type readyListener struct {
	URL     string `json:"url"`
	Dialect string `json:"dialect"`
}

// serverFile is where a server's own data directory tells about it.
func serverFile(dataDir string) string { return filepath.Join(dataDir, "server.json") }

func (r readyData) write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, append(b, '\n'))
}

// writeFile replaces path atomically, readable only by its owner.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(cause(err), os.Remove(f.Name())))
	}
	return nil
}

// cause drops the path that a message names already.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// localServer reads what the server of a data directory says about itself; ok is
// false when none is running there.
func localServer(dataDir string) (r readyData, ok bool) {
	b, err := os.ReadFile(serverFile(dataDir))
	if err != nil || json.Unmarshal(b, &r) != nil || r.PID <= 0 {
		return readyData{}, false
	}
	err = syscall.Kill(r.PID, 0)
	return r, err == nil || errors.Is(err, syscall.EPERM)
}

// retract removes what the server of a data directory said about itself.
func retract(dataDir string) error { return removeReady(serverFile(dataDir)) }

// removeReady removes the ready data of an earlier server; an empty path is none.
func removeReady(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, cause(err))
	}
	return nil
}
