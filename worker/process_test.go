package worker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rejoin/protocol"
)

func TestParseStat(t *testing.T) {
	const rest = " 42 43 44 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10"
	tests := []struct {
		name, stat string
		want       *process
	}{
		{"plain", "7 (sh) S" + rest, &process{pid: 7, ppid: 42, pgrp: 43, start: 987654}},
		{"name with anything", "7 (a) b) (c\n) R" + rest, &process{pid: 7, ppid: 42, pgrp: 43, start: 987654}},
		{"zombie", "7 (sh) Z" + rest, &process{pid: 7, ppid: 42, pgrp: 43, start: 987654, dead: true}},
		{"short", "7 (sh) S 1 2", nil},
		{"no name", "7 sh S", nil},
		{"no number", "7 (sh) S x 43 44 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000", nil},
		{"empty", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseStat(7, []byte(tt.stat))
			if ok != (tt.want != nil) || ok && *got != *tt.want {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
	self, ok := readStat(os.Getpid())
	if !ok || self.ppid != os.Getppid() || self.start == 0 || self.dead {
		t.Errorf("self: %+v", self)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 42 43 44 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(1, b); ok && p == nil {
			t.Error("ok without a process")
		}
	})
}

func TestParseMark(t *testing.T) {
	tests := []struct {
		name, environ string
		want          mark
		ours          bool
	}{
		{"ours", "A=1\x00REJOIN_SESSION=default/s\x00REJOIN_RUN=3\x00REJOIN_INSTANCE=X\x00", mark{"default/s", 3}, true},
		{"another's", "REJOIN_SESSION=default/s\x00REJOIN_RUN=3\x00REJOIN_INSTANCE=Y", mark{}, false},
		{"longer", "REJOIN_INSTANCE=XX", mark{}, false},
		{"inside another value", "A=REJOIN_INSTANCE=X", mark{}, false},
		{"none", "A=1", mark{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ours := parseMark([]byte(tt.environ), "X")
			if ours != tt.ours || ours && got != tt.want {
				t.Errorf("got %+v, %v", got, ours)
			}
		})
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add([]byte("A=1\x00REJOIN_SESSION=default/s\x00REJOIN_RUN=3\x00REJOIN_INSTANCE=X\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ours := parseMark(b, "X"); ours && !bytes.Contains(b, []byte("REJOIN_INSTANCE=X")) {
			t.Errorf("%q is none of ours", b)
		}
	})
}

// rollOf makes a roll of rows, as count does.
func rollOf(rows ...process) *roll {
	r := &roll{byPID: map[int]*process{}, children: map[int][]*process{}, groups: map[int][]*process{}, marked: map[mark][]*process{}}
	for _, row := range rows {
		p := &row
		r.byPID[p.pid] = p
		r.children[p.ppid] = append(r.children[p.ppid], p)
		r.groups[p.pgrp] = append(r.groups[p.pgrp], p)
		if p.marked {
			r.marked[p.mark] = append(r.marked[p.mark], p)
		}
	}
	return r
}

func pidsOf(m map[int]*process) []int {
	var out []int
	for pid := range m {
		out = append(out, pid)
	}
	slices.Sort(out)
	return out
}

func TestMembers(t *testing.T) {
	mine, other := mark{"default/s", 2}, mark{"default/s", 1}
	r := rollOf(
		process{pid: 1, start: 1},
		process{pid: 10, ppid: 5, pgrp: 10, start: 100, marked: true, mark: mine}, // the leader
		process{pid: 11, ppid: 10, pgrp: 10, start: 101},                          // its child
		process{pid: 12, ppid: 11, pgrp: 12, start: 102},                          // a grandchild in a session of its own
		process{pid: 13, ppid: 1, pgrp: 10, start: 103},                           // lost its parent, kept the group
		process{pid: 14, ppid: 1, pgrp: 14, start: 104, marked: true, mark: mine}, // lost both, kept the mark
		process{pid: 15, ppid: 14, pgrp: 15, start: 105},                          // and has a child
		process{pid: 16, ppid: 1, pgrp: 16, start: 106},                           // known from an earlier look
		process{pid: 17, ppid: 1, pgrp: 17, start: 999},                           // got the pid of a known one
		process{pid: 18, ppid: 1, pgrp: 18, start: 108, marked: true, mark: other},
		process{pid: 19, ppid: 11, pgrp: 10, start: 109, dead: true}, // a zombie
		process{pid: 20, ppid: 19, pgrp: 20, start: 110},
		process{pid: 21, ppid: 1, pgrp: 21, start: 111},
	)
	known := map[int]*process{16: {pid: 16, start: 106}, 17: {pid: 17, start: 107}}
	if got := pidsOf(members(r, 10, 100, mine, known)); !slices.Equal(got, []int{11, 12, 13, 14, 15, 16, 20}) {
		t.Errorf("got %v", got)
	}
	// Another process has the leader's pid: only marks and known ones count.
	if got := pidsOf(members(r, 10, 55, mine, nil)); !slices.Equal(got, []int{14, 15}) {
		t.Errorf("got %v", got)
	}
}

func TestOrphans(t *testing.T) {
	m := mark{"default/s", 1}
	r := rollOf(
		process{pid: 1, start: 1},
		process{pid: 5, ppid: 1, start: 2, marked: true, mark: m}, // an ancestor of ours that carries the mark
		process{pid: 6, ppid: 5, start: 3, marked: true, mark: m}, // ourselves
		process{pid: 7, ppid: 6, start: 4},                        // our own child
		process{pid: 8, ppid: 1, start: 5, marked: true, mark: m},
		process{pid: 9, ppid: 8, start: 6},
		process{pid: 10, ppid: 1, start: 7, marked: true, mark: m, dead: true},
		process{pid: 11, ppid: 1, start: 8},
	)
	if got := pidsOf(orphans(r, 6, map[int]*process{11: {pid: 11, start: 9}})); !slices.Equal(got, []int{8, 9}) {
		t.Errorf("got %v", got)
	}
}

func TestCensusIsShared(t *testing.T) {
	c := newCensus("none")
	a := c.take()
	if a.byPID[os.Getpid()] == nil {
		t.Error("we are not in it")
	}
	if b := c.take(); a == b {
		t.Error("an old count was given to a later call")
	}
}

// Proves I-A1 of the environment: what is not named does not reach a child.
func TestAllowedEnv(t *testing.T) {
	server := []string{
		"PATH=/bin", "HOME=/h", "LC_TIME=C", "XDG_CONFIG_HOME=/x", "https_proxy=p", "ANTHROPIC_API_KEY=k", "AWS_SECRET=s", "AWS_REGION=r", "PATHS=/b", "A*=1",
	}
	for _, tt := range []struct {
		name    string
		allow   []string
		ownHome bool
		want    string
	}{
		{"nothing", nil, false, "PATH HOME LC_TIME XDG_CONFIG_HOME https_proxy"},
		{"a name", []string{"ANTHROPIC_API_KEY", "AWS"}, false, "PATH HOME LC_TIME XDG_CONFIG_HOME https_proxy ANTHROPIC_API_KEY"},
		{"a prefix", []string{"AWS_*"}, false, "PATH HOME LC_TIME XDG_CONFIG_HOME https_proxy AWS_SECRET AWS_REGION"},
		{"everything", []string{"*"}, false, "PATH HOME LC_TIME XDG_CONFIG_HOME https_proxy ANTHROPIC_API_KEY AWS_SECRET AWS_REGION PATHS A*"},
		{"a home of its own", nil, true, "PATH HOME LC_TIME https_proxy"},
		{"and told of the server's", []string{"XDG_CONFIG_HOME"}, true, "PATH HOME LC_TIME XDG_CONFIG_HOME https_proxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var names []string
			for _, kv := range allowedEnv(server, tt.allow, tt.ownHome) {
				name, _, _ := strings.Cut(kv, "=")
				names = append(names, name)
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestMergeEnv(t *testing.T) {
	base := []string{"PATH=/bin", "REJOIN_TOKEN=secret", "HOME=/a", "PWD=/old", "broken", "=x"}
	got := mergeEnv(base, []string{"HOME=/b", "REJOIN_RUN=9", "NEW=1", "NUL=a\x00b", "NEW=2"}, "/work", mark{"default/s", 4}, "I")
	want := []string{"PATH=/bin", "HOME=/b", "PWD=/work", "NEW=2", "REJOIN_SESSION=default/s", "REJOIN_RUN=4", "REJOIN_INSTANCE=I"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=relative::/nowhere:" + dir}
	tests := []struct{ name, arg, want, message string }{
		{"in PATH", "prog", filepath.Join(dir, "prog"), ""},
		{"relative", "./prog", filepath.Join(dir, "prog"), ""},
		{"absolute", filepath.Join(dir, "prog"), filepath.Join(dir, "prog"), ""},
		{"not executable", "data", "", "executable file not found"},
		{"not executable by path", "./data", "", "permission denied"},
		{"missing", "./none", "", "no such file or directory (looked for " + dir + "/none)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := lookPath([]string{tt.arg}, env, dir)
			if got != tt.want || (err == nil) != (tt.message == "") || err != nil && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %q, %v", got, err)
			}
			if e, ok := protocol.AsError(err); err != nil && (!ok || e.Reason != protocol.ReasonInvalidParams) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestStartError(t *testing.T) {
	tests := []struct {
		err  error
		want protocol.Reason
	}{
		{syscall.ENOEXEC, protocol.ReasonInvalidParams},
		{syscall.EAGAIN, protocol.ReasonOverloaded},
		{errStopping(), protocol.ReasonSessionUnavailable},
		{errors.New("ours"), ""},
	}
	for _, tt := range tests {
		e, ok := protocol.AsError(startError("x", "/x", "", tt.err))
		if ok != (tt.want != "") || ok && e.Reason != tt.want {
			t.Errorf("%v: %v", tt.err, e)
		}
	}
}

func TestStops(t *testing.T) {
	s := stops{wake: make(chan struct{}, 1)}
	s.ask(endStopped, time.Minute)
	_, _, term1, kill1 := s.times()
	s.ask(endServerStop, time.Hour)
	if asked, why, term, kill := s.times(); !asked || why != endStopped || term != term1 || kill != kill1 {
		t.Error("a later stop with more grace changed something")
	}
	s.ask(endServerStop, time.Second)
	if _, why, term, kill := s.times(); why != endStopped || !term.Before(term1) || !kill.Before(kill1) {
		t.Error("a later stop with less grace changed nothing")
	}
	other := stops{wake: make(chan struct{}, 1)}
	other.ask(endServerStop, time.Minute)
	other.ask(endStopped, time.Minute)
	if _, why, _, _ := other.times(); why != endStopped {
		t.Error("somebody's stop does not overrule an end that the policy brings the session back after")
	}
	s.ask(endFenced, time.Hour)
	if _, why, _, _ := s.times(); why != endFenced {
		t.Error("a fence does not overrule")
	}
}

func TestTailText(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 10, "abc"}, {"abc", 2, "bc"}, {"aéé", 3, "é"}, {"é", 1, ""}, {"a\xffb", 3, "a\uFFFDb"}, {"", 5, ""},
	} {
		if got := tailText([]byte(tt.in), tt.n); got != tt.want {
			t.Errorf("tailText(%q, %d) = %q", tt.in, tt.n, got)
		}
	}
}

func TestStderrTailOnDisk(t *testing.T) {
	dir, k := t.TempDir(), protocol.Key{Workspace: "default", Session: "s"}
	tail := newStderrTail(dir, k, 2, nil)
	path := filepath.Join(dir, "stderr", "default", "s", "2.log")
	var all []byte
	for i := range 1000 {
		chunk := bytes.Repeat([]byte{byte('a' + i%26)}, 997)
		all = append(all, chunk...)
		tail.write(chunk)
		st, err := os.Stat(path)
		if err != nil || st.Size() > 2*protocol.StderrTailBytes || st.Mode().Perm() != 0o600 {
			t.Fatalf("file: %v, %v", st, err)
		}
	}
	want := string(all[len(all)-protocol.StderrTailBytes:])
	if got, err := StderrTail(dir, k, 0); err != nil || got != want {
		t.Errorf("tail of %d bytes, %v", len(got), err)
	}
	tail.close()
	if got, err := StderrTail(dir, k, 1); err != nil || got != "" {
		t.Errorf("run without stderr: %q, %v", got, err)
	}
	if _, err := StderrTail(dir, protocol.Key{Workspace: "..", Session: "s"}, 1); err == nil {
		t.Error("a path is taken for a session")
	}
	for run := protocol.Run(3); run < 3+stderrRunsKept+5; run++ {
		next := newStderrTail(dir, k, run, nil)
		next.write([]byte("x"))
		next.close()
	}
	runs, err := keptRuns(filepath.Dir(path))
	if err != nil || len(runs) != stderrRunsKept || runs[len(runs)-1] != 3+stderrRunsKept+4 {
		t.Errorf("kept: %v, %v", runs, err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{}, {ID: "a.b", DataDir: "x"}, {ID: "a"}, {ID: "a", DataDir: "x"}} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}

// What a child lets go of at its end is its own: its pid may be another leader's
// by then.
func TestReleaseSparesTheNextLeader(t *testing.T) {
	o := newOffspring("i")
	o.leaders[7] = leadership{start: 2}
	ended := &child{pid: 7, start: 1, offspring: o, reaped: true}
	if err := ended.release(); err != nil {
		t.Fatal(err)
	}
	if _, there := o.leaders[7]; !there {
		t.Error("a leader with the pid of one that was reaped is forgotten")
	}
	givenUp := &child{pid: 7, start: 2, offspring: o}
	if err := givenUp.release(); err != nil {
		t.Fatal(err)
	}
	if len(o.leaders) != 0 {
		t.Error("a leader that is given up stays a leader")
	}
}
