package attach_test

import (
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// terminal is as much of a VT100 as attach uses under TERM=vt100: text, cursor
// movement and erasing. What it does not know it notes in unknown.
type terminal struct {
	mu      sync.Mutex
	cells   [][]rune
	row     int
	col     int
	top     int    // first row that scrolls
	bottom  int    // last row that does
	insert  bool   // characters push the rest of the row to the right
	pending []byte // an unfinished sequence or character
	unknown []string
}

func newTerminal(rows, cols int) *terminal {
	t := &terminal{}
	t.resize(rows, cols)
	return t
}

func (t *terminal) resize(rows, cols int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cells := make([][]rune, rows)
	for r := range cells {
		cells[r] = []rune(strings.Repeat(" ", cols))
		if r < len(t.cells) {
			copy(cells[r], t.cells[r])
		}
	}
	t.cells = cells
	t.top, t.bottom = 0, rows-1
	t.row, t.col = min(t.row, rows-1), min(t.col, cols-1)
}

// String is the screen, one line per row, without trailing blanks.
func (t *terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := make([]string, len(t.cells))
	for r, row := range t.cells {
		lines[r] = strings.TrimRight(string(row), " ")
	}
	return strings.Join(lines, "\n")
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(t.pending, p...)
	for len(t.pending) > 0 {
		n := t.step(t.pending)
		if n == 0 {
			break
		}
		t.pending = t.pending[n:]
	}
	return len(p), nil
}

// step takes one character or sequence; 0 when it is not whole yet.
func (t *terminal) step(b []byte) int {
	switch b[0] {
	case 0x1b:
		return t.escape(b)
	case '\r':
		t.col = 0
	case '\n':
		t.down()
	case '\b':
		t.col = max(0, t.col-1)
	case '\t':
		t.col = min(len(t.cells[0])-1, (t.col/8+1)*8)
	case 0x07, 0x0e, 0x0f:
	default:
		if !utf8.FullRune(b) {
			return 0
		}
		r, n := utf8.DecodeRune(b)
		t.put(r)
		return n
	}
	return 1
}

func (t *terminal) put(r rune) {
	if t.col >= len(t.cells[0]) {
		t.col = 0
		t.down()
	}
	if row := t.cells[t.row]; t.insert {
		copy(row[t.col+1:], row[t.col:])
	}
	t.cells[t.row][t.col] = r
	t.col++
}

func (t *terminal) down() {
	switch {
	case t.row == t.bottom:
		t.roll(t.top, 1)
	case t.row < len(t.cells)-1:
		t.row++
	}
}

// roll moves the rows from first to the bottom of the region up by n, or down by
// -n.
func (t *terminal) roll(first, n int) {
	for ; n > 0; n-- {
		row := t.cells[first]
		copy(t.cells[first:t.bottom], t.cells[first+1:t.bottom+1])
		t.cells[t.bottom] = blank(row)
	}
	for ; n < 0; n++ {
		row := t.cells[t.bottom]
		copy(t.cells[first+1:t.bottom+1], t.cells[first:t.bottom])
		t.cells[first] = blank(row)
	}
}

func blank(row []rune) []rune {
	for i := range row {
		row[i] = ' '
	}
	return row
}

func (t *terminal) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				t.control(string(b[2:i]), b[i])
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_', '^': // up to BEL or ST
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
		}
		return 0
	case '(', ')':
		if len(b) < 3 {
			return 0
		}
		return 3
	case 'M':
		switch {
		case t.row == t.top:
			t.roll(t.top, -1)
		case t.row > 0:
			t.row--
		}
	case 'D':
		t.down()
	case '7', '8', '=', '>', '\\':
	default:
		t.unknown = append(t.unknown, string(b[:2]))
	}
	return 2
}

// control is a sequence of CSI, parameters and a final byte.
func (t *terminal) control(params string, final byte) {
	rows, cols := len(t.cells), len(t.cells[0])
	if strings.HasPrefix(params, "?") || strings.HasPrefix(params, ">") || strings.HasPrefix(params, "=") || strings.HasPrefix(params, "<") || final == 'm' || final == 'p' || final == 'q' || final == 't' || final == 'u' || final == 'n' || final == 'c' {
		return // modes, colours, questions
	}
	arg := func(i, d int) int {
		parts := strings.Split(params, ";")
		if i >= len(parts) {
			return d
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil || n == 0 && d > 0 {
			return d
		}
		return n
	}
	at := min(t.col, cols-1)
	switch final {
	case 'A':
		t.row = max(0, t.row-arg(0, 1))
	case 'B':
		t.row = min(rows-1, t.row+arg(0, 1))
	case 'C':
		t.col = min(cols-1, t.col+arg(0, 1))
	case 'D':
		t.col = max(0, at-arg(0, 1))
	case 'G', '`':
		t.col = min(cols, arg(0, 1)) - 1
	case 'd':
		t.row = min(rows, arg(0, 1)) - 1
	case 'H', 'f':
		t.row, t.col = min(rows, arg(0, 1))-1, min(cols, arg(1, 1))-1
	case 'J':
		switch arg(0, 0) {
		case 0:
			blank(t.cells[t.row][at:])
			for _, row := range t.cells[t.row+1:] {
				blank(row)
			}
		case 2, 3:
			for _, row := range t.cells {
				blank(row)
			}
		}
	case 'K':
		switch arg(0, 0) {
		case 0:
			blank(t.cells[t.row][at:])
		case 1:
			blank(t.cells[t.row][:at+1])
		case 2:
			blank(t.cells[t.row])
		}
	case 'X':
		blank(t.cells[t.row][at:min(cols, at+arg(0, 1))])
	case 'P':
		row := t.cells[t.row]
		n := min(arg(0, 1), cols-at)
		copy(row[at:], row[at+n:])
		blank(row[cols-n:])
	case '@':
		row := t.cells[t.row]
		n := min(arg(0, 1), cols-at)
		copy(row[at+n:], row[at:])
		blank(row[at : at+n])
	case 'L':
		t.roll(t.row, -arg(0, 1))
	case 'M':
		t.roll(t.row, arg(0, 1))
	case 'S':
		t.roll(t.top, arg(0, 1))
	case 'T':
		t.roll(t.top, -arg(0, 1))
	case 'r':
		t.top, t.bottom = arg(0, 1)-1, min(rows, arg(1, rows))-1
		t.row, t.col = 0, 0
	case 'h', 'l':
		if params == "4" {
			t.insert = final == 'h'
		}
	default:
		t.unknown = append(t.unknown, "CSI "+params+string(final))
	}
}
