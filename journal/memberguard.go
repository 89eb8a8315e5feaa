package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A member's store is one copy of three. The guard of a journal of its own repairs
// what it can; here that would be wrong: a member that lost records and takes part
// in an election may make a leader of one that never had them. So nothing is
// repaired. What does not verify is a copy less, which is moved aside, whole, once
// the two others are known to have everything, and made anew from them.
const (
	metaGroup     = "_meta_"
	groupPeers    = "peers.idx"
	groupVote     = "tav.idx"
	groupVoteMin  = 8 // term, and who has its vote, if anybody
	groupPeersMin = 8 // sizes
	groupSnaps    = "snapshots"
	groupSnapMin  = 28 // numbers and checksum
	lostAll       = "" // memberLoss.stream of everything there is
)

// memberLoss is a copy that does not verify: of a stream with its Raft group, of the
// meta group alone, or of everything.
type memberLoss struct {
	stream string // lostAll, metaGroup, or a stream
	dirs   []string
	file   string
	what   string
}

func (l *memberLoss) name() string {
	switch l.stream {
	case lostAll:
		return "everything"
	case metaGroup:
		return "the list of streams"
	}
	return "stream " + l.stream
}

func (l *memberLoss) tell(log *slog.Logger) {
	log.Error("this member's copy is damaged: it will be made anew from the other members", slog.String("copy", l.name()),
		slog.String("file", l.file), slog.String("what", l.what))
}

func groupsDir(dir string) string { return filepath.Join(dir, "jetstream", memberSystem, "_js_") }

// scan reads every block of the store.
func (m *member) scan(ctx context.Context) ([]memberLoss, error) {
	if m.fresh {
		return nil, nil
	}
	if err := (&guard{dir: m.dir}).checkPlaces(); err != nil { // what is moved aside is moved in one step
		return nil, err
	}
	began := time.Now()
	lost, err := m.scanAll(ctx)
	if err == nil {
		m.log.Debug("store verified", slog.Int("damaged", len(lost)), slog.Duration("took", time.Since(began)))
	}
	if len(lost) > 0 && !m.file.Ready { // which group is whose is not known yet
		lost = []memberLoss{{stream: lostAll, dirs: []string{filepath.Join(m.dir, "jetstream")}, file: lost[0].file, what: lost[0].what}}
	}
	return lost, err
}

func (m *member) scanAll(ctx context.Context) (lost []memberLoss, err error) {
	streams, groups := m.file.Streams, []string{metaGroup}
	if !m.file.Ready { // the journal was being made: what is there
		streams = map[string]string{}
		for _, d := range storedStreams(m.dir) {
			streams[d.Name()] = ""
		}
		if groups, err = listDirs(groupsDir(m.dir)); err != nil {
			return nil, err
		}
	}
	names := (&memberFile{Streams: streams}).names()
	scans, err := scanStreams(ctx, m.dir, names, false)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		l := memberLoss{stream: name, dirs: []string{filepath.Join(streamsDir(m.dir), name)}}
		i := slices.IndexFunc(scans, func(s *streamScan) bool { return s.name == name })
		switch {
		case i < 0:
			l.what = "the directory is gone"
		case !metaSound(l.dirs[0], name):
			l.file, l.what = metaFile, "does not verify"
		default:
			l.file, l.what = scans[i].wrong()
		}
		if group := streams[name]; group != "" {
			l.dirs = append(l.dirs, filepath.Join(groupsDir(m.dir), group))
			if l.what == "" {
				l.file, l.what = scanGroup(m.dir, group)
			}
		}
		if l.what != "" {
			lost = append(lost, l)
		}
	}
	for _, group := range groups {
		if file, what := scanGroup(m.dir, group); what != "" {
			lost = append(lost, memberLoss{stream: metaGroup, dirs: []string{filepath.Join(groupsDir(m.dir), group)}, file: file, what: what})
		}
	}
	return lost, ctx.Err()
}

func listDirs(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, ignoreMissing(err)
}

// wrong names what of a stream does not verify.
func (s *streamScan) wrong() (file, what string) {
	for i := range s.blocks {
		b := &s.blocks[i]
		switch {
		case b.err != nil:
			return blockName(b.index), b.err.Error()
		case len(b.holes) > 0:
			return blockName(b.index), fmt.Sprintf("%s at byte %d", b.holes[0].why, b.holes[0].from)
		}
	}
	if len(s.stray) > 0 {
		return s.stray[0], "is no block"
	}
	if s.gaps() {
		if found := brokenChains(s, nil); len(found) > 0 {
			return "", "records are missing between its blocks"
		}
	}
	return "", ""
}

// scanGroup verifies the files of a Raft group: its log, newest snapshot, members
// and vote. The log is a stream without subjects, which is read like any other.
func scanGroup(dir, group string) (file, what string) {
	at := filepath.Join(groupsDir(dir), group)
	in := func(name string) string { return filepath.Join(group, name) }
	s, err := listStream(at, group)
	switch {
	case err != nil:
		return group, err.Error()
	case s == nil:
		return group, "the directory is gone"
	case !metaSound(at, group):
		return in(metaFile), "does not verify"
	}
	var buf []byte
	for i := range s.blocks {
		s.blocks[i], buf = scanFile(s, i, buf)
	}
	if name, what := s.wrong(); what != "" {
		return in(name), what
	}
	if s.holed() {
		return in(blocksDir), "entries are missing between its blocks"
	}
	for name, least := range map[string]int{groupPeers: groupPeersMin, groupVote: groupVoteMin} {
		if b, err := os.ReadFile(filepath.Join(at, name)); err != nil {
			return in(name), err.Error()
		} else if len(b) < least {
			return in(name), "is cut off"
		}
	}
	return scanSnapshot(at, group)
}

// holed reports whether a log, of which entries only leave at both ends, lacks some.
func (s *streamScan) holed() bool {
	var last uint64
	for i := range s.blocks {
		for _, p := range s.blocks[i].live {
			if last != 0 && p.first != last+1 {
				return true
			}
			last = p.last
		}
	}
	return false
}

// scanSnapshot verifies the newest snapshot of a Raft group: the server starts from
// it, and does not start the group without.
func scanSnapshot(at, group string) (file, what string) {
	entries, err := os.ReadDir(filepath.Join(at, groupSnaps))
	if err := ignoreMissing(err); err != nil {
		return filepath.Join(group, groupSnaps), err.Error()
	}
	var newest string
	var term, index uint64
	for _, e := range entries {
		var t, i uint64
		if n, err := fmt.Sscanf(e.Name(), "snap.%d.%d", &t, &i); err != nil || n != 2 || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		if newest == "" || t > term || t == term && i > index {
			newest, term, index = e.Name(), t, i
		}
	}
	if newest == "" {
		return "", ""
	}
	file = filepath.Join(group, groupSnaps, newest)
	b, err := os.ReadFile(filepath.Join(at, groupSnaps, newest))
	switch {
	case err != nil:
		return file, err.Error()
	case len(b) < groupSnapMin:
		return file, "is cut off"
	}
	sum := newDigest(group)
	_, _ = sum.Write(b[:len(b)-blockHash]) // a hash never fails
	if !bytes.Equal(sum.Sum(nil), b[len(b)-blockHash:]) || binary.LittleEndian.Uint64(b[8:]) != index {
		return file, "checksum mismatch"
	}
	return "", ""
}

// setAside moves copies that do not verify into the quarantine, and tells of it. Cut
// short, the next start finds them missing and goes on.
func (m *member) setAside(lost []memberLoss, now time.Time) error {
	q := newQuarantine(m.dir, now, func(string) error { return nil })
	filling := slices.Clone(m.file.Filling)
	for _, l := range lost {
		q.note(StreamDamage{Stream: l.name(), File: l.file, What: l.what, Action: "moved aside; made anew from the other members"})
		if l.stream != lostAll && l.stream != metaGroup && !slices.Contains(filling, l.stream) {
			filling = append(filling, l.stream)
		}
	}
	if err := m.change(func(f *memberFile) { f.Filling = filling }); err != nil {
		return err
	}
	if err := q.write(); err != nil {
		return err
	}
	for _, l := range lost {
		for _, dir := range l.dirs {
			if !present(dir) {
				continue
			}
			if err := q.move(cmp.Or(l.stream, "all"), dir); err != nil {
				return err
			}
		}
	}
	if !q.empty() {
		m.log.Warn("damaged copies were moved aside", slog.String("quarantine", q.damage.Folder))
	}
	return nil
}

// awaitFilled returns when this member's copy of a stream has what the leader's has,
// and tells its Raft group. A copy that has come to its end and is another one is
// an error: blocks that are gone leave no trace.
func (n *Node) awaitFilled(ctx context.Context, name string) (group string, err error) {
	w := waiter{log: n.log}
	var apart time.Time // since when it differs
	for try := 0; ; try++ {
		info, found, err := n.streamInfo(ctx, name)
		if err == nil && !found {
			err = fmt.Errorf("%w: stream %s is missing", ErrUnavailable, name)
		}
		if err == nil {
			var own opened
			own, group, err = n.ownStream(name)
			switch {
			case err != nil:
			case own.last < info.State.LastSeq:
				err = fmt.Errorf("%w: stream %s is filled up to %d of %d", ErrUnavailable, name, own.last, info.State.LastSeq)
			case own.last > info.State.LastSeq, own.messages == info.State.Messages: // written to meanwhile, or the same
				return group, nil
			default:
				if apart.IsZero() {
					apart = time.Now()
				}
				err = fmt.Errorf("%w: stream %s has %d records here, and %d at its leader %s", ErrUnavailable, name, own.messages, info.State.Messages, info.Cluster.Leader)
				if time.Since(apart) > missingFor {
					return "", &RefusedError{fmt.Sprintf("%v: this member's copy is not what the others have; move %s aside and start it again: it is made anew from them",
						err, filepath.Join(n.remote.member.dir, "jetstream"))}
				}
			}
		}
		if !errors.Is(err, ErrUnavailable) {
			return "", err
		}
		w.tell(err)
		if err := pause(ctx, try); err != nil {
			return "", fmt.Errorf("journal: fill this member: %w", errors.Join(err, w.last))
		}
	}
}
