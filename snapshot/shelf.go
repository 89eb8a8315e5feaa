package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"rejoin/journal"
	"rejoin/protocol"
)

// shelf is the checkpoints of one log as its owner knows them. It belongs to one
// goroutine at a time.
type shelf struct {
	st        *Store
	log       journal.Log
	folds     Folds
	retention Retention

	opened bool
	kept   []header              // verified, of this program's fold, rising
	others []protocol.Seq        // of other folds, or damaged; rising
	own    map[protocol.Seq]bool // of kept: written and read back by this process
	pages  map[int]pageState     // of the ledger
	doubt  bool                  // something that was stored cannot be read
	since  int                   // checkpoints that were taken since there is doubt
	floor  protocol.Seq
	shown  atomic.Uint64 // floor, for Keeper.Floor
	below  atomic.Uint64 // bytes of the events before floor, as far as known
}

// pageState is what a shelf knows of a stored page of the ledger.
type pageState uint8

const (
	pageRead    pageState = iota // it was verified
	pageOwn                      // it was written and read back by this process
	pageDamaged                  // it cannot be read, and has not been written since
)

// freshTaken is how many checkpoints must have been taken, stored and read back
// after something stored was found damaged, until the log is trimmed again.
const freshTaken = 2

// open reads what is stored, and verifies it by that: checkpoints, and the pages
// of the ledger that they need.
func (s *shelf) open(ctx context.Context) error {
	if s.opened {
		return nil
	}
	v := s.st.vault
	floor, err := v.node.Floor(ctx, s.log)
	if err != nil {
		return fmt.Errorf("read the floor: %w", err)
	}
	seqs, err := v.list(ctx, s.log)
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	s.kept, s.others, s.doubt, s.since = nil, nil, false, 0
	s.own, s.pages = make(map[protocol.Seq]bool), make(map[int]pageState)
	for _, seq := range seqs {
		c, err := v.get(ctx, s.log, seq)
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, journal.ErrNoBlob): // only its owner removes one
			v.report(s.log, seq, err)
			s.others, s.doubt = append(s.others, seq), true
			continue
		case err != nil:
			return fmt.Errorf("read checkpoint %d: %w", seq, err)
		}
		if err := s.openPages(ctx, c.pages); err != nil {
			return err
		}
		if c.fold != s.folds.VersionOf(c.fold.Adapter) {
			s.others = append(s.others, seq)
		} else {
			s.kept = append(s.kept, c.header)
		}
	}
	s.setFloor(floor)
	s.opened = true
	return nil
}

// openPages verifies the first n pages of the ledger.
func (s *shelf) openPages(ctx context.Context, n int) error {
	for i := range n {
		if _, known := s.pages[i]; known {
			continue
		}
		_, err := s.st.vault.page(ctx, s.log, i)
		switch {
		case errors.Is(err, ErrDamaged):
			s.st.log.Error("a page of a session's ledger is damaged", slog.String(protocol.LogSession, s.log.Key.String()), slog.Any(protocol.LogError, err))
			s.pages[i], s.doubt = pageDamaged, true
		case err != nil:
			return err
		default:
			s.pages[i] = pageRead
		}
	}
	return nil
}

// damagedPages returns the pages that are to be stored again.
func (s *shelf) damagedPages() []int {
	var list []int
	for n, is := range s.pages {
		if is == pageDamaged {
			list = append(list, n)
		}
	}
	return list
}

func (s *shelf) setFloor(floor protocol.Seq) {
	s.floor = floor
	s.shown.Store(uint64(floor))
	for i := range s.kept {
		if s.kept[i].seq < floor {
			s.below.Store(s.kept[i].bytes)
		}
	}
}

// add puts a checkpoint on the shelf that was taken, stored and verified, with
// the pages that were stored with it. Those at or above it are of a history that
// was lost.
func (s *shelf) add(d *draft) {
	for len(s.kept) > 0 && s.kept[len(s.kept)-1].seq >= d.seq {
		s.drop(len(s.kept) - 1)
	}
	for n := range d.ledger.changed {
		s.pages[n] = pageOwn
	}
	s.insert(d.header)
	s.since++
}

// insert puts a checkpoint that this process has written where it belongs.
func (s *shelf) insert(h header) {
	i, found := slices.BinarySearchFunc(s.kept, h.seq, func(k header, seq protocol.Seq) int { return cmp.Compare(k.seq, seq) })
	if found {
		s.kept[i] = h
	} else {
		s.kept = slices.Insert(s.kept, i, h)
	}
	s.own[h.seq] = true
	s.others = slices.DeleteFunc(s.others, func(seq protocol.Seq) bool { return seq == h.seq })
}

// drop takes a checkpoint off the shelf; what is stored stays.
func (s *shelf) drop(i int) {
	delete(s.own, s.kept[i].seq)
	s.kept = slices.Delete(s.kept, i, i+1)
}

// usable returns the checkpoints that a log may hang on: with all of their ledger.
func (s *shelf) usable() []header {
	whole := 0
	for s.pages[whole] != pageDamaged && whole < len(s.pages) {
		whole++
	}
	var list []header
	for _, h := range s.kept {
		if h.pages <= whole {
			list = append(list, h)
		}
	}
	return list
}

// retain trims the log to what its retention keeps, and then removes the
// checkpoints that nobody needs. At any moment a state can be rebuilt for every
// seq from floor−1 on: the log begins right behind a checkpoint, and that one
// stays as long as it does (I-J6). Wait says that a shard's pause between two
// trims is waited for.
func (s *shelf) retain(ctx context.Context, now int64, wait bool) error {
	kept := s.usable()
	if s.doubt {
		if s.since < freshTaken {
			return nil
		}
		if err := s.secure(ctx, kept); err != nil {
			return err
		}
		s.doubt = false
		s.st.log.Info("checkpoints of a session are whole again", slog.String(protocol.LogSession, s.log.Key.String()))
	}
	if i := s.retention.target(kept, now); i >= 0 && kept[i].seq >= s.floor {
		if wait {
			if err := s.st.awaitTrim(ctx, s.log.Shard); err != nil {
				return err
			}
		} else if !s.st.mayTrim(s.log.Shard) {
			return s.thin(ctx)
		}
		if err := s.secure(ctx, kept[i:]); err != nil {
			return err
		}
		if err := s.trim(ctx, kept[i].seq); err != nil {
			return err
		}
	}
	return s.thin(ctx)
}

// secure stores checkpoints, and the pages of the ledger, as messages of this
// process, and reads them back, where an earlier process stored them: only of its
// own does a process know that nothing in front of them in the same file is
// damaged. What turns out to be damaged puts the shelf in doubt.
func (s *shelf) secure(ctx context.Context, list []header) error {
	if len(list) == 0 {
		return nil
	}
	v := s.st.vault
	for n := range list[len(list)-1].pages {
		if s.pages[n] == pageOwn {
			continue
		}
		if err := v.again(ctx, s.log, pageName(n), func(b []byte) error {
			_, err := decodePage(b)
			return err
		}); err != nil {
			if errors.Is(err, ErrDamaged) {
				s.pages[n], s.doubt, s.since = pageDamaged, true, 0
			}
			return fmt.Errorf("store ledger page %d again: %w", n, err)
		}
		s.pages[n] = pageOwn
	}
	for _, h := range list {
		if s.own[h.seq] {
			continue
		}
		if err := v.again(ctx, s.log, checkpointName(h.seq), func(b []byte) error {
			_, err := decodeCheckpoint(b)
			return err
		}); err != nil {
			if errors.Is(err, ErrDamaged) {
				s.kept = slices.DeleteFunc(s.kept, func(k header) bool { return k.seq == h.seq })
				s.others = append(s.others, h.seq)
				slices.Sort(s.others)
				s.doubt, s.since = true, 0
			}
			return fmt.Errorf("store checkpoint %d again: %w", h.seq, err)
		}
		s.own[h.seq] = true
	}
	return nil
}

func (s *shelf) trim(ctx context.Context, to protocol.Seq) error {
	floor, err := s.st.vault.node.Trim(ctx, s.log, to+1)
	if err != nil {
		return fmt.Errorf("trim to %d: %w", to, err)
	}
	s.setFloor(floor)
	s.st.log.Debug("log trimmed", slog.String(protocol.LogSession, s.log.Key.String()), slog.Uint64(protocol.LogSeq, uint64(floor)))
	return nil
}

// thin removes checkpoints: see there. Damaged ones, and those of other folds,
// go once three newer ones are verified; the one of another fold that the state
// of floor−1 hangs on stays.
func (s *shelf) thin(ctx context.Context) error {
	if s.doubt {
		return nil // the one that is to go may be the last good one
	}
	seqs := make([]protocol.Seq, len(s.kept))
	for i := range s.kept {
		seqs[i] = s.kept[i].seq
	}
	var names []string
	gone := thin(seqs, s.floor)
	for _, i := range gone {
		names = append(names, checkpointName(seqs[i]))
	}
	anchored := s.floor <= 1 || len(seqs) > 0 && seqs[0] < s.floor
	var stay []protocol.Seq
	for _, seq := range s.others {
		if anchored && len(seqs) >= newestKept && seq < seqs[len(seqs)-1] {
			names = append(names, checkpointName(seq))
		} else {
			stay = append(stay, seq)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := s.st.vault.snaps.Delete(ctx, s.log, names...); err != nil {
		return fmt.Errorf("remove checkpoints: %w", err)
	}
	s.others = stay
	left := s.kept[:0]
	for i, h := range s.kept {
		if slices.Contains(gone, i) {
			delete(s.own, h.seq)
		} else {
			left = append(left, h)
		}
	}
	s.kept = left
	return nil
}
