package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"rejoin/client"
	"rejoin/protocol"
)

// readyData says where a server is: the content of --ready-file and of
// server.json in its data directory.
type readyData struct {
	PID       int             `json:"pid"`
	Listeners []readyListener `json:"listeners"`
	TokenFile string          `json:"tokenFile"`        // empty: no token, or one given on the command line
	Tokens    string          `json:"tokens,omitempty"` // the file with more tokens, which need not be there; empty: none
	DataDir   string          `json:"dataDir"`
	Admin     string          `json:"admin,omitempty"` // URL of metrics and health

	Roles  []protocol.ServerRole `json:"roles,omitempty"`  // of one process among several
	Worker string                `json:"worker,omitempty"` // its worker's id there
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

// findServer reads what the server of a data directory says about itself; running
// is false when none is there. A directory that cannot be read is an error.
func findServer(dataDir string) (r readyData, running bool, err error) {
	path := serverFile(dataDir)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return readyData{}, false, nil
	}
	if err != nil {
		return readyData{}, false, fmt.Errorf("read %s: %w", path, cause(err))
	}
	if json.Unmarshal(b, &r) != nil || r.PID <= 0 {
		return readyData{}, false, fmt.Errorf("%s is not what a server writes", path)
	}
	err = syscall.Kill(r.PID, 0)
	return r, err == nil || errors.Is(err, syscall.EPERM), nil
}

// nearest is the listener for a command on this machine: the first one, but one
// without TLS if there is any, which needs no certificates. Listeners is not empty.
func (r readyData) nearest() string {
	for _, l := range r.Listeners {
		if scheme, _, err := client.ParseURL(l.URL); err == nil && scheme != "tls" {
			return l.URL
		}
	}
	return r.Listeners[0].URL
}

// names reports whether a client URL leads to one of the server's listeners.
func (r readyData) names(raw string) bool {
	network, address, err := client.ParseURL(raw)
	if err != nil {
		return false
	}
	for _, l := range r.Listeners {
		n, at, err := client.ParseURL(l.URL)
		if err == nil && n == network && (at == address || network != "unix" && covers(at, address)) {
			return true
		}
	}
	return false
}

// covers reports whether a listener on every address of a family has a loopback
// address.
func covers(listener, address string) bool {
	l, err := netip.ParseAddrPort(listener)
	if err != nil || !l.Addr().IsUnspecified() {
		return false
	}
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Port() == l.Port() && a.Addr().IsLoopback() && (a.Addr().Is4() || l.Addr().Is6())
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
