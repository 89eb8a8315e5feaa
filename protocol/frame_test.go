package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// lineModel is what a LineReader must yield: lines as they are, or what became
// of those over the bound.
func lineModel(data []byte, bound int) []string {
	var want []string
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(line) > bound {
			want = append(want, fmt.Sprintf("too long: %d %q", len(line), line[:min(4, bound+1)]))
			continue
		}
		want = append(want, fmt.Sprintf("%q", line))
	}
	return want
}

// readAll drains a LineReader in the form of lineModel and checks its memory.
func readAll(t *testing.T, l *LineReader, bound int) []string {
	t.Helper()
	var got []string
	for {
		ready := l.Ready()
		line, err := l.ReadLine()
		if len(l.buf) > bound+1 {
			t.Fatalf("the buffer has %d bytes, more than the bound %d and one", len(l.buf), bound)
		}
		switch {
		case err == nil:
			got = append(got, fmt.Sprintf("%q", line))
		case errors.Is(err, ErrLineTooLong):
			preview := fmt.Sprintf("%q", l.Preview(4))
			if _, again := l.ReadLine(); !errors.Is(again, ErrLineTooLong) {
				t.Fatalf("a second ReadLine gave %v", again)
			}
			n, err := l.SkipLine()
			if err != nil {
				t.Fatalf("SkipLine: %v", err)
			}
			got = append(got, fmt.Sprintf("too long: %d %s", n, preview))
		case errors.Is(err, io.EOF):
			if again, err := l.ReadLine(); len(again) > 0 || !errors.Is(err, io.EOF) {
				t.Fatalf("after the end: %q, %v", again, err)
			}
			return got
		default:
			t.Fatalf("ReadLine: %v (ready %t)", err, ready)
		}
	}
}

func equalLines(got, want []string) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("line %d is missing: %s", i, want[i])
		case i >= len(want):
			return fmt.Errorf("line %d is too much: %s", i, got[i])
		case got[i] != want[i]:
			return fmt.Errorf("line %d is %s, want %s", i, got[i], want[i])
		}
	}
	return nil
}

// Proves I-P2: no line over its limit is buffered, and it is never silence.
func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct{ name, data string }{
		{"empty", ""},
		{"lines", "a\nbc\n\nd\n"},
		{"last without LF", "a\nb"},
		{"CR is kept", "a\r\nb\r"},
		{"separators", "a\u2028b\u2029c\x85\x0b\x0c\n"},
		{"at the bound", long[:16] + "\n" + long[:16]},
		{"over the bound", long[:17] + "\nafter\n"},
		{"far over the bound", long + "\nafter\n" + long + long + "\n" + long},
		{"over the bound at the end", "a\n" + long[:17]},
		{"LFs only", "\n\n\n"},
	} {
		for _, initial := range []int{0, 1, 2, 7, 16, 64} {
			for name, wrap := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r },
				"bytes": iotest.OneByteReader,
				"half":  iotest.HalfReader,
				"err":   iotest.DataErrReader,
			} {
				l := NewLineReader(wrap(strings.NewReader(c.data)), 16, initial)
				if err := equalLines(readAll(t, l, 16), lineModel([]byte(c.data), 16)); err != nil {
					t.Errorf("%s, %s, initial %d: %v", c.name, name, initial, err)
				}
			}
		}
	}
}

func TestLineReaderShrinks(t *testing.T) {
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	long := strings.Repeat("x", 200<<10)
	go func() {
		// The errors come from the closed pipe when the test has failed already.
		_, _ = io.WriteString(w, long+"\n")
		_, _ = io.WriteString(w, "short\n")
		_ = w.Close()
	}()
	l := NewLineReader(r, RequestBytesDefault, 0)
	if len(l.buf) > 1<<10 {
		t.Errorf("a new reader has %d bytes, want at most 1 KiB", len(l.buf))
	}
	if line, err := l.ReadLine(); err != nil || string(line) != long {
		t.Fatalf("long line: %d bytes, %v", len(line), err)
	}
	if line, err := l.ReadLine(); err != nil || string(line) != "short" {
		t.Fatalf("short line: %q, %v", line, err)
	}
	if len(l.buf) > 1<<10 {
		t.Errorf("the idle reader has %d bytes, want at most 1 KiB", len(l.buf))
	}
}

func TestLineReaderSkipShrinks(t *testing.T) {
	l := NewLineReader(strings.NewReader(strings.Repeat("x", 1<<20)), 64<<10, 0)
	if _, err := l.ReadLine(); !errors.Is(err, ErrLineTooLong) {
		t.Fatal(err)
	}
	if n, err := l.SkipLine(); n != 1<<20 || err != nil {
		t.Fatalf("SkipLine = %d, %v", n, err)
	}
	if len(l.buf) > 1<<10 {
		t.Errorf("the reader kept %d bytes while it skipped", len(l.buf))
	}
}

func TestLineReaderReady(t *testing.T) {
	l := NewLineReader(io.MultiReader(strings.NewReader("a\nb\nc"), strings.NewReader("\n")), 10, 0)
	if l.Ready() {
		t.Error("ready before the first read")
	}
	for i, want := range []bool{true, false, false} {
		if _, err := l.ReadLine(); err != nil {
			t.Fatal(err)
		}
		if got := l.Ready(); got != want {
			t.Errorf("ready after line %d: %t, want %t", i, got, want)
		}
	}
}

func TestLineReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	l := NewLineReader(io.MultiReader(strings.NewReader("whole\npart"), iotest.ErrReader(broken)), 100, 0)
	if line, err := l.ReadLine(); err != nil || string(line) != "whole" {
		t.Fatalf("%q, %v", line, err)
	}
	if line, err := l.ReadLine(); len(line) > 0 || !errors.Is(err, broken) {
		t.Errorf("half a line of a broken stream: %q, %v", line, err)
	}
	l = NewLineReader(io.MultiReader(strings.NewReader("too long"), iotest.ErrReader(broken)), 3, 0)
	if _, err := l.ReadLine(); !errors.Is(err, ErrLineTooLong) {
		t.Errorf("over-long: %v", err)
	}
	if _, err := l.SkipLine(); !errors.Is(err, broken) {
		t.Errorf("SkipLine: %v", err)
	}
	if _, err := NewLineReader(silent{}, 3, 0).ReadLine(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that returns nothing: %v", err)
	}
}

// silent returns nothing and no error.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestTrimLine(t *testing.T) {
	for _, c := range []struct {
		in    string
		first bool
		want  string
	}{
		{"a\r", false, "a"},
		{"a\r\r", false, "a\r"},
		{"\r", true, ""},
		{"\xef\xbb\xbfa\r", true, "a"},
		{"\xef\xbb\xbfa", false, "\xef\xbb\xbfa"},
		{"\xef\xbb\xbf", true, ""},
		{"\xef\xbb", true, "\xef\xbb"},
		{"", true, ""},
	} {
		if got := string(TrimLine([]byte(c.in), c.first)); got != c.want {
			t.Errorf("TrimLine(%q, %t) = %q, want %q", c.in, c.first, got, c.want)
		}
	}
}

// chunks is a reader that returns data in pieces of the given sizes, in turn.
type chunks struct {
	data  []byte
	sizes []byte
	turn  int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(c.data)
	if len(c.sizes) > 0 {
		n = int(c.sizes[c.turn%len(c.sizes)])%32 + 1
		c.turn++
	}
	n = copy(p, c.data[:min(n, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

// FuzzLineSplit checks that no chunking and no buffer changes the lines.
func FuzzLineSplit(f *testing.F) {
	f.Add([]byte("a\nbc\r\n\nlooooooong\nlast"), []byte{1, 5}, uint8(4), uint8(1))
	f.Add(bytes.Repeat([]byte("0123456789\n"), 20), []byte{31}, uint8(10), uint8(3))
	f.Fuzz(func(t *testing.T, data, sizes []byte, bound, initial uint8) {
		limit := int(bound) + 1
		l := NewLineReader(&chunks{data: data, sizes: sizes}, limit, int(initial))
		if err := equalLines(readAll(t, l, limit), lineModel(data, limit)); err != nil {
			t.Fatal(err)
		}
	})
}
