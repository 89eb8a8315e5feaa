package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// BinEnv names a binary to test instead of building one.
const BinEnv = "REJOIN_BIN"

// built are the binaries made in this process, the second one always without the
// race detector.
var built, plain binary

type binary struct {
	once sync.Once
	path string
	err  error
}

// unshared is the directory of a binary that other test processes do not share;
// removeBuilt removes it.
var unshared string

// Binary returns the path of the rejoin binary, built at the first call in this
// process (with the race detector if this test has it) unless BinEnv names one.
func Binary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(BinEnv); path != "" {
		return path
	}
	return built.get(tb, RaceDetector)
}

// PlainBinary is Binary without the race detector, for what is measured: the
// detector needs memory and time of its own.
func PlainBinary(tb testing.TB) string {
	tb.Helper()
	if !RaceDetector {
		return Binary(tb)
	}
	return plain.get(tb, false)
}

func (b *binary) get(tb testing.TB, race bool) string {
	tb.Helper()
	return b.made(tb, func() (string, error) { return buildPackage(race, "rejoin", "./cmd/rejoin") })
}

// made returns the path of what build makes at the first call.
func (b *binary) made(tb testing.TB, build func() (string, error)) string {
	tb.Helper()
	b.once.Do(func() { b.path, b.err = build() })
	if b.err != nil {
		tb.Fatalf("build: %v", b.err)
	}
	return b.path
}

// Root returns the module's directory: the nearest one upwards with a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}

// buildPackage links a command into a directory of the module that every test
// process of this user shares, one at a time: the go command skips the link when
// nothing changed.
func buildPackage(race bool, name, pkg string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := buildDir(root)
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // it holds nothing but the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	path := filepath.Join(dir, name)
	args := []string{"build", "-o", path}
	if race {
		path += "-race"
		args = []string{"build", "-race", "-o", path}
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

func buildDir(root string) (string, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(cache, "rejoin-test", fmt.Sprintf("%x", fnv(root)))
		if err := os.MkdirAll(dir, 0o700); err == nil {
			return dir, nil
		}
	}
	if unshared != "" {
		return unshared, nil
	}
	dir, err := os.MkdirTemp("", "rejoin-test-")
	unshared = dir
	return dir, err
}

func removeBuilt() {
	if unshared != "" {
		_ = os.RemoveAll(unshared) // a temporary directory that stays harms nothing
	}
}

// fnv is FNV-1a, 64 bits.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
