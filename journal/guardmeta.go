package journal

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// metaDir, in the data directory, keeps a copy of the files that describe each
// stream, as of the last start that was verified.
const metaDir = "meta"

var metaFiles = []string{metaFile, metaSum, metaKey}

// metaSound reports whether the files that describe a stream are whole. Without
// them the server does not load it.
func metaSound(dir, stream string) bool {
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil || len(meta) == 0 {
		return false
	}
	sum, err := os.ReadFile(filepath.Join(dir, metaSum))
	if err != nil {
		return false
	}
	h := newDigest(stream)
	_, _ = h.Write(meta) // a hash never fails
	if hex.EncodeToString(h.Sum(nil)) != string(sum) {
		return false
	}
	if present(filepath.Join(dir, metaKey)) {
		return true // encrypted: only the server can tell more
	}
	var c struct{ Name string }
	return json.Unmarshal(meta, &c) == nil && c.Name == stream
}

// mendMeta puts the description of a stream back from the copy. Without a copy
// it is removed, and the stream is made anew around its blocks; encrypted
// streams are left alone then, because only their key file opens their blocks.
func (g *guard) mendMeta(stream string) error {
	dir, kept := filepath.Join(streamsDir(g.dir), stream), filepath.Join(g.dir, metaDir, stream)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() || metaSound(dir, stream) {
		return nil // a missing stream is another matter
	}
	copied := metaSound(kept, stream)
	sealed := g.sealed || present(filepath.Join(dir, metaKey)) || present(filepath.Join(kept, metaKey))
	d := StreamDamage{Stream: stream, File: metaFile, What: "does not verify", Action: "made anew"}
	switch {
	case copied && present(filepath.Join(kept, metaKey)) == sealed:
		d.Action = "put back from its copy"
	case sealed:
		d.Action = "none: encrypted, and no copy is left"
		g.q.note(d)
		return nil
	default:
		copied = false
	}
	g.q.note(d)
	if err := g.q.write(); err != nil {
		return err
	}
	for _, name := range metaFiles {
		if path := filepath.Join(dir, name); present(path) {
			if err := g.q.move(stream, path); err != nil {
				return err
			}
		}
	}
	if !copied {
		g.remake = append(g.remake, stream)
		return nil
	}
	for i := len(metaFiles) - 1; i >= 0; i-- { // meta.inf last: without it the next start mends again
		data, err := os.ReadFile(filepath.Join(kept, metaFiles[i]))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writeFile(filepath.Join(dir, metaFiles[i]), data)
		}
		if err != nil {
			return fmt.Errorf("put %s of stream %s back: %w", metaFiles[i], stream, err)
		}
	}
	return g.fault("mended")
}

// keepMeta renews the copy of a stream's description.
func (g *guard) keepMeta(stream string) error {
	dir, kept := filepath.Join(streamsDir(g.dir), stream), filepath.Join(g.dir, metaDir, stream)
	if !metaSound(dir, stream) {
		return nil
	}
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	for _, name := range metaFiles {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if have, err := os.ReadFile(filepath.Join(kept, name)); err == nil && string(have) == string(data) {
			continue
		}
		if err := writeFile(filepath.Join(kept, name), data); err != nil {
			return err
		}
	}
	return nil
}
