package soak_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// stored is one record of a session, where it lies in the files of the journal.
type stored struct {
	path     string // of its block
	from, to int    // bytes of it
	lengths  []int  // bytes of it that only say how long its parts are
	subject  [2]int // bytes of its subject
	newest   bool   // no newer block of its shard follows
	last     bool   // of its block
	session  string
	base     uint64 // its first event
	end      uint64 // its last event
}

// records reads every block of every shard of a server that does not run. What
// a kill has cut off is left out.
func (s *soak) records() (all []stored) {
	s.t.Helper()
	shards, err := filepath.Glob(filepath.Join(s.data.dir(), "jetstream", "$G", "streams", "J*", "msgs"))
	if err != nil || len(shards) == 0 {
		s.t.Fatalf("no shards in %s: %v", s.data.dir(), err)
	}
	for _, dir := range shards {
		blocks := s.blocks(dir)
		for i, path := range blocks {
			b, err := os.ReadFile(path)
			if err != nil {
				s.t.Fatal(err)
			}
			some := s.parse(path, b)
			for k := range some {
				some[k].newest = i == len(blocks)-1
				some[k].last = k == len(some)-1
			}
			all = append(all, some...)
		}
	}
	return all
}

// blocks of a shard, oldest first.
func (s *soak) blocks(dir string) []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.blk"))
	if err != nil {
		s.t.Fatal(err)
	}
	number := func(path string) int {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return number(a) - number(b) })
	return found
}

// The engine's record: length (the highest bit: there are headers), sequence,
// time, length of the subject; subject; length of the headers, headers; ours;
// checksum.
const (
	recordHead     = 22
	recordSum      = 8
	recordHeaders  = 1 << 31
	journalHeader  = 108 // docs/ARCHITECTURE.md, "Record format"
	journalSubject = 4   // j.<shard>.<workspace>.<session>
)

func (s *soak) parse(path string, b []byte) (all []stored) {
	s.t.Helper()
	for at := 0; at+recordHead+recordSum <= len(b); {
		length := binary.LittleEndian.Uint32(b[at:])
		to := at + int(length&^recordHeaders)
		subject := [2]int{at + recordHead, at + recordHead + int(binary.LittleEndian.Uint16(b[at+20:]))}
		if to < subject[1]+recordSum || to > len(b) {
			return all
		}
		r := stored{path: path, from: at, to: to, subject: subject, lengths: []int{at, at + 1, at + 2, at + 3, at + 20, at + 21}}
		data := b[subject[1] : to-recordSum]
		if length&recordHeaders != 0 && len(data) >= 4 {
			r.lengths = append(r.lengths, subject[1], subject[1]+1, subject[1]+2, subject[1]+3)
			data = data[min(len(data), 4+int(binary.LittleEndian.Uint32(data))):]
		}
		at = to
		tokens := strings.Split(string(b[subject[0]:subject[1]]), ".")
		if len(tokens) != journalSubject || len(data) < journalHeader {
			continue // a deletion
		}
		if string(data[:2]) != "RJ" || binary.BigEndian.Uint16(data[62:]) != 1 {
			s.t.Fatalf("%s: at %d stands no whole record", path, r.from)
		}
		r.session, r.base = tokens[journalSubject-1], binary.BigEndian.Uint64(data[48:])
		r.end = r.base + uint64(binary.BigEndian.Uint32(data[56:])) - 1
		all = append(all, r)
	}
	return all
}
