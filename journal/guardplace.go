package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mount is what two files have in common between which a rename works.
type mount struct{ major, minor, id uint64 }

// mountOf follows a symbolic link.
func mountOf(path string) (mount, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st); err != nil {
		return mount{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	m := mount{major: uint64(st.Dev_major), minor: uint64(st.Dev_minor)}
	if st.Mask&unix.STATX_MNT_ID != 0 { // Linux 5.8
		m.id = st.Mnt_id
	}
	return m, nil
}

// checkPlaces refuses, before anything is changed, streams that could not be kept
// aside and put back in one step: those of another file system than the data
// directory, where a start that is killed could not be taken back, and those with
// symbolic links among their files, which a repair would take for no files.
func (g *guard) checkPlaces() error {
	home, err := mountOf(g.dir)
	if err != nil {
		return err
	}
	streams := streamsDir(g.dir)
	for _, dir := range []string{filepath.Dir(filepath.Dir(streams)), filepath.Dir(streams), streams} {
		if err := checkPlace(home, dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(streams)
	if err := ignoreMissing(err); err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(streams, e.Name())
		msgs := filepath.Join(dir, blocksDir)
		if err := errors.Join(checkLink(dir, e), checkPlace(home, dir), checkLinks(dir), checkPlace(home, msgs), checkLinks(msgs)); err != nil {
			return err
		}
	}
	return nil
}

// checkPlace: what is not there is nowhere else.
func checkPlace(home mount, dir string) error {
	switch at, err := mountOf(dir); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case err != nil:
		return err
	case at != home:
		return fmt.Errorf("%s is on another file system than the data directory, or is mounted on its own: a start that is killed could not put it back; "+
			"move its content into the data directory, or have the whole data directory on that file system", dir)
	}
	return nil
}

func checkLink(path string, e fs.DirEntry) error {
	if e.Type()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link: put there what it leads to", path)
	}
	return nil
}

// checkLinks looks at what is in a directory. One that cannot be read is the scan's
// to tell.
func checkLinks(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if err := checkLink(filepath.Join(dir, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}
