package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
)

// A line is {"type":"bench","n":"<10 digits>","t":"<19 digits>","text":"…"}: its
// number from 1, and when it was printed in ns since 1970, 0 where latency is not
// asked for, so that lines that were not timed can be made again.
const (
	lineStart = `{"type":"bench","n":"`
	lineMid   = `","t":"`
	lineText  = `","text":"`
	lineEnd   = `"}`

	numberDigits = 10
	timeDigits   = 19
	numberAt     = len(lineStart)
	timeAt       = numberAt + numberDigits + len(lineMid)
	textAt       = timeAt + timeDigits + len(lineText)
)

// LineBytes is the size of a line unless said otherwise: a typical streamed event.
const LineBytes = 250

// prose is what lines carry: words, about as compressible as what agents print.
var prose = func() string {
	words := strings.Fields("the a file test error return value of reads writes line function package error nil context buffer " +
		"client server event session and then so that when it is not found run build fix change look at why because two")
	var b strings.Builder
	x := uint32(2463534242) // xorshift: the same text everywhere
	for b.Len() < 64<<10 {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b.WriteString(words[x%uint32(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}()

// Lines makes the numbered lines of one stream and keeps their SHA-256. It is for
// one goroutine.
type Lines struct {
	size int
	n    int64
	sum  hash.Hash
}

// NewLines begins a stream of lines of so many bytes, without their LF.
func NewLines(size int) *Lines { return &Lines{size: size, sum: sha256.New()} }

// Append appends the next line without LF; at is its time, 0 for none.
func (l *Lines) Append(dst []byte, at int64) []byte {
	l.n++
	from := len(dst)
	dst = appendLine(dst, l.n, at, l.size)
	l.sum.Write(dst[from:])
	return dst
}

// Digest is how many lines there were, and the SHA-256 of all their bytes.
func (l *Lines) Digest() Digest { return Digest{l.n, hex.EncodeToString(l.sum.Sum(nil))} }

// Digest is what a stream's lines add up to.
type Digest struct {
	Lines int64
	Sum   string // SHA-256 in hex
}

// digestOf is the digest of the untimed lines from one to another.
func digestOf(from, to int64, size int) Digest {
	sum := sha256.New()
	var b []byte
	for n := from; n <= to; n++ {
		b = appendLine(b[:0], n, 0, size)
		sum.Write(b)
	}
	return Digest{to, hex.EncodeToString(sum.Sum(nil))}
}

func appendLine(dst []byte, n, at int64, size int) []byte {
	dst = append(dst, lineStart...)
	dst = appendDigits(dst, n, numberDigits)
	dst = append(dst, lineMid...)
	dst = appendDigits(dst, at, timeDigits)
	dst = append(dst, lineText...)
	text := max(0, size-textAt-len(lineEnd))
	from := int(n*31) % (len(prose) - text)
	dst = append(dst, prose[from:from+text]...)
	return append(dst, lineEnd...)
}

func appendDigits(dst []byte, v int64, digits int) []byte {
	var b [timeDigits]byte
	for i := digits - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, b[:digits]...)
}

// parseDigits reads a number that appendDigits wrote.
func parseDigits(b []byte) (v int64) {
	for _, c := range b {
		v = v*10 + int64(c-'0')
	}
	return v
}
