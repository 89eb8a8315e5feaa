package snapshot

import (
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
	kept   []header       // verified, of this program's fold, rising
	others []protocol.Seq // of other folds, or damaged; rising
	floor  protocol.Seq
	shown  atomic.Uint64 // floor, for Keeper.Floor
}

// open reads what is stored, and verifies it by that.
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
	s.kept, s.others = nil, nil
	for _, seq := range seqs {
		c, err := v.get(ctx, s.log, seq)
		switch {
		case errors.Is(err, ErrDamaged):
			v.report(s.log, seq, err)
			s.others = append(s.others, seq)
		case errors.Is(err, journal.ErrNoBlob):
		case err != nil:
			return fmt.Errorf("read checkpoint %d: %w", seq, err)
		case c.fold != s.folds.VersionOf(c.fold.Adapter):
			s.others = append(s.others, seq)
		default:
			s.kept = append(s.kept, c.header)
		}
	}
	s.setFloor(floor)
	s.opened = true
	return nil
}

func (s *shelf) setFloor(floor protocol.Seq) {
	s.floor = floor
	s.shown.Store(uint64(floor))
}

// add puts a stored, verified checkpoint on the shelf. Those at or above it are
// of a history that was lost.
func (s *shelf) add(h header) {
	for len(s.kept) > 0 && s.kept[len(s.kept)-1].seq >= h.seq {
		s.kept = s.kept[:len(s.kept)-1]
	}
	s.kept = append(s.kept, h)
	s.others = slices.DeleteFunc(s.others, func(seq protocol.Seq) bool { return seq == h.seq })
}

// retain trims the log to what its retention keeps, and then removes the
// checkpoints that nobody needs. At any moment a state can be rebuilt for every
// seq from floor−1 on: the log begins right behind a checkpoint, and that one
// stays as long as it does (I-J6).
func (s *shelf) retain(ctx context.Context, now int64) error {
	if i := s.retention.target(s.kept, now); i >= 0 && s.kept[i].seq >= s.floor && s.st.mayTrim(s.log.Shard) {
		if err := s.trim(ctx, s.kept[i].seq); err != nil {
			return err
		}
	}
	return s.thin(ctx)
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
		if !slices.Contains(gone, i) {
			left = append(left, h)
		}
	}
	s.kept = left
	return nil
}
