package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MarkedBy returns the living processes that carry KEY in the environment they
// were started with, with that value or one that ends in /value.
func MarkedBy(key, value string) []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !hasEntry(env, key+"=", value) || !Living(pid) {
			continue // gone, or not ours
		}
		pids = append(pids, pid)
	}
	return pids
}

func hasEntry(environ []byte, name, value string) bool {
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if got, ok := strings.CutPrefix(entry, name); ok && (got == value || strings.HasSuffix(got, "/"+value)) {
			return true
		}
	}
	return false
}

// Marked returns the living processes that a server of that data directory
// started and that are still there: they carry its instance.
func Marked(dataDir string) []int {
	id, err := os.ReadFile(filepath.Join(dataDir, "instance"))
	if err != nil || len(bytes.TrimSpace(id)) == 0 {
		return nil
	}
	return MarkedBy("REJOIN_INSTANCE", string(bytes.TrimSpace(id)))
}

// Living reports whether the process exists and is no zombie.
func Living(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
	return ok && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// RSS returns the resident set of a process in bytes.
func RSS(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("statm of %d: %q", pid, b)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
