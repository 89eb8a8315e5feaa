package soak_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// harm is what was done to the files of a server that does not run.
type harm struct {
	what   string
	lost   []stored // records that cannot be there any more
	told   bool     // the server must say that it found damage
	reboot bool     // the machine stopped, too: below always every session begins a new epoch
}

// flipBit: killed in the middle of writes, the server finds one bit of a record
// of its journal flipped.
func (s *soak) flipBit() {
	s.t.Helper()
	older := s.rng.IntN(2) == 0
	s.damage(older, func(all []stored) harm {
		some := s.candidates(all, older)
		if s.rng.IntN(2) == 0 { // one that takes the end of a log
			ends := slices.DeleteFunc(slices.Clone(some), func(r stored) bool { return !s.ends(all, r) })
			if len(ends) > 0 {
				some = ends
			}
		}
		return s.flip(some)
	})
}

// ends reports whether a record is the last of its session.
func (s *soak) ends(all []stored, r stored) bool {
	return !slices.ContainsFunc(all, func(x stored) bool { return x.session == r.session && x.end > r.end })
}

// truncate: killed in the middle of writes, the server finds a block of its
// journal cut: an older one, or, as a power loss leaves it, the newest one.
func (s *soak) truncate() {
	s.t.Helper()
	older := s.level == "always" || s.rng.IntN(2) == 0
	s.damage(older, func(all []stored) harm {
		h := s.cut(all, s.candidates(all, older))
		if !older {
			s.otherBoot()
			h.reboot, h.told = true, false
		}
		return h
	})
}

// damage kills the server, harms its files, and starts it. What the logs were is
// read from a copy before; what of them is lost must be what was harmed, no more
// and no less, and the server must tell of it.
func (s *soak) damage(older bool, do func([]stored) harm) {
	s.t.Helper()
	if older {
		s.fillBlock()
	}
	s.server.Kill9()
	level := s.level
	all := s.records()
	s.readCopy()
	for _, u := range s.world {
		u.dropAfter(u.endOf(all))
	}
	h := do(all)
	mark := len(s.log())
	s.start()
	if h.told && !harness.Within(harness.Patience, func() bool { return strings.Contains(s.log()[mark:], "journal damaged") }) {
		s.t.Fatalf("broke the failure table: %s, and the server's log does not say so", h.what)
	}
	c := harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.damaged(c, h, h.reboot && level != "always")
	}
	s.report.note(h.what)
	s.recovered()
}

// candidates are records of this world in newest blocks, or in older ones. A
// record that is the last of a newest block is not among them: when its length is
// damaged, it looks like what a kill has not written to its end.
func (s *soak) candidates(all []stored, older bool) (some []stored) {
	s.t.Helper()
	for _, r := range all {
		mine := slices.ContainsFunc(s.world, func(u *subject) bool { return u.Session == r.session })
		if mine && r.newest != older && (older || !r.last) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		s.t.Fatalf("no record of this world in a block that is newest: %v", !older)
	}
	return some
}

// flip flips one bit of one of some records. Where only a length is wrong,
// nothing is lost: the checksum tells where the record ends. The subject of the
// last record of a session stays: when that is gone, nothing tells whose it was.
func (s *soak) flip(some []stored) harm {
	s.t.Helper()
	r := some[s.rng.IntN(len(some))]
	at := r.from + s.rng.IntN(r.to-r.from)
	if at >= r.subject[0] && at < r.subject[1] {
		at = r.subject[1] + 4
	}
	b, err := os.ReadFile(r.path)
	if err != nil {
		s.t.Fatal(err)
	}
	b[at] ^= 1 << s.rng.IntN(8)
	if err := os.WriteFile(r.path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	h := harm{told: true, what: fmt.Sprintf("a bit of byte %d of %s is flipped, in a record at %d of session %s, events %d to %d", at, r.path, r.from, r.session, r.base, r.end)}
	if !slices.Contains(r.lengths, at) {
		h.lost = []stored{r}
	}
	return h
}

// cut cuts a block in the middle of one of its last records.
func (s *soak) cut(all, some []stored) harm {
	s.t.Helper()
	path := some[s.rng.IntN(len(some))].path
	var block []stored
	for _, r := range all {
		if r.path == path {
			block = append(block, r)
		}
	}
	first := len(block) - 1 - s.rng.IntN(min(5, len(block)))
	r := block[first]
	size := r.from + 1 + s.rng.IntN(r.to-r.from-1)
	if err := os.Truncate(path, int64(size)); err != nil {
		s.t.Fatal(err)
	}
	return harm{told: true, lost: block[first:], what: fmt.Sprintf("%s is cut at %d, in a record of session %s, events %d to %d", path, size, r.session, r.base, r.end)}
}

// fillBlock has the flood's shard begin another block, in which every session of
// that shard writes.
func (s *soak) fillBlock() {
	s.t.Helper()
	const lines = 4800 // of 2 KB that do not pack; a block has 8 MiB
	c := harness.Dial(s.t, s.server)
	u := s.pick(model.Flood)
	from := u.Info(c).Head
	u.Give(c, model.Order{Type: "noise", N: lines})
	s.site.Until("a block is full", func() (done bool, sum uint64) {
		head := u.Info(c).Head
		return head >= from+lines, head
	})
	s.flowing(c, s.flows(c), "after a block was filled")
}

func (s *soak) log() string {
	s.t.Helper()
	b, err := os.ReadFile(s.server.LogPath)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// endOf is the last event of the session that is on disk.
func (u *subject) endOf(all []stored) (seq uint64) {
	for _, r := range all {
		if r.session == u.Session {
			seq = max(seq, r.end)
		}
	}
	return seq
}

// damaged holds what became of the session against what was done: the losses are
// those and no others, an end that is lost begins an epoch that says so, and
// everything else is there as it was.
func (u *subject) damaged(c *harness.Client, h harm, reboot bool) {
	u.s.t.Helper()
	was := &u.Logs[len(u.Logs)-1]
	head, end := was.Head(), was.Head()
	var lost []model.Loss
	for _, r := range h.lost {
		if r.session != u.Session {
			continue
		}
		if n := len(lost); n > 0 && lost[n-1].To+1 == r.base {
			lost[n-1].To = r.end
		} else {
			lost = append(lost, model.Loss{Epoch: was.Epoch, From: r.base, To: r.end})
		}
		if r.end == head {
			end = lost[len(lost)-1].From - 1
		}
	}
	u.Losses = append(u.Losses, lost...)
	i := u.Info(c)
	if begun := i.Epoch != was.Epoch; begun != (reboot || end < head) {
		u.s.t.Fatalf("broke the failure table: %s; session %s was in epoch %s up to %d, lost are %v, it is in epoch %s", h.what, u.Session, was.Epoch, head, lost, i.Epoch)
	} else if !begun {
		u.Recheck(c)
		return
	}
	b := u.beginning(c, i)
	reasons := []string{"damaged", "rolled_back"}
	if reboot {
		reasons = []string{"unclean_boot"}
	}
	if b.PreviousHead != end || !slices.Contains(reasons, b.Reason) {
		u.s.t.Fatalf("broke the failure table: %s; session %s has %d left of %d, its epoch begins with %+v", h.what, u.Session, end, head, b)
	}
}
