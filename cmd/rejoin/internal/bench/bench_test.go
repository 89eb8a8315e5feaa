package bench

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

const testEpoch = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// wireOf is what a server sends of lines one to n, and their digest.
func wireOf(n int) (string, Digest) {
	var b strings.Builder
	l := NewLines(LineBytes)
	for i := range n {
		epoch := ""
		if i == 0 {
			epoch = fmt.Sprintf(`"epoch":%q,`, testEpoch)
		}
		fmt.Fprintf(&b, `%s7,"sessionId":"s",%s"seq":%d,"ts":1,"run":1,"source":"child","event":%s}}`+"\n", eventStart, epoch, i+2, l.Append(nil, 0))
	}
	return b.String(), l.Digest()
}

// TestLinkDoubts: a client of a row finds what a server could do wrong.
func TestLinkDoubts(t *testing.T) {
	good, digest := wireOf(5)
	lines := strings.SplitAfter(good, "\n")
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"as it was":         {good, nil},
		"an event missing":  {strings.Replace(good, lines[2], "", 1), errSeq},
		"an event twice":    {strings.Replace(good, lines[2], lines[2]+lines[2], 1), errSeq},
		"two exchanged":     {lines[0] + lines[2] + lines[1] + lines[3] + lines[4], errSeq},
		"a line missing":    {renumbered(lines[0] + lines[1] + lines[3] + lines[4]), errGap},
		"a line twice":      {renumbered(lines[0] + lines[1] + lines[1] + lines[2] + lines[3] + lines[4]), errTwice},
		"the end missing":   {lines[0] + lines[1] + lines[2] + lines[3], errGap},
		"a byte changed":    {strings.Replace(good, "the", "The", 1), errForm},
		"a byte missing":    {strings.Replace(good, " the", "the", 1), errForm},
		"another epoch":     {strings.Replace(good, testEpoch, "01K"+testEpoch[3:], 1), errEpoch},
		"the end of a line": {strings.Replace(good, "}}\n", "}\n", 1), errForm},
	} {
		o := NewObserver(LineBytes)
		o.seq, o.epoch = 1, testEpoch
		tp := &tap{o, []byte(eventStart + `7,"sessionId":"s",`)}
		l := &link{only: tp, taps: map[uint64]*tap{7: tp}}
		var got error
		for b := []byte(c.wire); len(b) > 0 && got == nil; { // as it comes: in pieces
			piece := min(len(b), 700)
			used, err := l.take(b[:piece])
			if used == 0 && err == nil {
				t.Fatalf("%s: nothing was used of %q", name, b)
			}
			b, got = b[used:], err
		}
		if got == nil {
			got = o.Check(t.Context(), digest)
		}
		if !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// renumbered gives events dense seqs again, as a server would that lost a line
// before it had one.
func renumbered(wire string) string {
	var b strings.Builder
	for i, line := range strings.SplitAfter(strings.TrimSuffix(wire, "\n"), "\n") {
		before, rest, _ := strings.Cut(line, seqKey)
		_, after, _ := strings.Cut(rest, ",")
		fmt.Fprintf(&b, "%s%s%d,%s", before, seqKey, i+2, after)
	}
	return b.String() + "\n"
}

// TestScanDoubts: the same for any other protocol.
func TestScanDoubts(t *testing.T) {
	l := NewLines(LineBytes)
	var lines []string
	for range 4 {
		lines = append(lines, "PUB x 250\r\n"+string(l.Append(nil, 0))+"\r\n")
	}
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"as it was":      {strings.Join(lines, ""), nil},
		"one missing":    {lines[0] + lines[2] + lines[3], errGap},
		"one twice":      {lines[0] + lines[0] + lines[1] + lines[2] + lines[3], errTwice},
		"a byte changed": {strings.Replace(strings.Join(lines, ""), "the", "The", 1), errForm},
		"the end":        {lines[0] + lines[1] + lines[2], errGap},
	} {
		o := NewObserver(LineBytes)
		var have []byte
		for _, piece := range []byte(c.wire) {
			have = append(have, piece)
			used, err := o.Scan(have)
			if err != nil {
				t.Fatal(err)
			}
			have = have[used:]
		}
		if got := o.Check(t.Context(), l.Digest()); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSnapshotDoubts: a state must be of its seq and its hash.
func TestSnapshotDoubts(t *testing.T) {
	const good = snapshotStart + `,"params":{"seq":9,"stateHash":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","state":{}}}`
	if err := checkSnapshot([]byte(good), 9); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{strings.Replace(good, "{}", "{ }", 1), strings.Replace(good, "4413", "4414", 1), good[:len(good)-1]} {
		if err := checkSnapshot([]byte(bad), 9); !errors.Is(err, errState) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := checkSnapshot([]byte(good), 8); !errors.Is(err, errState) {
		t.Errorf("of another seq: %v", err)
	}
}

// TestDigestOf: the digest of a part is that of the lines in it.
func TestDigestOf(t *testing.T) {
	l, o := NewLines(99), NewObserver(99)
	for range 10 {
		if line := l.Append(nil, 0); l.n > 6 {
			o.last = l.n - 1
			o.line(line)
		}
	}
	if err := o.Check(t.Context(), digestOf(7, 10, 99)); err != nil {
		t.Error(err)
	}
	if err := o.Check(t.Context(), digestOf(6, 10, 99)); !errors.Is(err, errForm) {
		t.Errorf("of another part: %v", err)
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * 10 * time.Microsecond)
	}
	for q, want := range map[float64]float64{0.5: 5, 0.99: 9.9} {
		if got := h.quantile(q); math.Abs(got-want) > want/30 {
			t.Errorf("quantile %v: %v ms, want %v", q, got, want)
		}
	}
	var none Histogram
	if got := none.quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// TestBounds: every bound is of a row that there is, and says which way it holds.
func TestBounds(t *testing.T) {
	for _, b := range targets {
		if _, err := choose([]string{b.row}); err != nil {
			t.Errorf("%s %s: %v", b.row, b.figure, err)
		}
	}
	least, most := &Bound{true, 3}, &Bound{false, 3}
	for v, want := range map[float64][2]bool{2: {false, true}, 3: {true, true}, 4: {true, false}} {
		if got := [2]bool{least.holds(v), most.holds(v)}; got != want {
			t.Errorf("%v: %v, want %v", v, got, want)
		}
	}
	figures := []Figure{{Name: startClean}, {Name: startKilled}, {Name: heapPerEnded}, {Name: "another"}}
	if err := bounded(rowRestart, "always", figures); err != nil || figures[1].Must == nil || figures[1].Must.Value != 5 || figures[3].Must != nil {
		t.Errorf("bounds of a row: %+v, %v", figures, err)
	}
	if err := bounded(rowRestart, "always", figures[1:]); !errors.Is(err, errBound) {
		t.Errorf("a bound without its figure: %v", err)
	}
	if _, err := choose([]string{"nothing"}); !errors.Is(err, ErrNoRow) {
		t.Errorf("a row that there is not: %v", err)
	}
}

// TestRetried: what is refused for the moment is asked again and counted, anything
// else is not.
func TestRetried(t *testing.T) {
	var compared Tally
	ctx := WithTally(t.Context(), &compared)
	moment, forever := &refusal{Code: -32004}, &refusal{Code: -32003}
	moment.Data.Retryable = true
	for _, last := range []error{nil, forever} {
		answers := []error{fmt.Errorf("subscribe: %w", moment), moment, last}
		err := retried(ctx, func() error {
			a := answers[0]
			answers = answers[1:]
			return a
		})
		if !errors.Is(err, last) || len(answers) != 0 {
			t.Errorf("%v with %d answers left, want %v", err, len(answers), last)
		}
	}
	if n := compared.Checked().Retries; n != 4 {
		t.Errorf("%d retries were counted, want 4", n)
	}
}
