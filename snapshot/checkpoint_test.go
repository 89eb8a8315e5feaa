package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/agent/demo"
	"rejoin/agent/lines"
	"rejoin/agent/pi"
	"rejoin/journal"
	"rejoin/protocol"
)

const testEpoch = protocol.Epoch("01JZZZZZZZZZZZZZZZZZZZZZZZ")

var testFolds = Folds{"pi": pi.Adapter{}, "demo": demo.Adapter{}, "lines": lines.Adapter{}}

// trace returns the events of a recorded conversation with pi, as a log would
// hold them, between the broker's events.
func trace(tb testing.TB, file string) []protocol.Event {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var all []protocol.Event
	add := func(source protocol.Source, body string) {
		seq := protocol.Seq(len(all) + 1)
		all = append(all, protocol.Event{Seq: seq, TS: 1e12 + int64(seq), Run: 1, Source: source, Body: []byte(body)})
	}
	add(protocol.SourceBroker, `{"type":"session_start","agent":"pi","adapter":"pi","pid":1,"run":1,"title":"t"}`)
	for line := range bytes.Lines(text) {
		body := strings.TrimSuffix(string(line), "\n")
		var mark struct{ Dir, ID string }
		if strings.HasPrefix(body, `{"dir":`) {
			if err := json.Unmarshal([]byte(body), &mark); err != nil {
				tb.Fatal(err)
			}
		}
		switch {
		case mark.Dir == "exit":
			add(protocol.SourceBroker, `{"type":"session_interrupted","reason":"server_restart"}`)
			add(protocol.SourceBroker, `{"type":"session_resumed","run":2}`)
		case mark.ID != "":
			add(protocol.SourceBroker, fmt.Sprintf(`{"type":"interaction_resolved","interactionId":"1.%s","resolvedBy":"n","outcome":"allow"}`, mark.ID))
		default:
			add(protocol.SourceChild, body)
		}
		if len(all)%11 == 0 {
			id := fmt.Sprintf("c%d", len(all))
			add(protocol.SourceBroker, fmt.Sprintf(`{"type":"command","commandId":%q,"client":{"name":"n","connection":1},"verb":"prompt","params":{"text":"hi"}}`, id))
			add(protocol.SourceBroker, `{"type":"error","error":"invalid json","text":"x"}`)
		}
	}
	add(protocol.SourceBroker, `{"type":"session_end","reason":"exited","exitCode":1,"signal":null}`)
	return all
}

func traceFiles(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "agent", "pi", "testdata", "traces", "*.jsonl"))
	if err != nil || len(files) < 10 {
		tb.Fatalf("traces: %v, %v", files, err)
	}
	return files
}

// through returns a fold as it comes out of a stored checkpoint.
func through(tb testing.TB, s *protocol.State, g *Ledger) (*protocol.State, *Ledger) {
	tb.Helper()
	d := newDraft(testFolds, s, g, 1, 2, nil)
	d.hash = sha256.Sum256(d.state)
	d.place = journal.Place{Epoch: s.Epoch, Base: s.Seq, Last: s.Seq, Pos: 7}
	blob, err := encodeCheckpoint(&d.header, d.state, &d.ledger)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := decodeCheckpoint(blob)
	if err != nil {
		tb.Fatalf("decode at %d: %v", s.Seq, err)
	}
	if c.header != d.header {
		tb.Fatalf("header %+v, want %+v", c.header, d.header)
	}
	n := NewLedger()
	if err := n.restore(c.ledger.rest, false); err != nil {
		tb.Fatal(err)
	}
	n.resolved = c.ledger.resolved
	return c.state, n
}

// TestEveryStop: wherever a fold of a trace stops, becomes a checkpoint, is read
// back and goes on, every state after it is the same.
// Proves I-S2.
func TestEveryStop(t *testing.T) {
	for _, file := range traceFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			all := trace(t, file)
			hashes := make([]string, len(all))
			whole, ledger := New("s"), NewLedger()
			step, stepLedger := New("s"), NewLedger() // through bytes at every event
			for i := range all {
				testFolds.Apply(whole, testEpoch, &all[i])
				ledger.Apply(&all[i])
				hashes[i] = Hash(Encode(whole))
				testFolds.Apply(step, testEpoch, &all[i])
				stepLedger.Apply(&all[i])
				step, stepLedger = through(t, step, stepLedger)
				if got := Hash(Encode(step)); got != hashes[i] {
					t.Fatalf("event %d: in pieces\n%s\nat once\n%s", i+1, Encode(step), Encode(whole))
				}
			}
			if a, b := encodeLedger(&ledgerCut{rest: copyEntries(ledger.order)}), encodeLedger(&ledgerCut{rest: copyEntries(stepLedger.order)}); !bytes.Equal(a, b) {
				t.Error("the ledgers differ")
			}
			stride := max(1, len(all)/20)
			upTo := New("s")
			for stop := range all { // from each checkpoint to the end
				testFolds.Apply(upTo, testEpoch, &all[stop])
				if testing.Short() && stop%stride != 0 {
					continue
				}
				s, _ := through(t, upTo, NewLedger())
				for i := stop + 1; i < len(all); i++ {
					testFolds.Apply(s, testEpoch, &all[i])
					if (i%stride == 0 || i == len(all)-1) && Hash(Encode(s)) != hashes[i] {
						t.Fatalf("stopped at %d, event %d differs", stop+1, i+1)
					}
				}
			}
		})
	}
}

// busyState is a state with something everywhere.
func busyState(rnd *rand.Rand, items, text int) *protocol.State {
	s := New("s\u2028<&>")
	s.Epoch, s.Seq, s.Run, s.Status = testEpoch, 9, 3, protocol.StatusBusy
	s.Turn = &protocol.Turn{ID: "t7", StartedSeq: 7}
	s.Agent = protocol.StateAgent{Name: "a", Adapter: "pi", Model: "m"}
	s.Title = "title \"\\\x01\x7f\t\n"
	for i := range items {
		it := protocol.Item{ID: fmt.Sprintf("i%d", i), Kind: protocol.ItemAssistant, Status: protocol.ItemDone, FirstSeq: 1, LastSeq: protocol.Seq(i), TS: -int64(i)}
		if i%3 == 0 {
			it.Kind, it.Tool = protocol.ItemToolCall, &protocol.ItemTool{Name: "bash", CallID: "c", Args: `{"x":1}`, Output: words(rnd, text), IsError: i%2 == 0, ArgsTruncated: uint64(i)}
			it.Truncated = uint64(i)
		} else {
			it.Text = words(rnd, text)
		}
		s.Items = append(s.Items, it)
	}
	s.ItemsDropped = 12
	s.Pending = append(s.Pending,
		protocol.Interaction{InteractionID: "1.a", Kind: "select", Title: "t", Message: "m", Truncated: 6, OptionsOmitted: 7, Options: []protocol.Option{{ID: "0", Label: "é"}, {ID: "1"}}, Tool: "x", Seq: 3, TS: 4, Deadline: 5},
		protocol.Interaction{InteractionID: "1.b", Kind: "input"})
	s.Queue = protocol.Queue{Steering: []string{"a", ""}, FollowUp: []string{"b"}}
	s.Usage = &protocol.Usage{InputTokens: 1, OutputTokens: math.MaxUint64, CostUSD: 0.1 + 0.2}
	code := 3
	s.Exit = &protocol.StateExit{Code: &code, Reason: "exited"}
	s.Extra = &protocol.StateExtra{AgentSession: "/x", Thinking: "high", Settles: true, Asked: "0123abcd", Open: []protocol.OpenItem{{Name: "n", Item: "i1"}}, Notes: []protocol.Note{{Key: "k<", Text: "v"}}}
	return s
}

func words(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "word%d ", rnd.IntN(5000))
	}
	return b.String()
}

// TestEncodeIsJSON compares the encoder with that of the standard library.
func TestEncodeIsJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	full := busyState(rnd, 12, 40)
	bare := New("")
	part := busyState(rnd, 0, 0)
	part.Usage, part.Exit, part.Extra, part.Turn, part.Title = nil, &protocol.StateExit{}, &protocol.StateExtra{}, nil, ""
	for _, s := range []*protocol.State{full, bare, part} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		var want, got any
		if err := json.Unmarshal(b.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		mine := Encode(s)
		if err := json.Unmarshal(mine, &got); err != nil {
			t.Fatalf("%v: %s", err, mine)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if reference, err := json.Marshal(want); err != nil || !bytes.Equal(again, reference) {
			t.Errorf("got %s\nwant %s", again, reference)
		}
		if d, err := Decode(mine); err != nil || !bytes.Equal(Encode(d), mine) {
			t.Errorf("decode: %v", err)
		}
	}
}

// TestDecodeIsStrict refuses what Encode does not make.
func TestDecodeIsStrict(t *testing.T) {
	good := string(Encode(busyState(rand.New(rand.NewPCG(1, 2)), 2, 10)))
	for name, bad := range map[string]string{
		"white space":    " " + good,
		"trailing":       good + "{}",
		"unknown member": strings.Replace(good, `"seq":9`, `"seq":9,"more":1`, 1),
		"other case":     strings.Replace(good, `"seq":9`, `"Seq":9`, 1),
		"twice":          strings.Replace(good, `"seq":9`, `"seq":8,"seq":9`, 1),
		"other order":    strings.Replace(good, `"seq":9,"run":3`, `"run":3,"seq":9`, 1),
		"null list":      strings.Replace(good, `"steering":["a",""]`, `"steering":null`, 1),
		"escape":         strings.Replace(good, `"busy"`, `"\u0062usy"`, 1),
		"number":         strings.Replace(good, `"seq":9`, `"seq":9e0`, 1),
		"cut":            good[:len(good)-1],
		"empty":          "",
	} {
		if bad == good {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func testCheckpoint(tb testing.TB) []byte {
	tb.Helper()
	s := busyState(rand.New(rand.NewPCG(1, 2)), 6, 100)
	g := NewLedger()
	for i := range pageEntries + 10 {
		g.add(fmt.Sprintf("c%d", i), Admitted{Seq: protocol.Seq(i + 1), Outcome: outcomes[i%len(outcomes)], Held: i%2 == 0, Result: protocol.RawJSON(`{"a":1}`)})
	}
	g.resolve(protocol.InteractionResolved{Type: "t", InteractionID: "1.a", ResolvedBy: "n", Outcome: "allow"})
	d := newDraft(testFolds, s, g, 5, 6, nil)
	if d.pages != 1 || len(d.ledger.changed) != 1 || len(d.ledger.rest) != 10 {
		tb.Fatalf("pages %d, changed %d, rest %d", d.pages, len(d.ledger.changed), len(d.ledger.rest))
	}
	d.hash = sha256.Sum256(d.state)
	d.place = journal.Place{Epoch: testEpoch, Base: 4, Last: 12, Pos: 7, Sum: [32]byte{1, 2}}
	b, err := encodeCheckpoint(&d.header, d.state, &d.ledger)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestEveryByteCounts flips each byte of a checkpoint and of a page.
func TestEveryByteCounts(t *testing.T) {
	good := testCheckpoint(t)
	if _, err := decodeCheckpoint(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := decodeCheckpoint(bad); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d of a checkpoint: %v", i, err)
		}
	}
	for n := range good {
		if _, err := decodeCheckpoint(good[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d bytes of a checkpoint: %v", n, err)
		}
	}
	page := testPage()
	if _, err := decodePage(page); err != nil {
		t.Fatal(err)
	}
	for i := range page {
		bad := bytes.Clone(page)
		bad[i] ^= 0x10
		if _, err := decodePage(bad); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d of a page: %v", i, err)
		}
	}
}

func testPage() []byte {
	g := NewLedger()
	for i := range pageEntries {
		g.add(fmt.Sprintf("c%d", i), Admitted{Seq: protocol.Seq(i + 1), Outcome: protocol.OutcomeDone})
	}
	return encodePage(g.cut(nil).changed[0])
}

// FuzzCheckpoint: whatever the bytes, decoding does not panic, and what it
// accepts is what it encodes. Checksum and hash are put right first, so that the
// rest of the decoder is reached.
func FuzzCheckpoint(f *testing.F) {
	good := testCheckpoint(f)
	f.Add(good, []byte(nil))
	f.Add(good[:checkpointHeader], []byte(`{}`))
	f.Add([]byte{}, Encode(New("s")))
	f.Fuzz(func(t *testing.T, b, state []byte) {
		_, _ = decodeCheckpoint(b) // total
		if len(b) >= checkpointHeader {
			fixed := bytes.Clone(b)
			binary.BigEndian.PutUint32(fixed[checkpointCRC:], checkpointSum(fixed))
			accepted(t, fixed)
		}
		if s, err := Decode(state); err == nil && !bytes.Equal(Encode(s), state) {
			t.Error("a state is accepted that Encode does not make")
		}
		h := header{epoch: testEpoch, seq: 1, fold: protocol.FoldVersion{Adapter: "pi"}, place: journal.Place{Base: 1, Last: 1}}
		h.hash = sha256.Sum256(state)
		if made, err := encodeCheckpoint(&h, state, &ledgerCut{}); err == nil {
			accepted(t, made)
		}
		_, _ = decodeLedger(b)
		if len(b) >= pageHeader {
			page := bytes.Clone(b)
			copy(page, "RL\x01\x00")
			binary.BigEndian.PutUint32(page[4:], crc32.Checksum(page[pageHeader:], castagnoli))
			_, _ = decodePage(page)
		}
	})
}

// accepted checks a checkpoint that decodes.
func accepted(t *testing.T, b []byte) {
	t.Helper()
	c, err := decodeCheckpoint(b)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("error %v", err)
		}
		return
	}
	again, err := encodeCheckpoint(&c.header, Encode(c.state), &c.ledger)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := decodeCheckpoint(again); err != nil || d.header != c.header || !bytes.Equal(Encode(d.state), c.encoded) {
		t.Errorf("it does not encode to itself: %v", err)
	}
}
