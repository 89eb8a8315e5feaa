package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folders of the data directory that a start works with. guardDir holds the
// streams as they are before the server opens them: it exists from then on until
// what the server made of them is verified, so a start that finds one knows that
// nothing was accepted since it was made. The others mean nothing.
const (
	guardDir    = "guard"
	guardNewDir = "guard.new"
	guardOldDir = "guard.old"
)

// copyFile copies a file durably. Go's io.Copy shares the blocks where the file
// system can.
func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// protect makes a copy of a stream's directory at to. Blocks that the server
// will not write to are linked, because it replaces those as a whole; the newest
// one and everything that is no block is copied. Where links fail, and where all
// is set, blocks are copied too; where there is no space the newest block is
// linked: that much still survives the removal of the directory.
func (g *guard) protect(to, from, newest string, all bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(dst, 0o700)
		case !d.Type().IsRegular():
			return nil
		case !all && filepath.Ext(path) == blockExt && path != newest:
			if err := g.link(path, dst); err == nil {
				return nil
			}
			return g.copy(dst, path)
		}
		err = g.copy(dst, path)
		if errors.Is(err, unix.ENOSPC) {
			return errors.Join(ignoreMissing(os.Remove(dst)), g.link(path, dst))
		}
		return err
	})
}

func (g *guard) link(from, to string) error {
	if err := g.fault("link"); err != nil {
		return err
	}
	return os.Link(from, to)
}

func (g *guard) copy(to, from string) error {
	if err := g.fault("copy"); err != nil {
		return err
	}
	return copyFile(to, from)
}

// protectAll keeps all streams in guardDir. It is all there or not at all.
func (g *guard) protectAll() error {
	tmp := filepath.Join(g.dir, guardNewDir)
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return fmt.Errorf("make guard copies: %w", err)
	}
	for _, s := range g.scans {
		if err := g.protect(filepath.Join(tmp, s.name), s.dir, s.newest(), s.sealed); err != nil {
			return fmt.Errorf("make guard copy of stream %s: %w", s.name, err)
		}
	}
	if err := g.fault("protected"); err != nil {
		return err
	}
	if err := syncFS(g.dir); err != nil {
		return fmt.Errorf("sync guard copies: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(g.dir, guardDir)); err != nil {
		return fmt.Errorf("place guard copies: %w", err)
	}
	return errors.Join(syncDir(g.dir), g.fault("guarded"))
}

// newest returns the path of the block that the server appends to; "" without
// one.
func (s *streamScan) newest() string {
	if len(s.blocks) == 0 {
		return ""
	}
	return s.blockFile(s.blocks[len(s.blocks)-1].index)
}

// clear removes what an earlier start left of its work.
func (g *guard) clear() error {
	return errors.Join(os.RemoveAll(filepath.Join(g.dir, guardNewDir)), os.RemoveAll(filepath.Join(g.dir, guardOldDir)))
}

// takeBack puts every stream that an earlier start kept in guardDir back in its
// place: that start did not come to verify what the server made of it, and
// nothing was accepted since. Each step leaves a directory that the next start
// goes on from.
func (g *guard) takeBack() error {
	kept := filepath.Join(g.dir, guardDir)
	entries, err := os.ReadDir(kept)
	if err != nil {
		return ignoreMissing(err)
	}
	old := filepath.Join(g.dir, guardOldDir)
	if err := os.MkdirAll(old, 0o700); err != nil {
		return fmt.Errorf("take guard copies back: %w", err)
	}
	for _, e := range entries {
		place := filepath.Join(streamsDir(g.dir), e.Name())
		if present(place) {
			if err := os.Rename(place, filepath.Join(old, e.Name())); err != nil {
				return fmt.Errorf("take guard copies back: %w", err)
			}
		}
		if err := g.fault("aside"); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(kept, e.Name()), place); err != nil {
			return fmt.Errorf("take guard copies back: %w", err)
		}
		if err := errors.Join(syncDir(streamsDir(g.dir)), syncDir(kept), g.fault("back")); err != nil {
			return err
		}
	}
	return os.Remove(kept)
}

// putBack replaces what the server made of a stream by its guard copy, which
// stays. What it made goes into quarantine. The index goes too: the server then
// believes the blocks alone.
func (g *guard) putBack(s *streamScan) error {
	kept := filepath.Join(g.dir, guardDir, s.name)
	tmp := filepath.Join(g.dir, guardNewDir, s.name)
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	newest := filepath.Join(kept, blocksDir, filepath.Base(s.newest()))
	if err := g.protect(tmp, kept, newest, s.sealed); err != nil {
		return fmt.Errorf("put stream %s back: %w", s.name, err)
	}
	if err := ignoreMissing(os.Remove(filepath.Join(tmp, blocksDir, indexFile))); err != nil {
		return fmt.Errorf("put stream %s back: %w", s.name, err)
	}
	if err := errors.Join(syncFS(g.dir), g.fault("copied")); err != nil {
		return err
	}
	if present(s.dir) {
		if err := g.q.move(s.name+".opened", s.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o700); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.dir); err != nil {
		return fmt.Errorf("put stream %s back: %w", s.name, err)
	}
	return errors.Join(syncDir(filepath.Dir(s.dir)), g.fault("put"))
}

// release gives up the guard copies: what the server made of the streams is
// verified, and from here on events are accepted.
func (g *guard) release() error {
	kept := filepath.Join(g.dir, guardDir)
	if !present(kept) {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(g.dir, guardOldDir)); err != nil {
		return fmt.Errorf("release guard copies: %w", err)
	}
	if err := errors.Join(g.fault("verified"), os.Rename(kept, filepath.Join(g.dir, guardOldDir)), syncDir(g.dir)); err != nil {
		return fmt.Errorf("release guard copies: %w", err)
	}
	return errors.Join(g.fault("released"), g.clear())
}
