package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"rejoin/protocol"
)

// A token file is YAML of one shape only: a list whose entries are one line each,
//
//   - {"id":"…","name":"…","role":"…","workspace":"…","expires":"…","createdAt":"…","hash":"sha256:…"}
//
// with comments and blank lines between. So a line can be found, added and removed
// by itself, an error has a line number, and there is no second way to write a thing.

// A TokenFileError says in which line of a token file what is wrong.
type TokenFileError struct {
	Path string
	Line int
	Err  error
}

// Error names file and line.
func (e *TokenFileError) Error() string { return fmt.Sprintf("%s: line %d: %v", e.Path, e.Line, e.Err) }

// Unwrap returns the cause.
func (e *TokenFileError) Unwrap() error { return e.Err }

// ErrNoToken is returned by RevokeToken for a name or id that the file does not have.
var ErrNoToken = errors.New("no such token")

// parseTokens reads the lines of a token file. An error is a *TokenFileError
// without its path. Names and ids are unique, also over each other, so that
// either names one token.
func parseTokens(b []byte) ([]Token, *TokenFileError) {
	var all []Token
	seen := make(map[string]int)
	at := 0
	for line := range bytes.Lines(b) {
		at++
		entry, ok := entryOf(line)
		if !ok {
			continue
		}
		t, err := decodeToken(entry)
		if err == nil {
			err = unique(seen, at, t.Name, t.ID, string(t.hash[:]))
		}
		if err == nil && len(all) == protocol.TokensMax {
			err = fmt.Errorf("more than %d tokens", protocol.TokensMax)
		}
		if err != nil {
			return nil, &TokenFileError{Line: at, Err: err}
		}
		all = append(all, t)
	}
	return all, nil
}

// entryOf returns the object of a line; not ok for a blank line and a comment.
func entryOf(line []byte) ([]byte, bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' {
		return nil, false
	}
	if rest, ok := bytes.CutPrefix(line, []byte("- ")); ok {
		line = rest
	}
	return line, true
}

func unique(seen map[string]int, at int, name, id, hash string) error {
	for _, k := range []struct{ what, value string }{{"name " + name, name}, {"id " + id, id}, {"hash", hash}} {
		if before, ok := seen[k.value]; ok && before != at {
			return fmt.Errorf("%s is used by line %d already", k.what, before)
		}
		seen[k.value] = at
	}
	return nil
}

// readTokenBytes reads a token file and says how it was found; others than its
// owner must not be able to read it.
func readTokenBytes(path string) ([]byte, fileMark, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not hold the server up
	if err != nil {
		return nil, fileMark{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	st, err := f.Stat()
	if err != nil {
		return nil, fileMark{}, err
	}
	mark := markOf(st)
	switch {
	case !st.Mode().IsRegular():
		return nil, mark, fmt.Errorf("%s is no file", path)
	case st.Mode().Perm()&0o077 != 0:
		return nil, mark, fmt.Errorf("%s may be used by others than its owner (mode %04o): chmod 600 it", path, st.Mode().Perm())
	case st.Size() > protocol.TokenFileBytesMax:
		return nil, mark, fmt.Errorf("%s is larger than %d bytes", path, protocol.TokenFileBytesMax)
	}
	b, err := io.ReadAll(io.LimitReader(f, protocol.TokenFileBytesMax))
	return b, mark, err
}

// fileMark tells whether a file is the one that was read. The zero value is that
// of no file.
type fileMark struct {
	dev, inode   uint64
	size         int64
	mtime, ctime int64 // ns since 1970
}

func markOf(st fs.FileInfo) fileMark {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fileMark{size: st.Size(), mtime: st.ModTime().UnixNano()}
	}
	return fileMark{dev: sys.Dev, inode: sys.Ino, size: sys.Size, mtime: sys.Mtim.Nano(), ctime: sys.Ctim.Nano()}
}

// ListTokens reads a token file; a file that does not exist has none.
func ListTokens(path string) ([]Token, error) {
	b, _, err := readTokenBytes(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, bad := parseTokens(b)
	if bad != nil {
		bad.Path = path
		return nil, bad
	}
	return all, nil
}

// AddToken adds t to a token file, which is made if it does not exist.
func AddToken(path string, t Token) error {
	return editTokens(path, func(b []byte, all []Token) ([]byte, error) {
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("there is a token %s already; revoke it first, or choose another name", t.Name)
		}
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(b, '\n')
		}
		return t.appendLine(b), nil
	})
}

// RevokeToken removes the token of that name or id and returns it; ErrNoToken
// when there is none.
func RevokeToken(path, nameOrID string) (gone Token, err error) {
	err = editTokens(path, func(b []byte, all []Token) ([]byte, error) {
		i := slices.IndexFunc(all, func(t Token) bool { return t.Name == nameOrID || t.ID == nameOrID })
		if i < 0 {
			return nil, ErrNoToken
		}
		gone = all[i]
		var out []byte
		for line := range bytes.Lines(b) {
			if entry, ok := entryOf(line); ok {
				if t, err := decodeToken(entry); err == nil && t.ID == gone.ID {
					continue
				}
			}
			out = append(out, line...)
		}
		return out, nil
	})
	return gone, err
}

// editTokens replaces the content of a token file by what edit makes of it, one
// editor at a time; readers see the old file or the new one.
func editTokens(path string, edit func(b []byte, all []Token) ([]byte, error)) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		real, err = path, nil
	}
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(real), "."+filepath.Base(real)+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // it holds nothing but the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	b, _, err := readTokenBytes(real)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, bad := parseTokens(b)
	if bad != nil {
		bad.Path = path
		return bad
	}
	if b, err = edit(b, all); err != nil {
		return err
	}
	if _, bad := parseTokens(b); bad != nil { // an id or a hash twice: the random source is broken
		bad.Path = path
		return bad
	}
	return replaceFile(real, b)
}

// replaceFile writes path so that a crash at any moment leaves the old or the new
// content; only its owner may read it.
func replaceFile(path string, b []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
