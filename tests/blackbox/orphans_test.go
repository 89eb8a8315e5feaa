package blackbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rejoin/tests/harness"
)

// shell starts a session of adapter lines that runs a script.
func shell(t *testing.T, c *harness.Client, script string) string {
	t.Helper()
	return harness.Do[struct{ SessionID string }](t, c, "start_session", map[string]any{
		"argv": []string{"sh", "-c", script}, "adapter": "lines",
	}).SessionID
}

// said is the next line that a session of adapter lines prints.
func said(t *testing.T, st *harness.Stream) string {
	t.Helper()
	return body[struct{ Text string }](t, ofType(t, st, "output")).Text
}

// hide leaves a process that nothing ties to its session any more: no mark in its
// environment, a session of its own, its parent dead.
const hide = `(env -i "PATH=$PATH" setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!); read x`

func hidden(t *testing.T, c *harness.Client) (session string, pid int) {
	t.Helper()
	session = shell(t, c, hide)
	pid, err := strconv.Atoi(said(t, subscribe(t, c, session, fromStart)))
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it has hidden", func() bool {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && !strings.Contains(string(env), "REJOIN_") && strings.Contains(string(env), "PATH=")
	})
	return session, pid
}

// TestHiddenDescendantsEnd: what double-forked away ends with the last session that
// can have left it, and at the latest with the server. Proves I-W3.
func TestHiddenDescendantsEnd(t *testing.T) {
	harness.Covers(t, "I-W3")
	s := harness.Start(t, harness.Options{Args: []string{"--cgroups", "off"}})
	cl := harness.Dial(t, s)
	stop := func(session string) {
		t.Helper()
		must(t, cl, "stop_session", map[string]any{"sessionId": session, "graceMs": 1000})
	}
	only, first := hidden(t, cl)
	stop(only)
	if harness.Living(first) {
		t.Error("it outlived the only session")
	}
	exits := shell(t, cl, strings.TrimSuffix(hide, "; read x"))
	st := subscribe(t, cl, exits, fromStart)
	second, err := strconv.Atoi(said(t, st))
	if err != nil {
		t.Fatal(err)
	}
	ofType(t, st, "session_end")
	if harness.Living(second) {
		t.Error("it outlived a leader that exited by itself")
	}

	older := shell(t, cl, "read x; echo $x; read x")
	younger, third := hidden(t, cl)
	stop(younger)
	watch := subscribe(t, cl, older, fromStart)
	send(t, cl, older, "alive", "still here")
	if got := said(t, watch); got != "still here" {
		t.Errorf("the other session said %q", got)
	}
	stop(older)
	if harness.Living(third) {
		t.Error("it outlived every session that can have left it")
	}

	_, fourth := hidden(t, cl)
	_, fifth := hidden(t, cl)
	if code := s.Term(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
	if harness.Living(fourth) || harness.Living(fifth) {
		t.Error("one outlived the server")
	}
}

// TestManyShortLivedProcesses: thousands of orphans leave no zombie, and hundreds of
// sessions no descriptor. Another session goes on meanwhile.
func TestManyShortLivedProcesses(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	other := startAs(t, cl, "lines", "echo")
	watch := subscribe(t, cl, other, fromStart)

	sweep := func(sessions int) {
		t.Helper()
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range sessions / 4 {
					session := shell(t, cl, `for i in 1 2 3 4 5 6 7 8 9 10; do (setsid true &); done; exit 3`)
					ofType(t, subscribe(t, cl, session, fromStart), "session_end")
				}
			})
		}
		group.Wait()
		harness.Eventually(t, "no zombie is left", func() bool { return zombiesOf(t, s.PID()) == 0 })
	}
	sweep(20) // what the first ones open stays open
	harness.Eventually(t, "sessions are released", func() bool { return descriptors(t, s.PID()) < 100 })
	before := descriptors(t, s.PID())
	sweep(200)
	harness.Eventually(t, "every descriptor is closed", func() bool { return descriptors(t, s.PID()) <= before })

	burst := shell(t, cl, `i=0; while [ $i -lt 3000 ]; do (setsid true &); i=$((i+1)); done; echo done; read x`)
	if got := said(t, subscribe(t, cl, burst, fromStart)); got != "done" {
		t.Fatalf("it said %q", got)
	}
	harness.Eventually(t, "3000 orphans are reaped while their session lives", func() bool { return zombiesOf(t, s.PID()) == 0 })
	send(t, cl, other, "alive", "hello")
	if e := body[struct{ Text string }](t, ofType(t, watch, "output")); e.Text != `{"type":"got","line":"hello"}` {
		t.Errorf("the other session said %q", e.Text)
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// zombiesOf counts the dead children of a process that nobody has reaped.
func zombiesOf(t *testing.T, parent int) int {
	t.Helper()
	names, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		stat, err := os.ReadFile("/proc/" + name.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", parent)) {
			n++
		}
	}
	return n
}

// TestChildThatClosesItsOutput: a session whose child closed stdout, and stderr too,
// is alive: it takes commands and ends by a stop like any other.
func TestChildThatClosesItsOutput(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	cl := harness.Dial(t, s)
	file := t.TempDir() + "/got"
	session := shell(t, cl, `echo last; exec >&- 2>&-; read x; printf %s "$x" > `+file+`; read x`)
	st := subscribe(t, cl, session, fromStart)
	if got := said(t, st); got != "last" {
		t.Fatalf("it said %q", got)
	}
	send(t, cl, session, "c", "hello")
	inFile(t, file, "hello")
	if i := get(t, cl, session); i.State != "running" || i.PID == nil {
		t.Errorf("the session is %+v", i)
	}
	must(t, cl, "stop_session", map[string]any{"sessionId": session, "graceMs": 1000})
	if e := body[end](t, ofType(t, st, "session_end")); e.Reason != "stopped" {
		t.Errorf("the end is %+v", e)
	}
}
