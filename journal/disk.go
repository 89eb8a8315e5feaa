package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// probeBytes is what a write probe writes: more than fits into an inode.
const probeBytes = 64 << 10

// diskSpace is what the file system of dir has for processes like this one.
func diskSpace(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("journal: free space of %s: %w", dir, err)
	}
	return space{free: int64(st.Bavail) * st.Bsize, size: int64(st.Blocks) * st.Bsize}, nil
}

// checkSpace refuses a start on a disk that is too full for it.
func checkSpace(dir string) error {
	s, err := diskSpace(dir)
	if err != nil {
		return err
	}
	if s.free < s.startBelow() {
		return &SpaceError{Dir: dir, Free: s.free, Need: s.startBelow()}
	}
	return nil
}

// probe finds out whether a file can be written to the disk of dir.
func probe(dir string) (err error) {
	path := filepath.Join(dir, "probe")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: write probe: %w", err)
	}
	_, err = f.Write(make([]byte, probeBytes))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("journal: write probe: %w", err)
	}
	return nil
}
