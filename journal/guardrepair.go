package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// repair is what the guard does to one stream, planned before it is begun.
type repair struct {
	s       *streamScan
	rewrite []uint32 // blocks that get new content, the newest last
	move    []string // paths that leave the store
	tombs   []uint64 // deletions that only the index knows
	reserve uint64   // the highest seq that must not be given out again; 0: no record need say so
}

// unreadableSeqs is how many seqs a newest block of unknown size may hold.
const unreadableSeqs = 1 << 20

// plan decides what to do to a stream; nil: nothing. What is found goes into q.
func (q *quarantine) plan(s *streamScan) *repair {
	if s.sealed || s.sound() {
		return nil
	}
	p := &repair{s: s}
	for _, name := range s.stray {
		p.move = append(p.move, filepath.Join(s.dir, blocksDir, name))
		q.note(StreamDamage{Stream: s.name, File: name, What: "its name is not one of a block", Action: "moved to quarantine"})
	}
	last, _ := s.last()
	reserve := last
	var after uint64 // the last seq before the part that is looked at
	for i := range s.blocks {
		b := &s.blocks[i]
		newest := i == len(s.blocks)-1
		if b.err != nil {
			d := StreamDamage{Stream: s.name, File: blockName(b.index), What: "not readable: " + b.err.Error(), Action: "moved to quarantine"}
			d.FirstLost, d.LastLost = after+1, s.firstFrom(i+1)
			if d.LastLost == 0 { // nothing follows
				reserve = max(reserve, last+s.mayHold(b.index))
				d.LastLost, d.AtEnd = reserve+1, true
			}
			d.LastLost--
			p.move = append(p.move, s.blockFile(b.index))
			q.note(d)
			continue
		}
		for _, h := range b.holes {
			d := StreamDamage{Stream: s.name, File: blockName(b.index), What: h.why, From: h.from, To: h.to}
			if h.restored {
				d.Action = "restored: only its lengths were damaged"
			} else {
				d.Action = "left out"
				d.FirstLost, d.LastLost = max(after, h.after)+1, h.before
				if d.LastLost == 0 {
					d.LastLost = s.firstFrom(i + 1)
				}
				if d.LastLost == 0 {
					reserve = max(reserve, last+max(1, uint64(h.to-h.from)/blockRecordMin))
					d.LastLost, d.AtEnd = reserve+1, true
				}
				if d.LastLost--; d.LastLost < d.FirstLost { // deletions, or nothing
					d.FirstLost, d.LastLost = 0, 0
				}
			}
			q.note(d)
		}
		if len(b.holes) > 0 && !newest {
			p.rewrite = append(p.rewrite, b.index)
		}
		after = max(after, b.last)
	}
	// The index goes: what only it knows must be in a block.
	if reserve = max(reserve, s.index.last); reserve > last {
		p.reserve = reserve
	}
	p.tombs = s.forgotten()
	n := len(s.blocks)
	if n > 0 && s.blocks[n-1].err == nil && (len(s.blocks[n-1].holes) > 0 || p.reserve > 0 || len(p.tombs) > 0) {
		p.rewrite = append(p.rewrite, s.blocks[n-1].index)
	}
	return p
}

// firstFrom returns the first seq of the blocks from i on; 0: there is none.
func (s *streamScan) firstFrom(i int) uint64 {
	for ; i < len(s.blocks); i++ {
		if b := &s.blocks[i]; len(b.live) > 0 {
			return b.live[0].first
		}
	}
	return 0
}

// mayHold bounds how many seqs the file of a block that cannot be read used.
func (s *streamScan) mayHold(index uint32) uint64 {
	fi, err := os.Lstat(s.blockFile(index))
	if err != nil || !fi.Mode().IsRegular() || fi.Size() == 0 {
		return unreadableSeqs
	}
	return uint64(fi.Size())/blockRecordMin + 1
}

// forgotten returns the messages that the index knows to be deleted while no
// tombstone is left that says so. In streams that keep one message of a subject
// an older one that comes back is better than none: there, none are.
func (s *streamScan) forgotten() []uint64 {
	if !strings.HasPrefix(s.name, "J") {
		return nil
	}
	var out []uint64
	for i := range s.blocks {
		for _, p := range s.blocks[i].live {
			for seq := p.first; seq <= p.last; seq++ {
				if _, ok := s.tombs[seq]; !ok && s.index.deleted(s.blocks[i].index, seq) {
					out = append(out, seq)
				}
			}
		}
	}
	return out
}

// keep copies what is about to change into quarantine.
func (p *repair) keep(q *quarantine) error {
	for _, index := range p.rewrite {
		if err := q.keep(p.s.name, p.s.blockFile(index)); err != nil {
			return err
		}
	}
	if x := p.indexPath(); present(x) {
		return q.keep(p.s.name, x)
	}
	return nil
}

func (p *repair) indexPath() string { return filepath.Join(p.s.dir, blocksDir, indexFile) }

// run carries out the plan. Cut short anywhere, what is left is a store that the
// next start repairs the rest of: first no seq can be given out twice, then the
// index goes, then the blocks are replaced.
func (p *repair) run(g *guard) error {
	s := p.s
	n := len(s.blocks)
	rewrite := p.rewrite
	switch {
	case n > 0 && s.blocks[n-1].err != nil:
		if err := p.extend(g, s.blocks[n-1].index+1); err != nil {
			return err
		}
	case len(rewrite) > 0 && rewrite[len(rewrite)-1] == s.blocks[n-1].index:
		if err := p.replace(g, s.blocks[n-1].index); err != nil {
			return err
		}
		rewrite = rewrite[:len(rewrite)-1]
	}
	if err := ignoreMissing(os.Remove(p.indexPath())); err != nil {
		return fmt.Errorf("remove index of stream %s: %w", s.name, err)
	}
	if err := errors.Join(syncDir(filepath.Join(s.dir, blocksDir)), g.fault("unindexed")); err != nil {
		return err
	}
	for _, index := range rewrite {
		if err := p.replace(g, index); err != nil {
			return err
		}
	}
	for _, path := range p.move {
		if err := g.q.move(s.name, path); err != nil {
			return err
		}
	}
	return nil
}

// replace gives a block its good records and nothing else; the newest one also
// what keeps its place.
func (p *repair) replace(g *guard, index uint32) error {
	path := p.s.blockFile(index)
	buf, err := readBlock(path, nil)
	if err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	newest := index == p.s.blocks[len(p.s.blocks)-1].index
	r := newBlockReader(p.s.name)
	r.open(index)
	out := make([]byte, 0, len(buf))
	r.scan(buf, newest, func(rec blockRecord) { out = append(out, rec.raw...) })
	if newest {
		out = p.ending(r, out)
	}
	if len(out) == 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		return errors.Join(syncDir(filepath.Dir(path)), g.fault("replaced"))
	}
	return g.write(path, out)
}

// extend makes a block behind an unreadable newest one.
func (p *repair) extend(g *guard, index uint32) error {
	r := newBlockReader(p.s.name)
	r.open(index)
	return g.write(p.s.blockFile(index), p.ending(r, nil))
}

// ending appends what the newest block must say besides its records.
func (p *repair) ending(r *blockReader, out []byte) []byte {
	_, ts := p.s.last()
	for _, seq := range p.tombs {
		out = r.tombstone(out, seq, ts)
	}
	if p.reserve > 0 {
		out = r.placeholder(out, p.reserve, max(ts, p.s.index.lastTS))
	}
	return out
}

// write replaces a block.
func (g *guard) write(path string, data []byte) error {
	dir := filepath.Join(g.dir, guardNewDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(dir, "block")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), g.fault("written")); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	return errors.Join(syncDir(filepath.Dir(path)), g.fault("replaced"))
}
