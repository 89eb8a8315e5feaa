package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rejoin/protocol"
)

// sessionsDir holds the private directories of sessions, <workspace>/<session>
// each. They are made at a run's start, kept over resume and removed with their
// session.
const sessionsDir = "sessions"

// checkKey refuses names that would leave the directory they are put into. Ids of
// the registry are valid: this is the last door.
func checkKey(k protocol.Key) error {
	if !protocol.ValidSessionID(k.Session) || !protocol.ValidSessionID(k.Workspace) {
		return fmt.Errorf("worker: %q names no session", k.String())
	}
	return nil
}

// makePrivate makes the directories of its own that a session has, and returns
// the variables that name them. Nothing is made, or closed to others, outside
// dataDir, whatever links a child has put in the way: os.Root follows none of
// those.
func makePrivate(dataDir string, rec *protocol.SessionRecord) ([]string, error) {
	if rec.Home != protocol.DirPrivate && rec.Tmp != protocol.DirPrivate {
		return nil, nil
	}
	k := rec.Key()
	if err := checkKey(k); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("name the data directory: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for its name only
	dir := filepath.Join(sessionsDir, k.Workspace, k.Session)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	var env []string
	for _, d := range []struct {
		name, wanted string
		variables    []string
	}{{"home", rec.Home, []string{"HOME"}}, {"tmp", rec.Tmp, []string{"TMPDIR", "TMP", "TEMP"}}} {
		if d.wanted != protocol.DirPrivate {
			continue
		}
		path := filepath.Join(dir, d.name)
		if err := makeOwn(root, path); err != nil {
			return nil, err
		}
		for _, v := range d.variables {
			env = append(env, v+"="+filepath.Join(abs, path))
		}
	}
	return env, nil
}

// makeOwn makes a directory that is closed to others. A link in its place is
// refused: it may lead to another session's.
func makeOwn(root *os.Root, path string) error {
	if err := root.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	st, err := root.Lstat(path)
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if !st.IsDir() {
		return fmt.Errorf("make %s: something else has that name", path)
	}
	if st.Mode().Perm() == 0o700 {
		return nil
	}
	if err := root.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close %s to others: %w", path, err)
	}
	return nil
}

// RemoveFiles forgets what a session has besides its log: the tails of its stderr
// and its private directories. For delete_session; again: nil.
func RemoveFiles(dataDir string, k protocol.Key) error {
	if err := checkKey(k); err != nil {
		return err
	}
	root, err := os.OpenRoot(dataDir)
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}
	defer func() { _ = root.Close() }() // opened for its name only
	return errors.Join(
		removeTree(root, filepath.Join(stderrTop, k.Workspace, k.Session)),
		removeTree(root, filepath.Join(sessionsDir, k.Workspace, k.Session)),
	)
}

// removeTree removes a directory that a child filled: it may have closed parts of
// it to itself, as Go's module cache is.
func removeTree(root *os.Root, path string) error {
	err := root.RemoveAll(path)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	// Errors of the walk are those of the removal after it.
	_ = fs.WalkDir(root.FS(), filepath.ToSlash(path), func(name string, d fs.DirEntry, _ error) error {
		if d == nil || !d.IsDir() {
			return nil
		}
		if st, err := d.Info(); err == nil && st.Mode().Perm()&0o700 == 0o700 {
			return nil
		}
		return root.Chmod(filepath.FromSlash(name), 0o700)
	})
	if err := root.RemoveAll(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
