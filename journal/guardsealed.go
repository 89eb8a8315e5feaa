package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// sealedCuts finds what the server cut off blocks of encrypted streams while it
// opened them. They are not looked into before: their sizes tell that records
// behind one that does not verify are gone, but not whose they were. Any session of
// that shard may have lost its end.
func (g *guard) sealedCuts() error {
	found := false
	for _, s := range g.scans {
		if !g.sealed || !s.sealed {
			continue
		}
		for i := range s.blocks {
			b := &s.blocks[i]
			fi, err := os.Stat(s.blockFile(b.index))
			if errors.Is(err, os.ErrNotExist) || err == nil && fi.Size() >= b.size {
				continue // the server removes blocks that hold nothing any more
			}
			if err != nil {
				return fmt.Errorf("look at what became of stream %s: %w", s.name, err)
			}
			found = true
			d := StreamDamage{
				Stream: s.name, File: blockName(b.index), What: "encrypted, and cut off by the engine behind its last record that verifies",
				From: int(fi.Size()), To: int(b.size), Action: "kept as it was", AtEnd: strings.HasPrefix(s.name, "J"),
			}
			kept := filepath.Join(g.dir, guardDir, s.name, blocksDir, blockName(b.index))
			if !present(kept) {
				d.Action = "none: there was no space for a copy"
			} else if err := g.q.keep(s.name, kept); err != nil {
				return err
			}
			g.q.note(d)
			g.log.Warn("journal damaged", slog.String("stream", d.Stream), slog.String("file", d.File), slog.String("what", d.What),
				slog.Int("from", d.From), slog.Int("to", d.To), slog.String("action", d.Action), slog.String("quarantine", g.q.damage.Folder))
		}
	}
	if !found {
		return nil
	}
	return g.q.write()
}
