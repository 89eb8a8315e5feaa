package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"rejoin/journal"
)

const (
	keyFileBytesMax = 4 << 10
	keyDistinctMin  = 8 // values among 32 random bytes: fewer come once in 10^30 keys
)

// readKeyFile reads the key of an encrypted data directory. Nobody but its owner
// may be able to read the file, and the owner is this user or root.
func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, cause(err))
	}
	if err := privateFile(info); err != nil {
		return nil, fmt.Errorf("key file %s %w", path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, cause(err))
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, fmt.Errorf("key file %s %w", path, err)
	}
	return key, nil
}

func privateFile(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("is no regular file")
	case info.Size() > keyFileBytesMax:
		return fmt.Errorf("has %d bytes, a key file has at most %d", info.Size(), keyFileBytesMax)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("can be read by others (mode %04o): chmod it to 0600", info.Mode().Perm())
	case ok && int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("belongs to user %d, neither to this one nor to root", st.Uid)
	}
	return nil
}

var errNoKey = fmt.Errorf("holds no key: want at least %d random bytes, as they are, in hex or in base64, such as `openssl rand -hex 32` prints", journal.KeyBytesMin)

// parseKey takes hex, base64, or bytes as they are; the latter have some that text
// has not, so that a pass phrase is not taken for a key.
func parseKey(b []byte) ([]byte, error) {
	text := bytes.TrimSpace(b)
	key := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(key, text); err != nil {
		key, err = base64.StdEncoding.Strict().DecodeString(string(text))
		if err != nil {
			key = b
			if isText(b) {
				return nil, errNoKey
			}
		}
	}
	if len(key) < journal.KeyBytesMin {
		return nil, errNoKey
	}
	var seen [256]bool
	distinct := 0
	for _, v := range key {
		if !seen[v] {
			seen[v] = true
			distinct++
		}
	}
	if distinct < keyDistinctMin {
		return nil, errNoKey
	}
	return key, nil
}

func isText(b []byte) bool {
	for _, v := range b {
		if v != '\n' && v != '\r' && v != '\t' && (v < ' ' || v > '~') {
			return false
		}
	}
	return true
}
