package soak_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

// clock moves the wall clock of the servers of this test, and of nothing else:
// their binary is built with another package time, whose Now adds the seconds that
// stand in a file that is mapped into memory. A monotonic clock is left as it is,
// as in a machine whose clock is set.
type clock struct{ path, why string }

const clockEnv = "REJOIN_SOAK_CLOCK"

// clockAfter is what time.Now becomes; clockSource is a further file of time.
const (
	clockBefore = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	clockAfter  = "sec, nsec, mono := runtimeNow()\n\tif soakClock != nil {\n\t\tsec += *soakClock\n\t}\n\tif mono == 0 {"
	clockSource = `package time

import (
	"syscall"
	"unsafe"
)

var soakClock = openSoakClock()

func openSoakClock() *int64 {
	path, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("soak clock: " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("soak clock: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}
`
)

// clockedBinary builds the server with a clock that can be moved.
func clockedBinary(t *testing.T, dir string) (bin string, c *clock) {
	t.Helper()
	c = &clock{path: filepath.Join(dir, "clock")}
	c.set(t, 0)
	if os.Getenv(harness.BinEnv) != "" {
		c.why = "the binary is given (" + harness.BinEnv + ")"
		return harness.Binary(t), c
	}
	if harness.RaceDetector {
		c.why = "under the race detector the server is the usual one"
		return harness.Binary(t), c
	}
	bin = filepath.Join(dir, "rejoin")
	if err := buildClocked(dir, bin); err != nil {
		t.Fatalf("build with a clock that can be moved: %v", err)
	}
	return bin, c
}

func buildClocked(dir, bin string) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	now, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		return err
	}
	moved := strings.Replace(string(now), clockBefore, clockAfter, 1)
	if moved == string(now) {
		return fmt.Errorf("time.Now of this Go does not read as expected: %s", src)
	}
	for name, text := range map[string]string{
		"time.go": moved, "soak.go": clockSource,
		"overlay.json": fmt.Sprintf(`{"Replace":{%q:%q,%q:%q}}`,
			filepath.Join(src, "time.go"), filepath.Join(dir, "time.go"), filepath.Join(src, "soakclock.go"), filepath.Join(dir, "soak.go")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, "./cmd/rejoin")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (c *clock) env() string { return clockEnv + "=" + c.path }

// set moves the clock by so much in all.
func (c *clock) set(t *testing.T, by time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(by/time.Second)))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func needsClock(s *soak) string { return s.clock.why }

// jumpClock: the wall clock goes back by an hour, forward by two, and home; events
// and commands go on at each place, and their times show that it was so.
func (s *soak) jumpClock() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	for _, by := range []time.Duration{-time.Hour, 2 * time.Hour, 0} {
		s.clock.set(s.t, by)
		s.flowing(c, s.flows(c), "after the clock moved to "+by.String())
		pong := harness.Do[struct {
			TS int64 `json:"ts"`
		}](s.t, c, "ping", nil)
		if off := time.UnixMilli(pong.TS).Sub(time.Now().Add(by)).Abs(); off > 10*time.Minute {
			s.t.Fatalf("the server's clock is %v away from where it was set", off)
		}
	}
}
