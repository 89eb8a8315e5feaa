package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// blockMaker writes a block as the server does.
type blockMaker struct {
	r   *blockReader
	buf []byte
	at  []int // where each record begins
}

func newBlock(stream string, index uint32) *blockMaker {
	m := &blockMaker{r: newBlockReader(stream)}
	m.r.open(index)
	return m
}

// message appends a message; headers may be empty.
func (m *blockMaker) message(seq uint64, subject, headers string, data []byte) {
	m.at = append(m.at, len(m.buf))
	start := len(m.buf)
	m.buf = append(m.buf, make([]byte, blockHeader)...)
	m.buf = append(m.buf, subject...)
	var flag uint32
	if headers != "" {
		flag = blockHeaders
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(len(headers)))
		m.buf = append(m.buf, headers...)
	}
	m.buf = append(m.buf, data...)
	b := m.buf[start:]
	binary.LittleEndian.PutUint32(b, uint32(len(b)+blockHash)|flag)
	binary.LittleEndian.PutUint64(b[4:], seq)
	binary.LittleEndian.PutUint64(b[12:], 1764500000000000000+seq)
	binary.LittleEndian.PutUint16(b[20:], uint16(len(subject)))
	m.buf = append(m.buf, m.r.checksum(b[4:20], []byte(subject), append([]byte(headers), data...))...)
}

func (m *blockMaker) tombstone(seq uint64) {
	m.at = append(m.at, len(m.buf))
	m.buf = m.r.tombstone(m.buf, seq, 1)
}

const testSubject = "j.3.default.s1"

func testHeaders(back uint64) string {
	return fmt.Sprintf("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n", back)
}

// testBlock is a block of n messages from seq on.
func testBlock(index uint32, seq uint64, n int) *blockMaker {
	m := newBlock("J3", index)
	rng := rand.New(rand.NewPCG(1, uint64(index)))
	for i := range n {
		data := make([]byte, 40+rng.IntN(600))
		for k := range data {
			data[k] = byte(rng.Uint32())
		}
		m.message(seq+uint64(i), testSubject, testHeaders(seq+uint64(i)-1), data)
	}
	return m
}

// kept scans a block and returns the seqs of its messages and what a repair
// makes of it.
func kept(m *blockMaker, buf []byte, newest bool) (s blockScan, seqs []uint64, out []byte) {
	s = m.r.scan(buf, newest, func(r blockRecord) {
		out = append(out, r.raw...)
		if r.kind == blockMessage {
			seqs = append(seqs, r.seq)
		}
	})
	return s, seqs, out
}

func upTo(first, last uint64) (out []uint64) {
	for ; first <= last; first++ {
		out = append(out, first)
	}
	return out
}

func TestBlockScan(t *testing.T) {
	m := testBlock(4, 100, 50)
	m.tombstone(7)
	m.buf = m.r.placeholder(m.buf, 170, 1)
	s, seqs, out := kept(m, m.buf, true)
	if !s.sound() || s.torn != 0 || s.messages != 50 || s.last != 170 || !slices.Equal(s.tombs, []uint64{7}) || !bytes.Equal(out, m.buf) {
		t.Errorf("scan of a good block: %+v", s)
	}
	if !slices.Equal(seqs, upTo(100, 149)) || !slices.Equal(s.live, []span{{100, 149}}) {
		t.Errorf("seqs %v, %v", seqs, s.live)
	}
	other := newBlock("J3", 5)
	if s := other.r.scan(m.buf, true, nil); s.messages != 0 || s.sound() {
		t.Errorf("a block under another number: %+v", s)
	}
}

func TestBlockDamage(t *testing.T) {
	const n, first, hit = 50, 100, 20 // record 20 is damaged
	without := slices.DeleteFunc(upTo(first, first+n-1), func(q uint64) bool { return q == first+hit })
	whole := upTo(first, first+n-1)
	for _, c := range []struct {
		name   string
		damage func(m *blockMaker)
		want   []uint64
		holes  int
	}{
		{"none", func(*blockMaker) {}, whole, 0},
		{"bit in the data", func(m *blockMaker) { m.buf[m.at[hit]+120] ^= 4 }, without, 1},
		{"bit in the checksum", func(m *blockMaker) { m.buf[m.at[hit+1]-3] ^= 4 }, without, 1},
		{"bit in the seq", func(m *blockMaker) { m.buf[m.at[hit]+4] ^= 64 }, without, 1},
		{"bit in the subject", func(m *blockMaker) { m.buf[m.at[hit]+blockHeader+3] ^= 1 }, without, 1},
		{"length too large", func(m *blockMaker) { m.buf[m.at[hit]+2] ^= 8 }, whole, 1},
		{"length too small", func(m *blockMaker) { binary.LittleEndian.PutUint32(m.buf[m.at[hit]:], blockHeaders|90) }, whole, 1},
		{"length impossible", func(m *blockMaker) { binary.LittleEndian.PutUint32(m.buf[m.at[hit]:], 3) }, whole, 1},
		{"length of the subject", func(m *blockMaker) { m.buf[m.at[hit]+20] ^= 2 }, whole, 1},
		{"length of the headers", func(m *blockMaker) { m.buf[m.at[hit]+blockHeader+len(testSubject)] ^= 2 }, whole, 1},
		{"flag of headers", func(m *blockMaker) { m.buf[m.at[hit]+3] ^= 0x80 }, whole, 1},
		{"a zeroed record", func(m *blockMaker) { clear(m.buf[m.at[hit]:m.at[hit+1]]) }, without, 1},
		{"a record of ones", func(m *blockMaker) {
			for i := m.at[hit]; i < m.at[hit+1]; i++ {
				m.buf[i] = 0xff
			}
		}, without, 1},
		{"bytes inserted", func(m *blockMaker) {
			m.buf = slices.Insert(m.buf, m.at[hit], []byte("some bytes that belong nowhere, in front")...)
		}, whole, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testBlock(4, first, n)
			c.damage(m)
			s, seqs, out := kept(m, m.buf, false)
			if !slices.Equal(seqs, c.want) || len(s.holes) != c.holes {
				t.Errorf("kept %d of %d, holes %+v", len(seqs), len(c.want), s.holes)
			}
			if again, seqs, _ := kept(m, out, false); !again.sound() || !slices.Equal(seqs, c.want) {
				t.Errorf("after the repair: %+v", again)
			}
			if s.torn != 0 {
				t.Errorf("torn %d bytes", s.torn)
			}
		})
	}
}

// A record that a killed process did not write to its end is no damage; one that
// is there to its last byte and does not verify is.
func TestBlockEnd(t *testing.T) {
	const n = 10
	for cut := range 200 {
		m := testBlock(1, 1, n)
		last := m.at[n-1]
		cut = last + 1 + cut*(len(m.buf)-last-1)/200
		s, seqs, _ := kept(m, m.buf[:cut], true)
		if !s.sound() || s.torn != cut-last || len(seqs) != n-1 {
			t.Fatalf("cut at %d of %d: %+v", cut-last, len(m.buf)-last, s)
		}
		if s, _, _ := kept(m, m.buf[:cut], false); s.sound() {
			t.Fatalf("an older block cut at %d is taken as it is", cut-last)
		}
	}
	m := testBlock(1, 1, n)
	m.buf[len(m.buf)-30] ^= 1
	if s, seqs, _ := kept(m, m.buf, true); s.sound() || s.torn != 0 || len(seqs) != n-1 {
		t.Errorf("a flipped bit in the last record: %+v", s)
	}
	m = testBlock(1, 1, n)
	m.buf[m.at[n-1]+1] ^= 0x40 // its length passes the end of the file
	if s, seqs, _ := kept(m, m.buf, true); len(s.holes) != 1 || !s.holes[0].restored || len(seqs) != n {
		t.Errorf("a flipped length in the last record: %+v", s)
	}
	m = testBlock(1, 1, n)
	m.buf = append(m.buf, make([]byte, 4096)...)
	if s, _, _ := kept(m, m.buf, true); s.sound() || s.torn != 0 {
		t.Errorf("zeros at the end: %+v", s)
	}
}

// A value of a bucket has no headers: nothing but its form tells where the
// subject ends.
func TestBlockWithoutHeaders(t *testing.T) {
	m := newBlock("KV_sessions", 1)
	for seq := uint64(1); seq <= 5; seq++ {
		m.message(seq, "$KV.sessions.default.s1", "", []byte(`{"id":"s1"}`))
	}
	m.buf[m.at[2]+20] ^= 4
	s, seqs, out := kept(m, m.buf, true)
	if len(seqs) != 5 || len(s.holes) != 1 || !s.holes[0].restored {
		t.Fatalf("%+v", s)
	}
	m.r.scan(out, true, func(r blockRecord) {
		if string(r.subject) != "$KV.sessions.default.s1" || string(r.data) != `{"id":"s1"}` {
			t.Errorf("record %d: %q %q", r.seq, r.subject, r.data)
		}
	})
}

// FuzzBlock: whatever a block holds, the reader ends, never hands on a record
// that does not verify, and what a repair makes of it is sound and holds the same.
func FuzzBlock(f *testing.F) {
	f.Add(uint16(0), uint16(0), byte(0), []byte(nil))
	f.Add(uint16(1000), uint16(1), byte(4), []byte(nil))
	f.Add(uint16(2000), uint16(4096), byte(0), []byte(nil))
	f.Add(uint16(3), uint16(1), byte(0x40), []byte("tail"))
	f.Fuzz(func(t *testing.T, at, n uint16, mask byte, tail []byte) {
		m := testBlock(2, 500, 20)
		whole := slices.Clone(m.buf)
		for i := int(at); i < min(int(at)+int(n), len(m.buf)); i++ {
			m.buf[i] ^= mask
		}
		m.buf = append(m.buf, tail...)
		for _, newest := range []bool{false, true} {
			s, seqs, out := kept(m, m.buf, newest)
			if !slices.IsSorted(seqs) {
				t.Fatalf("seqs %v", seqs)
			}
			again, after, same := kept(m, out, newest)
			if !again.sound() || again.torn != 0 || !slices.Equal(seqs, after) || !bytes.Equal(out, same) {
				t.Fatalf("the repaired block: %+v, before %+v", again, s)
			}
			if s.sound() && s.torn == 0 && !bytes.Equal(out, m.buf) {
				t.Fatal("a sound block is changed")
			}
			for i, b := range m.at { // what was not touched is kept
				end := len(whole)
				if i+1 < len(m.at) {
					end = m.at[i+1]
				}
				if bytes.Equal(whole[b:end], m.buf[b:end]) && !slices.Contains(seqs, uint64(500+i)) {
					t.Fatalf("record %d is lost although it is whole", i)
				}
			}
		}
	})
}

func BenchmarkBlockScan(b *testing.B) {
	for _, size := range []int{250, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := newBlock("J3", 1)
			data := make([]byte, size)
			for seq := uint64(1); len(m.buf) < 8<<20; seq++ {
				m.message(seq, testSubject, testHeaders(seq-1), data)
			}
			b.SetBytes(int64(len(m.buf)))
			b.ReportAllocs()
			for b.Loop() {
				if s := m.r.scan(m.buf, true, nil); !s.sound() {
					b.Fatal(s)
				}
			}
		})
	}
}

// TestMessagesCounted: a message is deleted once, however many blocks hold it and
// however its tombstone came there.
func TestMessagesCounted(t *testing.T) {
	s := streamScan{
		blocks: []blockScan{
			{messages: 10, live: []span{{1, 5}, {11, 15}}},
			{messages: 1, live: []span{{15, 15}}}, // written again after a crash
			{},
			{messages: 30, live: []span{{20, 29}, {40, 59}}},
		},
		tombs: map[uint64]struct{}{1: {}, 5: {}, 6: {}, 10: {}, 12: {}, 15: {}, 30: {}, 40: {}, 50: {}, 59: {}, 60: {}},
	}
	if n := s.messages(); n != 41-7 { // 1, 5, 12, 15, 40, 50 and 59
		t.Errorf("%d messages, want 34", n)
	}
	s.tombs = nil
	if n := s.messages(); n != 41 {
		t.Errorf("%d messages without tombstones, want 41", n)
	}
}
