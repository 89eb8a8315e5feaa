package protocol

import (
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong is returned by ReadLine as soon as a line passes the bound,
// while the line may still be arriving. Reading the same line again does not help.
var ErrLineTooLong = errors.New("protocol: line too long")

// lineBufferDefault is the starting buffer of a LineReader: most requests fit,
// and an idle connection costs little.
const lineBufferDefault = 512

// readsEmptyMax is how often a reader may return nothing without an error.
const readsEmptyMax = 100

// A LineReader splits a byte stream at LF (and only LF) with a bound on a line
// (I-P2). It is for one goroutine. The buffer starts small, doubles up to the
// longest line and, once it is empty, goes back to where it started; it never
// holds more than the bound and one byte.
type LineReader struct {
	r        io.Reader
	max      int
	small    []byte // the starting buffer, kept while a larger one is in use
	buf      []byte
	start    int // of what is not returned yet
	searched int // no LF in buf[start:searched]
	end      int
	long     bool  // the line at start passed the bound
	err      error // of r; what is buffered comes first
}

// NewLineReader returns a reader of lines of at most max bytes without their LF.
// Initial is the starting buffer; zero means 512 bytes.
func NewLineReader(r io.Reader, max, initial int) *LineReader {
	if initial <= 0 {
		initial = lineBufferDefault
	}
	small := make([]byte, min(initial, max+1))
	return &LineReader{r: r, max: max, small: small, buf: small}
}

// ReadLine returns the next line without LF (a CR is kept), valid until the next
// call. The last line without LF counts at EOF; then io.EOF. Any other error of
// the reader is returned in place of an unfinished line. After ErrLineTooLong,
// Preview returns what was kept of the head of the line and SkipLine discards
// the rest; without SkipLine, ErrLineTooLong is returned again.
func (l *LineReader) ReadLine() ([]byte, error) {
	for {
		if l.hasLF() {
			line := l.buf[l.start:l.searched]
			l.start = l.searched + 1
			l.searched = l.start
			return line, nil
		}
		if l.end-l.start > l.max {
			l.long = true
			return nil, ErrLineTooLong
		}
		if l.err != nil {
			line := l.buf[l.start:l.end]
			l.start, l.searched = l.end, l.end
			if len(line) > 0 && l.err == io.EOF { //nolint:errorlint // io.Reader says io.EOF itself
				return line, nil
			}
			return nil, l.err
		}
		l.fill()
	}
}

// Preview returns up to n bytes of the head of the line that ReadLine called too
// long, at most one more than the bound; valid until SkipLine.
func (l *LineReader) Preview(n int) []byte {
	return l.buf[l.start : l.start+min(n, l.end-l.start)]
}

// SkipLine discards the line that comes next, whatever its length, and returns
// its whole length without LF. The end of input ends a line without error.
func (l *LineReader) SkipLine() (int64, error) {
	l.long = false
	var length int64
	for {
		if l.hasLF() {
			length += int64(l.searched - l.start)
			l.start = l.searched + 1
			l.searched = l.start
			return length, nil
		}
		length += int64(l.end - l.start)
		l.start, l.searched = l.end, l.end
		switch {
		case l.err == io.EOF: //nolint:errorlint // io.Reader says io.EOF itself
			return length, nil
		case l.err != nil:
			return length, l.err
		}
		l.fill()
	}
}

// Ready reports whether ReadLine will not block: a whole line, a line that is
// too long, or the end of input is in the buffer.
func (l *LineReader) Ready() bool {
	return l.hasLF() || l.err != nil || l.end-l.start > l.max
}

// hasLF reports whether a whole line is in the buffer; its LF is then at searched.
func (l *LineReader) hasLF() bool {
	if l.long {
		return false
	}
	n := bytes.IndexByte(l.buf[l.searched:l.end], '\n')
	if n < 0 {
		l.searched = l.end
		return false
	}
	l.searched += n
	return true
}

// fill makes room and reads once.
func (l *LineReader) fill() {
	switch {
	case l.start == l.end:
		l.buf, l.start, l.searched, l.end = l.small, 0, 0, 0
	case l.start > 0 && len(l.buf)-l.end < len(l.buf)/2:
		l.move(l.buf)
	case l.end == len(l.buf):
		l.move(make([]byte, min(2*len(l.buf), l.max+1)))
	}
	for range readsEmptyMax {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}

// move brings what is buffered to the start of to.
func (l *LineReader) move(to []byte) {
	n := copy(to, l.buf[l.start:l.end])
	l.searched -= l.start
	l.buf, l.start, l.end = to, 0, n
}

var bom = []byte("\xef\xbb\xbf")

// TrimLine returns line without one trailing CR and, where it is the first line
// of its stream, without a UTF-8 byte order mark.
func TrimLine(line []byte, first bool) []byte {
	if first {
		line = bytes.TrimPrefix(line, bom)
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
