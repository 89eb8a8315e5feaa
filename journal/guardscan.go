package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	blocksDir  = "msgs" // of a stream's directory
	blockExt   = ".blk"
	metaFile   = "meta.inf"
	metaSum    = "meta.sum"
	metaKey    = "meta.key"     // exists where the stream is encrypted
	purgingDir = "__new_msgs__" // exists while the server empties a stream
)

// errNotAFile: something else stands where a block should be.
var errNotAFile = errors.New("not a file")

// streamScan is what the files of a stream hold.
type streamScan struct {
	name   string
	dir    string
	blocks []blockScan // by rising number
	stray  []string    // names in the blocks' directory that the server would take for blocks
	sealed bool        // encrypted, or being emptied: its blocks are not looked into
	index  blockIndex
	tombs  map[uint64]struct{} // of all blocks
}

// blockFile is where a block is.
func (s *streamScan) blockFile(index uint32) string {
	return filepath.Join(s.dir, blocksDir, blockName(index))
}

func blockName(index uint32) string { return strconv.FormatUint(uint64(index), 10) + blockExt }

// subjectPrefix is what every subject of a stream begins with; "" when the
// stream is none of ours.
func subjectPrefix(stream string) string {
	switch {
	case stream == snapStream:
		return snapPrefix
	case strings.HasPrefix(stream, "KV_"):
		return "$KV." + strings.TrimPrefix(stream, "KV_") + "."
	case strings.HasPrefix(stream, "J"):
		return "j." + stream[1:] + "."
	}
	return ""
}

// sound reports whether the server can read all blocks of the stream.
func (s *streamScan) sound() bool {
	for i := range s.blocks {
		if !s.blocks[i].sound() {
			return false
		}
	}
	return len(s.stray) == 0
}

// gaps reports whether numbers of blocks are missing. Blocks that emptied are
// removed, so it means nothing by itself.
func (s *streamScan) gaps() bool {
	n := len(s.blocks)
	return n > 0 && s.blocks[n-1].index-s.blocks[0].index != uint32(n-1)
}

// last returns the highest seq that the blocks know of, and its time.
func (s *streamScan) last() (seq uint64, ts int64) {
	for i := range s.blocks {
		if b := &s.blocks[i]; b.last > seq {
			seq, ts = b.last, b.lastTS
		}
		if b := &s.blocks[i]; b.messages == 0 && b.last == 0 {
			for _, t := range b.tombs { // a block of tombstones alone remembers their seqs
				seq = max(seq, t)
			}
		}
	}
	return seq, ts
}

// messages returns how many messages are stored and not deleted.
func (s *streamScan) messages() uint64 {
	tombs := slices.Sorted(maps.Keys(s.tombs))
	gone := make(map[uint64]struct{}) // a seq is deleted once, though two blocks may have it
	var n uint64
	for i := range s.blocks {
		b := &s.blocks[i]
		n += b.messages
		at := 0
		for _, p := range b.live { // both rise
			skip, _ := slices.BinarySearch(tombs[at:], p.first)
			for at += skip; at < len(tombs) && tombs[at] <= p.last; at++ {
				gone[tombs[at]] = struct{}{}
			}
		}
	}
	return n - uint64(len(gone))
}

// scanStreams reads every block of the streams named, as many at a time as
// there are processors; of an encrypted journal none. Streams without a directory
// are left out.
func scanStreams(ctx context.Context, dir string, names []string, encrypted bool) ([]*streamScan, error) {
	var out []*streamScan
	for _, name := range names {
		s, err := listStream(filepath.Join(streamsDir(dir), name), name)
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.sealed = s.sealed || encrypted // also where a stream's key is gone
			out = append(out, s)
		}
	}
	type job struct {
		s *streamScan
		b int
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var buf []byte
			for j := range jobs {
				j.s.blocks[j.b], buf = scanFile(j.s, j.b, buf)
			}
		})
	}
	for _, s := range out {
		if s.sealed {
			continue
		}
		for i := range s.blocks {
			if ctx.Err() != nil {
				break
			}
			jobs <- job{s, i}
		}
	}
	close(jobs)
	wg.Wait()
	for _, s := range out {
		s.tombs = make(map[uint64]struct{})
		for i := range s.blocks {
			for _, seq := range s.blocks[i].tombs {
				s.tombs[seq] = struct{}{}
			}
		}
	}
	return out, ctx.Err()
}

// listStream finds the blocks of a stream; nil when it has no directory.
func listStream(dir, name string) (*streamScan, error) {
	if fi, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) || err == nil && !fi.IsDir() {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", name, err)
	}
	s := &streamScan{name: name, dir: dir, sealed: present(filepath.Join(dir, metaKey)) || present(filepath.Join(dir, purgingDir))}
	entries, err := os.ReadDir(filepath.Join(dir, blocksDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list blocks of stream %s: %w", name, err)
	}
	for _, e := range entries {
		n, ok := strings.CutSuffix(e.Name(), blockExt)
		if !ok {
			continue
		}
		index, err := strconv.ParseUint(n, 10, 32)
		if err != nil || blockName(uint32(index)) != e.Name() {
			s.stray = append(s.stray, e.Name())
			continue
		}
		b := blockScan{index: uint32(index)}
		if fi, err := e.Info(); err == nil { // of one that is looked into, reading it tells
			b.size = fi.Size()
		}
		s.blocks = append(s.blocks, b)
	}
	slices.SortFunc(s.blocks, func(a, b blockScan) int { return cmp.Compare(a.index, b.index) })
	if buf, err := os.ReadFile(filepath.Join(dir, blocksDir, indexFile)); err == nil {
		s.index, _ = parseIndex(name, buf) // the server throws away one that it cannot read
	}
	return s, nil
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// scanFile verifies block b of s. It returns a buffer for the next one.
func scanFile(s *streamScan, b int, buf []byte) (blockScan, []byte) {
	index := s.blocks[b].index
	buf, err := readBlock(s.blockFile(index), buf)
	if err != nil {
		return blockScan{index: index, err: err}, buf
	}
	r := newBlockReader(s.name)
	r.open(index)
	return r.scan(buf, b == len(s.blocks)-1, nil), buf
}

// readBlock reads a whole file into buf, which grows.
func readBlock(path string, buf []byte) (_ []byte, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return buf[:0], err
	}
	if !fi.Mode().IsRegular() {
		return buf[:0], errNotAFile
	}
	f, err := os.Open(path)
	if err != nil {
		return buf[:0], err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if need := int(fi.Size()); cap(buf) < need {
		buf = make([]byte, need)
	}
	buf = buf[:fi.Size()]
	_, err = io.ReadFull(f, buf)
	return buf, err
}
