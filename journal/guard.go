package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// guardTries bounds how often a start opens the streams.
const guardTries = 3

// A guard stands between the files of the journal and the server that opens
// them. The server truncates a block where it does not verify, which loses every
// record behind a damaged one, and removes the directory of a stream that it
// cannot open. So before it starts, every block is read: what does not verify is
// kept in quarantine and left out, each record that does stays where it is,
// under the seq it has. Then every stream is kept aside until what the server
// made of it is compared with what was read. It is used by one goroutine.
type guard struct {
	dir    string
	sealed bool     // the journal is encrypted, by its own record
	names  []string // streams that must be there
	log    *slog.Logger
	hook   func(step string) error
	q      *quarantine
	scans  []*streamScan
	remake []string // streams whose description is made anew, by Start alone
	known  []Damage // reports of earlier starts
}

// fault lets tests stop a start at any step, or make it fail.
func (g *guard) fault(step string) error {
	if g.hook == nil {
		return nil
	}
	return g.hook(step)
}

// newGuard returns the guard of one start. That cfg has a key if the directory's
// record says that it is encrypted, and only then, is checked before.
func newGuard(cfg Config, f *format, now time.Time) *guard {
	g := &guard{dir: cfg.Dir, sealed: cfg.Key != nil, log: cfg.Logger, hook: cfg.GuardFault}
	if f.Ready {
		g.names = slices.Clone(f.Expect)
	}
	g.q = newQuarantine(cfg.Dir, now, g.fault)
	return g
}

// before makes the files fit for the server. Crashed says that the machine
// stopped, not only the process: then the end of a newest block may be anything.
func (g *guard) before(ctx context.Context, crashed bool) error {
	if err := g.checkPlaces(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := errors.Join(g.takeBack(), g.clear()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var err error
	if g.known, err = readDamage(g.dir); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for _, name := range g.names {
		if err := g.mendMeta(name); err != nil {
			return fmt.Errorf("journal: mend description of stream %s: %w", name, err)
		}
	}
	began := time.Now()
	if g.scans, err = scanStreams(ctx, g.dir, g.names, g.sealed); err != nil {
		return fmt.Errorf("journal: verify blocks: %w", err)
	}
	if crashed {
		for _, s := range g.scans {
			s.forgiveEnd()
		}
	}
	if err := g.mend(ctx); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	g.tell(time.Since(began))
	if err := g.protectAll(); err != nil {
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("journal: %w", err)
		}
		g.log.Error("no space for guard copies: streams are opened without", slog.Any(protocol.LogError, err))
		if err := g.clear(); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}

// mend repairs what does not verify, and reads what it wrote.
func (g *guard) mend(ctx context.Context) error {
	var plans []*repair
	for _, s := range g.scans {
		found := len(g.q.damage.Streams)
		p := g.q.plan(s)
		var lost []span
		for _, d := range g.q.damage.Streams[found:] {
			if d.LastLost > 0 {
				lost = append(lost, span{d.FirstLost, d.LastLost})
			}
		}
		if len(lost) > 0 || s.gaps() {
			g.hurt(s, brokenChains(s, lost))
		}
		if p != nil {
			plans = append(plans, p)
		}
	}
	if g.q.empty() {
		return nil
	}
	for _, p := range plans {
		if err := p.keep(g.q); err != nil {
			return err
		}
	}
	if err := g.q.write(); err != nil {
		return err
	}
	for _, p := range plans {
		if err := p.run(g); err != nil {
			return err
		}
		again, err := scanStreams(ctx, g.dir, []string{p.s.name}, g.sealed)
		if err != nil {
			return err
		}
		for _, s := range again {
			if !s.sound() {
				return fmt.Errorf("stream %s does not verify after its repair; its files are in %s", s.name, g.q.damage.Folder)
			}
			g.scans[slices.Index(g.scans, p.s)] = s
		}
	}
	return nil
}

// hurt notes the sessions with holes that no report tells of yet.
func (g *guard) hurt(s *streamScan, found []SessionDamage) {
	found = slices.DeleteFunc(found, func(d SessionDamage) bool {
		return slices.ContainsFunc(g.known, func(k Damage) bool { return slices.Contains(k.Sessions, d) })
	})
	if len(found) > 0 && !slices.ContainsFunc(g.q.damage.Streams, func(d StreamDamage) bool { return d.Stream == s.name }) {
		g.q.note(StreamDamage{Stream: s.name, What: "records are missing between its blocks", Action: "none: their file is gone"})
	}
	g.q.damage.Sessions = append(g.q.damage.Sessions, found...)
}

// tell logs what was found.
func (g *guard) tell(took time.Duration) {
	var size int64
	for _, s := range g.scans {
		for i := range s.blocks {
			b := &s.blocks[i]
			size += b.size
			if b.torn > 0 {
				g.log.Info("last write of a stream was cut off", slog.String("stream", s.name), slog.String("file", blockName(b.index)), slog.Int("bytes", b.torn))
			}
		}
	}
	g.log.Debug("blocks verified", slog.Int("streams", len(g.scans)), slog.Int64("bytes", size), slog.Duration("took", took))
	for _, d := range g.q.damage.Streams {
		g.log.Warn("journal damaged", slog.String("stream", d.Stream), slog.String("file", d.File), slog.String("what", d.What),
			slog.Int("from", d.From), slog.Int("to", d.To), slog.String("action", d.Action),
			slog.Uint64("firstLost", d.FirstLost), slog.Uint64("lastLost", d.LastLost), slog.String("quarantine", g.q.damage.Folder))
	}
	for _, d := range g.q.damage.Sessions {
		g.log.Warn("session lost events", slog.String(protocol.LogSession, d.Log().Key.String()),
			slog.Uint64("after", uint64(d.After)), slog.Uint64("before", uint64(d.Before)))
	}
}

// forgiveEnd takes a bad end of the newest block for one that never reached the
// disk: after a power failure anything may be there.
func (s *streamScan) forgiveEnd() {
	if len(s.blocks) == 0 {
		return
	}
	b := &s.blocks[len(s.blocks)-1]
	if n := len(b.holes); n > 0 && b.err == nil && !b.holes[n-1].restored && int64(b.holes[n-1].to) == b.size {
		b.torn = b.holes[n-1].to - b.holes[n-1].from
		b.holes = b.holes[:n-1]
	}
}

// opened is what the server made of a stream.
type opened struct {
	last     uint64
	messages uint64
}

// shrunk returns the streams of which the server has less than was read. At the
// last try a number of records that differs is not worth a refusal: readers find
// every hole, and are told.
func (g *guard) shrunk(have map[string]opened, last bool) []*streamScan {
	var out []*streamScan
	for _, s := range g.scans {
		o, ok := have[s.name]
		if slices.Contains(g.remake, s.name) && !ok {
			continue // openStreams makes it anew
		}
		why, fatal := s.less(o, ok)
		if why == "" {
			continue
		}
		g.log.Error("the server lost part of a stream", slog.String("stream", s.name), slog.String("what", why))
		if fatal || !last {
			out = append(out, s)
		}
	}
	return out
}

// less says what o lacks, and whether that alone is reason not to go on.
func (s *streamScan) less(o opened, ok bool) (why string, fatal bool) {
	last, _ := s.last()
	switch {
	case !ok:
		return "it is not there", true
	case s.sealed:
		return "", false
	case o.last < last:
		return fmt.Sprintf("it ends at %d, not at %d", o.last, last), true
	case strings.HasPrefix(s.name, "J") && o.messages < s.messages():
		return fmt.Sprintf("it has %d records, not %d", o.messages, s.messages()), false
	}
	return "", false
}

// restore puts streams back as they were before the server opened them.
func (g *guard) restore(lost []*streamScan, try int) error {
	kept := filepath.Join(g.dir, guardDir)
	if !present(kept) || try == guardTries {
		return g.refuse(lost)
	}
	for _, s := range lost {
		g.q.note(StreamDamage{Stream: s.name, What: "the server lost part of it while opening it", Action: "put back from its guard copy"})
	}
	if err := g.q.write(); err != nil {
		return err
	}
	for _, s := range lost {
		if err := g.putBack(s); err != nil {
			return err
		}
	}
	return nil
}

// refuse says why there is no start.
func (g *guard) refuse(lost []*streamScan) error {
	names := make([]string, len(lost))
	for i, s := range lost {
		names[i] = s.name
	}
	where := filepath.Join(g.dir, guardDir)
	if !present(where) {
		where = "no copy was made for want of space"
	}
	return fmt.Errorf("the server cannot open the stream %s without losing records; nothing was lost: its files as they were before are in %s "+
		"and are put back by the next start. Report this, or put a backup in place of %s", strings.Join(names, ", "), where, streamsDir(g.dir))
}

// after gives up what is no longer needed: the streams, names, are verified.
func (g *guard) after(names []string) error {
	for _, name := range names {
		if err := g.keepMeta(name); err != nil {
			return fmt.Errorf("journal: keep description of stream %s: %w", name, err)
		}
	}
	if err := g.release(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// unsettled returns the reports that nobody has acted upon.
func (g *guard) unsettled() []Damage {
	all := slices.DeleteFunc(slices.Clone(g.known), func(d Damage) bool { return d.Settled })
	if !g.q.empty() {
		all = append(all, g.q.damage)
	}
	return all
}
