package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tokenBytes is the size of a token that is made here: 128 bits.
const tokenBytes = 16

func tokenFile(dataDir string) string { return filepath.Join(dataDir, "token") }

// tokensFile is where a data directory keeps the tokens of others, unless its
// server was told another file.
func tokensFile(dataDir string) string { return filepath.Join(dataDir, "tokens.yaml") }

// readToken reads a token from a file; surrounding white space does not count.
func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token file %s: %w", path, cause(err))
	}
	t := strings.TrimSpace(string(b))
	if t == "" {
		return "", fmt.Errorf("token file %s is empty", path)
	}
	return t, nil
}

// ensureToken returns the token of a data directory and makes it the first time.
// The caller holds the directory's lock.
func ensureToken(dataDir string) (string, error) {
	path := tokenFile(dataDir)
	t, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	var b [tokenBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	t = hex.EncodeToString(b[:])
	return t, writeFile(path, []byte(t+"\n"))
}
