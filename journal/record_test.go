package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/oklog/ulid/v2"

	"rejoin/protocol"
)

// testHeader is a header whose every field differs from its neighbours.
func testHeader() header {
	h := header{run: 7, base: 42, count: 2, part: 1, parts: 1}
	h.epoch = ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	copy(h.writer[:], "writer-of-16-byt")
	copy(h.prev[:], "a chain hash of thirty-two bytes")
	return h
}

func encode(h header, body string) []byte { return appendRecord(nil, &h, []byte(body)) }

// reseal makes the CRC of a tampered record right again.
func reseal(rec []byte) []byte {
	binary.BigEndian.PutUint32(rec[offCRC:], recordCRC(rec))
	return rec
}

// Proves I-P1 for records: decode∘encode is identity.
func TestRecordRoundTrip(t *testing.T) {
	long := strings.Repeat(`"seq":1,"ts":1,"run":1,"source":"child","event":{"a":1}}}`, 40)
	for _, tc := range []struct {
		name  string
		lines []string
		codec byte
	}{
		{"one", []string{"a"}, codecNone},
		{"several", []string{"first", "second", "third"}, codecNone},
		{"compressed", []string{long, long}, codecS2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testHeader()
			h.count = uint32(len(tc.lines))
			data := encode(h, strings.Join(tc.lines, "\n")+"\n")
			r, err := decodeRecord(data)
			if err != nil {
				t.Fatal(err)
			}
			if r.codec != tc.codec {
				t.Errorf("codec %d, want %d", r.codec, tc.codec)
			}
			if r.Epoch() != "01ARZ3NDEKTSV4RRFFQ69G5FAV" || r.Run() != 7 || r.Base() != 42 || r.Last() != 42+protocol.Seq(len(tc.lines))-1 || r.Len() != len(tc.lines) {
				t.Errorf("got epoch %s run %d base %d last %d len %d", r.Epoch(), r.Run(), r.Base(), r.Last(), r.Len())
			}
			if r.writer != h.writer || r.prev != h.prev || !r.whole() || !r.complete() || r.head() != r.Last() {
				t.Errorf("got header %+v", r.header)
			}
			for i, want := range tc.lines {
				if got := string(r.Line(i)); got != want {
					t.Errorf("line %d: %q, want %q", i, got, want)
				}
			}
		})
	}
}

// The layout is stored for years: this test changes only with a new version.
func TestRecordLayout(t *testing.T) {
	h := testHeader()
	got := encode(h, "a\nb\n")
	want := []byte("RJ\x01\x00" + "\x00\x00\x00\x00")
	want = append(want, h.epoch[:]...)
	want = append(want, 0, 0, 0, 0, 0, 0, 0, 7)
	want = append(want, "writer-of-16-byt"...)
	want = append(want, 0, 0, 0, 0, 0, 0, 0, 42)
	want = append(want, 0, 0, 0, 2, 0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0)
	want = append(want, got[offCRC:offPrev]...)
	want = append(want, "a chain hash of thirty-two bytes"...)
	want = append(want, "a\nb\n"...)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if crc := hex.EncodeToString(got[offCRC:offPrev]); crc != "fb184e38" {
		t.Errorf("CRC %s", crc)
	}
}

func TestRecordRefuses(t *testing.T) {
	good := func() []byte { return encode(testHeader(), "a\nb\n") }
	patch := func(off int, b ...byte) func() []byte {
		return func() []byte {
			rec := good()
			copy(rec[off:], b)
			return reseal(rec)
		}
	}
	body := func(count uint32, body string) func() []byte {
		return func() []byte {
			h := testHeader()
			h.count = count
			return encode(h, body)
		}
	}
	for _, tc := range []struct {
		name string
		rec  func() []byte
		want error
	}{
		{"empty", func() []byte { return nil }, errRecordShort},
		{"header cut", func() []byte { return good()[:headerSize-1] }, errRecordShort},
		{"magic", patch(0, 'X'), errRecordMagic},
		{"newer version", patch(2, 2), errRecordVersion},
		{"flags", patch(3, 1), errRecordHeader},
		{"codec", patch(4, 2), errRecordHeader},
		{"reserved", patch(6, 1), errRecordHeader},
		{"run zero", patch(24, 0, 0, 0, 0, 0, 0, 0, 0), errRecordHeader},
		{"base zero", patch(48, 0, 0, 0, 0, 0, 0, 0, 0), errRecordHeader},
		{"base near overflow", patch(48, 255, 255, 255, 255, 255, 255, 255, 255), errRecordHeader},
		{"count zero", patch(56, 0, 0, 0, 0), errRecordHeader},
		{"count huge", patch(56, 255, 255, 255, 255), errRecordHeader},
		{"part zero", patch(60, 0, 0), errRecordHeader},
		{"part beyond parts", patch(60, 0, 2), errRecordHeader},
		{"parts with two events", patch(62, 0, 2), errRecordHeader},
		{"body length huge", patch(64, 255, 255, 255, 255), errRecordHeader},
		{"body length wrong", patch(64, 0, 0, 0, 5), errRecordBody},
		{"total of a whole record", patch(68, 1), errRecordHeader},
		{"crc", func() []byte { r := good(); r[len(r)-2] ^= 1; return r }, errRecordCRC},
		{"crc covers prev", func() []byte { r := good(); r[offPrev] ^= 1; return r }, errRecordCRC},
		{"crc covers epoch", func() []byte { r := good(); r[8] ^= 1; return r }, errRecordCRC},
		{"body cut", func() []byte { r := good(); return reseal(r[:len(r)-1]) }, errRecordBody},
		{"not S2", patch(4, codecS2), errRecordBody},
		{"too few lines", body(3, "a\nbcd\n"), errRecordLines},
		{"too many lines", body(1, "a\nb\n"), errRecordLines},
		{"empty line", body(2, "abc\n\n"), errRecordLines},
		{"no last LF", body(1, "abc"), errRecordLines},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := decodeRecord(tc.rec())
			if !errors.Is(err, tc.want) || !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, %v; want %v", r, err, tc.want)
			}
		})
	}
}

// makeParts cuts line as a writer does, but into pieces of size.
func makeParts(t *testing.T, line string, size int) []*Record {
	t.Helper()
	h := testHeader()
	h.count, h.total = 1, lineCRC([]byte(line))
	h.parts = uint16((len(line) + size - 1) / size)
	var set []*Record
	for h.part = 1; h.part <= h.parts; h.part++ {
		n := min(size, len(line))
		r, err := decodeRecord(encode(h, line[:n]))
		if err != nil {
			t.Fatal(err)
		}
		set, line = append(set, r), line[n:]
	}
	return set
}

func TestJoinParts(t *testing.T) {
	line := strings.Repeat("0123456789", 500)
	set := makeParts(t, line, 1999)
	if len(set) != 3 || set[0].complete() || set[0].head() != 41 || set[2].head() != 42 {
		t.Fatalf("set of %d: heads %d, %d", len(set), set[0].head(), set[2].head())
	}
	r, err := joinParts(set)
	if err != nil {
		t.Fatal(err)
	}
	if r.Len() != 1 || string(r.Line(0)) != line || r.Base() != 42 || r.Last() != 42 {
		t.Errorf("joined: len %d base %d last %d", r.Len(), r.Base(), r.Last())
	}
	other := makeParts(t, strings.Repeat("x", 5000), 1999)
	whole, err := decodeRecord(encode(testHeader(), "a\nb\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]*Record{
		"none":     nil,
		"one":      set[:1],
		"cut off":  set[:2],
		"order":    {set[0], set[2], set[1]},
		"no first": set[1:],
		"mixed":    {set[0], set[1], other[2]},
		"whole":    {whole},
	} {
		if _, err := joinParts(bad); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
}

// FuzzRecord feeds the decoder what it must never trust. A record that decodes
// must have a body that encodes to one which decodes to the same.
func FuzzRecord(f *testing.F) {
	long := strings.Repeat("line of an event ", 100)
	h := testHeader()
	f.Add(encode(h, "a\nb\n"), false)
	f.Add(encode(h, long+"\n"+long+"\n"), true)
	h.count, h.parts, h.total = 1, 2, 99
	f.Add(encode(h, long), true)
	f.Add([]byte("RJ\x01"), false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= headerSize {
			data = reseal(bytes.Clone(data))
			if data[4] == codecS2 {
				// A length that S2 itself claims is not worth 64 MiB per run.
				if n, err := s2.DecodedLen(data[headerSize:]); err == nil && n > 1<<20 {
					return
				}
			}
		}
		r, err := decodeRecord(data)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("error is not ErrDamaged: %v", err)
			}
			return
		}
		total := 0
		for i := range r.Len() {
			total += len(r.Line(i)) + 1
		}
		if r.whole() && (total != len(r.lines) || r.Len() != int(r.count)) {
			t.Fatalf("lines of %d bytes in a body of %d", total, len(r.lines))
		}
		again := r.header
		r2, err := decodeRecord(appendRecord(nil, &again, r.lines))
		if err != nil {
			t.Fatalf("encode and decode again: %v", err)
		}
		if !bytes.Equal(r2.lines, r.lines) {
			t.Fatal("body differs after encode and decode")
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	line := `"seq":1234,"ts":1764500000000,"run":1,"source":"child","event":{"type":"content_block_delta","delta":{"text":"`
	for _, n := range []int{1, 16, 128} {
		var body []byte
		for i := range n {
			body = fmt.Appendf(body, "%s%0120d\"}}}}\n", line, i*7919)
		}
		h := testHeader()
		h.count = uint32(n)
		b.Run(fmt.Sprintf("encode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			var buf []byte
			for b.Loop() {
				buf = appendRecord(buf[:0], &h, body)
			}
		})
		data := appendRecord(nil, &h, body)
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := decodeRecord(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
