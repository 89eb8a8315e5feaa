package guard_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// printer starts a session whose child prints n numbered lines and then stays.
func printer(t *testing.T, c *harness.Client, id string, n int) {
	t.Helper()
	script := fmt.Sprintf(`i=1; while [ $i -le %d ]; do echo '{"line":'$i'}'; i=$((i+1)); [ $((i %% 20)) = 0 ] && sleep 0.02; done; echo '{"line":"last"}'; exec cat`, n)
	_, err := c.Call(harness.Context(t), "start_session", map[string]any{"sessionId": id, "adapter": "jsonl", "argv": []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Subscribe(harness.Context(t), id, map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Until(harness.Context(t), func(e harness.Event) bool { return string(e.Body) == `{"line":"last"}` }); err != nil {
		t.Fatal(err)
	}
}

// spoil flips a bit of every record of a stream's blocks that want picks; a
// record's bytes begin with its header.
func spoil(t *testing.T, dir, stream string, want func(record []byte) bool) (hit int) {
	t.Helper()
	for _, path := range blocks(t, dir, stream) {
		change(t, path, func(b []byte) []byte {
			for at := 0; at+30 <= len(b); {
				n := int(binary.LittleEndian.Uint32(b[at:]) &^ (1 << 31))
				if at+n > len(b) {
					break
				}
				if want(b[at : at+n]) {
					b[at+n-12] ^= 1
					hit++
				}
				at += n
			}
			return b
		})
	}
	return hit
}

// TestSessionsAfterDamage: of a server that was killed, records of one session
// and the registry's entry of another are damaged. The next server has all of
// them: one with two holes that its readers are taken across, one with an
// entry made from its log.
func TestSessionsAfterDamage(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--durability", "1s"}})
	c := harness.Dial(t, s)
	for _, id := range []string{"whole", "holed", "absent", "cut"} {
		printer(t, c, id, 400)
	}
	s.Kill9()
	last, records := 0, 0
	count := func(stream string, of string) {
		spoil(t, s.Dir, stream, func(r []byte) bool {
			if bytes.Contains(r[:min(len(r), 60)], []byte(".default."+of)) {
				records++
			}
			return false
		})
	}
	for k := range 8 {
		stream := fmt.Sprintf("J%d", k)
		records, last = 0, 0
		count(stream, "holed")
		if records > 6 {
			spoil(t, s.Dir, stream, func(r []byte) bool {
				if !bytes.Contains(r[:min(len(r), 60)], []byte(".default.holed")) {
					return false
				}
				last++
				return last == records/3 || last == 2*records/3
			})
		}
		records, last = 0, 0
		count(stream, "cut")
		spoil(t, s.Dir, stream, func(r []byte) bool {
			if !bytes.Contains(r[:min(len(r), 60)], []byte(".default.cut")) {
				return false
			}
			last++
			return last == records
		})
	}
	if hit := spoil(t, s.Dir, "KV_sessions", func(r []byte) bool { return bytes.Contains(r, []byte("$KV.sessions.default.absent")) }); hit == 0 {
		t.Fatal("the registry has no entry of the session")
	}
	s.Run()
	c = harness.Dial(t, s)

	var list []struct{ ID string }
	all, err := c.Call(harness.Context(t), "list_sessions", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all, &list); err != nil || len(list) != 4 {
		t.Fatalf("list_sessions: %s, %v", all, err)
	}
	for _, id := range []string{"whole", "absent"} {
		if bodies := replay(t, c, id); !strings.Contains(bodies, `{"line":"last"}`) || strings.Count(bodies, `"line"`) != 401 {
			t.Errorf("%s: %d lines", id, strings.Count(bodies, `"line"`))
		}
		if problems := verify(t, c, id); problems != "" {
			t.Errorf("verify %s: %s", id, problems)
		}
	}
	st, err := c.Subscribe(harness.Context(t), "holed", map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := st.Snapshot(harness.Context(t), 0)
	if err != nil || snap.Reason != "damaged" {
		t.Errorf("snapshot %+v, %v", snap.Reason, err)
	}
	if problems := verify(t, c, "holed"); strings.Count(problems, " missing") != 2 || strings.Count(problems, "; ") != 1 {
		t.Errorf("verify does not name each hole, or not once: %s", problems)
	}
	acrossHoles(t, s)
	// Whose last record is gone begins a new epoch: its clients learn of it.
	info, err := c.Call(harness.Context(t), "read_events", map[string]any{"sessionId": "cut", "before": 1000})
	if err != nil || !strings.Contains(string(info), `"epoch_start"`) {
		t.Errorf("cut: %.300s, %v", info, err)
	}
	s.Says("session lost events", "one was made from its log")
	s.Restart()
	for _, id := range []string{"whole", "absent"} {
		if problems := verify(t, harness.Dial(t, s), id); problems != "" {
			t.Errorf("verify %s after another start: %s", id, problems)
		}
	}
}

var skipped = regexp.MustCompile(`^events? (\d+)(?: to (\d+))? (?:is|are) skipped \(damaged\)$`)

// acrossHoles: commands at the holes of the session "holed" say so, and show all that
// is before, between and behind them.
func acrossHoles(t *testing.T, s *harness.Server) {
	t.Helper()
	rejoin := func(args ...string) (out, said string, code int) {
		cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append(args, "--data-dir", s.Dir)...)
		var o, e strings.Builder
		cmd.Stdout, cmd.Stderr = &o, &e
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	if out, said, code := rejoin("snapshot", "holed"); code != 0 || !strings.Contains(out, "\nDamaged: a part of the history cannot be read") {
		t.Errorf("snapshot: %d, %s%s", code, out, said)
	}
	if out, said, code := rejoin("snapshot", "whole"); code != 0 || strings.Contains(out, "Damaged") {
		t.Errorf("snapshot of a whole session: %d, %s%s", code, out, said)
	}
	out, said, code := rejoin("events", "holed", "--json")
	missing := map[int]bool{}
	holes := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	var hole [2]int // the last one
	for _, line := range holes {
		m := skipped.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("events says %q", line)
		}
		for i, digits := range m[1:] {
			if n, err := strconv.Atoi(digits); err == nil {
				hole[i] = n
			} else {
				hole[i] = hole[0] // it is one event
			}
		}
		for seq := hole[0]; seq <= hole[1]; seq++ {
			missing[seq] = true
		}
	}
	if code != 1 || len(holes) != 2 || !strings.Contains(out, `{"line":"last"}`) {
		t.Errorf("events: %d, %s%.300s", code, said, out)
	}
	seq := 0
	for line := range strings.Lines(out) {
		for seq++; missing[seq]; {
			seq++
		}
		if !strings.HasPrefix(line, fmt.Sprintf(`{"sessionId":"holed","seq":%d,`, seq)) {
			t.Fatalf("where event %d is due, events shows %s", seq, line)
		}
	}
	if _, attached, _ := rejoin("attach", "holed", "--after", "0"); !strings.HasPrefix(attached, said) {
		t.Errorf("attach: %q, events: %q", attached, said)
	}
	rest, said, code := rejoin("events", "holed", "--json", "--after", strconv.Itoa(hole[1]))
	if code != 0 || said != "" || !strings.HasSuffix(out, rest) || rest == "" {
		t.Errorf("behind the holes: %d, %s%.300s", code, said, rest)
	}
	if again, said, code := rejoin("events", "holed", "--json", "--after", strconv.Itoa(hole[1]-1)); code != 1 || said != fmt.Sprintf("event %d is skipped (damaged)\n", hole[1]) || again != rest {
		t.Errorf("the last event of the holes: %d, %s%.300s", code, said, again)
	}
}

// replay returns the bodies of a session from its first event on.
func replay(t *testing.T, c *harness.Client, id string) string {
	t.Helper()
	st, err := c.Subscribe(harness.Context(t), id, map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Attached().Mode; mode != "replay" {
		t.Errorf("%s: mode %s", id, mode)
	}
	head := st.Attached().Head
	events, err := st.Until(harness.Context(t), func(e harness.Event) bool { return e.Seq == head })
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range events {
		b.Write(e.Body)
	}
	return b.String()
}

// verify returns the problems of a session, "" when there are none.
func verify(t *testing.T, c *harness.Client, id string) string {
	t.Helper()
	answer, err := c.Call(harness.Context(t), "verify_session", map[string]any{"sessionId": id})
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Problems []string }
	if err := json.Unmarshal(answer, &report); err != nil {
		t.Fatal(err)
	}
	return strings.Join(report.Problems, "; ")
}
