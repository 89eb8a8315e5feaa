package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rejoin/protocol"
)

// clusterFile holds, below the data directory, the name of the cluster whose sessions
// have files there.
const clusterFile = "cluster"

// clear removes what a session has besides its log, once its run has left, if still
// says so. Meanwhile no run of it begins here.
func (w *Worker) clear(ctx context.Context, k protocol.Key, still func() (bool, error)) error {
	for {
		w.mu.Lock()
		s := w.sessions[k]
		if s == nil {
			w.clearing[k]++
			w.mu.Unlock()
			break
		}
		w.mu.Unlock()
		select {
		case <-s.done:
		case <-ctx.Done():
			e := protocol.Errorf(protocol.ReasonSessionUnavailable, "session %s has not left yet", k.Session)
			e.Retryable = true
			return e
		}
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.clearing[k]--; w.clearing[k] == 0 {
			delete(w.clearing, k)
		}
	}()
	if ok, err := still(); err != nil || !ok {
		return err
	}
	return RemoveFiles(w.cfg.DataDir, k)
}

func errClearing(session string) *protocol.Error {
	e := protocol.Errorf(protocol.ReasonSessionUnavailable, "files of an earlier session %s are being removed", session)
	e.Retryable = true
	return e
}

// removeForgotten removes what sessions left here that were deleted while this worker
// was away. It returns when that is done, or ctx ends.
func (w *Worker) removeForgotten(ctx context.Context) {
	if err := claimDir(w.cfg.DataDir, w.places.cluster); err != nil {
		w.log.Warn("files of sessions are left as they are", slog.Any(protocol.LogError, err))
		return
	}
	keys, err := keysWithFiles(w.cfg.DataDir)
	if err != nil {
		w.log.Warn("files of sessions are left as they are", slog.Any(protocol.LogError, err))
	}
	removed := 0
	for _, k := range keys {
		gone := false
		still := func() (bool, error) {
			deleted, err := w.reg.Deleted(ctx, k)
			gone = deleted && err == nil
			return gone, err
		}
		for err := w.clearUnused(ctx, k, still); err != nil; err = w.clearUnused(ctx, k, still) {
			if gone { // the registry has answered
				w.log.Warn("files of a deleted session not removed", slog.String(protocol.LogSession, k.String()), slog.Any(protocol.LogError, err))
				break
			}
			pause := time.NewTimer(watchAgain)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
		}
		if gone {
			removed++
		}
	}
	if removed > 0 {
		w.log.Info("files of deleted sessions removed", slog.Int("sessions", removed))
	}
}

// clearUnused is clear of a session that is not here.
func (w *Worker) clearUnused(ctx context.Context, k protocol.Key, still func() (bool, error)) error {
	if w.session(k) != nil {
		return nil
	}
	return w.clear(ctx, k, still)
}

// claimDir notes that the directory is that cluster's; an error when it is another's,
// of whose sessions this one knows nothing.
func claimDir(dataDir, cluster string) error {
	path := filepath.Join(dataDir, clusterFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(path+".new", []byte(cluster+"\n"), 0o600); err != nil {
			return fmt.Errorf("note the cluster: %w", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return fmt.Errorf("note the cluster: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	if was := strings.TrimSpace(string(b)); was != cluster {
		return fmt.Errorf("data directory has been a worker's of cluster %s, this is %s", was, cluster)
	}
	return nil
}

// keysWithFiles are the sessions that have files in the data directory.
func keysWithFiles(dataDir string) ([]protocol.Key, error) {
	found := make(map[protocol.Key]bool)
	var errs []error
	for _, top := range []string{stderrTop, sessionsDir} {
		workspaces, err := names(filepath.Join(dataDir, top))
		errs = append(errs, err)
		for _, ws := range workspaces {
			ids, err := names(filepath.Join(dataDir, top, ws))
			errs = append(errs, err)
			for _, id := range ids {
				if k := (protocol.Key{Workspace: ws, Session: id}); checkKey(k) == nil {
					found[k] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(found)), errors.Join(errs...)
}

// names lists a directory; one that is not there is empty.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list files of sessions: %w", err)
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
