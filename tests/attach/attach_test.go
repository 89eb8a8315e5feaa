package attach_test

import (
	"strings"
	"testing"

	"rejoin/tests/harness"
)

const (
	keyEnter    = "\r"
	keyEscape   = "\x1b"
	keyAltEnter = "\x1b\r"
	keyPageUp   = "\x1b[5~"
	keyEnd      = "\x1b[F"
	keyCtrlC    = "\x03"
	keyCtrlR    = "\x12"
	keyCtrlT    = "\x14"
)

// What one sees and does in a session on a terminal, from the first prompt to
// the end of the program and its next run.
func TestScreen(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait", "--title", "a title")
	c := attach(t, s.Dir, sid)
	c.shows("● live")
	c.shows("a title")
	c.shows("idle")

	c.keys("count 3" + keyEnter)
	c.shows("› count 3")
	c.shows("1 2 3")
	c.shows("idle")

	c.keys("think" + keyEnter)
	c.shows("I have thought about it.")
	c.shows("idle")

	c.keys("tool" + keyEnter)
	c.shows("y yes · n no")
	c.shows("answer>")
	c.shows("waiting")
	c.keys("y")
	c.hides("y yes · n no")
	c.shows("✓")
	c.shows("idle")

	// Another client's words are seen, too.
	run(t, s.Dir, "send", sid, "count 4")
	c.shows("› count 4")
	c.shows("1 2 3 4")

	c.size(10, 40)
	c.until("the screen is drawn for its new size", func(screen string) bool {
		return strings.Contains(screen, "1 2 3 4") && strings.Contains(screen, ">")
	})
	c.size(30, 100)
	c.shows("Ctrl-C leaves")

	run(t, s.Dir, "stop", sid)
	c.shows("Ctrl-R runs it again")
	c.keys(keyCtrlR)
	c.hides("Ctrl-R runs it again")
	c.shows("idle")
	c.keys(keyCtrlC)
	if code := c.ends(); code != 0 {
		t.Errorf("attach ends with %d\n%s", code, c)
	}
	c.shows("comes back to it")
}

// While the agent works a word steers it, another waits, and Escape ends it.
func TestScreenSteersAndInterrupts(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait")
	c := attach(t, s.Dir, sid)
	c.shows("● live")
	c.keys("count 100000" + keyEnter)
	c.shows("steer>")
	c.keys("count 2" + keyEnter)
	c.shows("↳ count 2")
	c.keys("count 5" + keyAltEnter)
	c.shows("↳ later: count 5")
	c.keys(keyEscape)
	c.hides("steer>")
	c.shows("idle")
	c.keys("tool" + keyEnter)
	c.shows("y yes · n no")
	c.keys(keyEscape) // cancels the question only
	c.hides("y yes · n no")
	c.shows("idle")
}

// The first of two answers counts, and the other one's screen says whose it was.
func TestScreensOfTwo(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait")
	one, two := attach(t, s.Dir, sid), attach(t, s.Dir, sid)
	one.shows("● live")
	two.shows("● live")
	one.keys("tool" + keyEnter)
	one.shows("y yes · n no")
	two.shows("y yes · n no")
	two.keys("n")
	one.hides("y yes · n no")
	two.hides("y yes · n no")
	one.shows("idle")
}

// The link breaks with the server; the screen says so and goes on.
func TestScreenRejoins(t *testing.T) {
	s := harness.New(t, harness.Options{Listen: []string{harness.FixedPort(t)}})
	s.Run()
	sid := run(t, s.Dir, "start", "--no-wait")
	c := attach(t, s.Dir, sid)
	c.shows("● live")
	c.keys("count 3" + keyEnter)
	c.shows("1 2 3")
	c.shows("idle")
	s.Kill9()
	c.shows("○ link lost")
	s.Run()
	c.shows("● live")
	c.shows("interrupted; Ctrl-R resumes")
	c.keys(keyCtrlR)
	c.shows("idle")
	c.keys("count 4" + keyEnter)
	c.shows("1 2 3 4")
}

// What the state has dropped can be paged back to.
func TestScreenPagesBack(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait", "--adapter", "lines", "--", "cat")
	// Output of more than a state holds: 64 KiB an item, 1 MiB in all.
	line := strings.Repeat("x", 60000)
	run(t, s.Dir, "send", sid, "the very first line")
	for range 24 {
		run(t, s.Dir, "send", sid, line)
	}
	run(t, s.Dir, "send", sid, "the last line")
	c := attach(t, s.Dir, sid)
	c.shows("the last line")
	c.until("the first line is found by paging back", func(screen string) bool {
		c.keys("\x1b[H") // Home, to the top of what is there; that fetches more
		return strings.Contains(screen, "the very first line")
	})
	c.keys(keyEnd)
	c.shows("the last line")
}

func TestScreenOfADeletedSession(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait")
	c := attach(t, s.Dir, sid)
	c.shows("● live")
	run(t, s.Dir, "delete", sid)
	c.shows("the session is deleted")
	c.keys(keyCtrlC)
	if code := c.ends(); code != 0 {
		t.Errorf("attach ends with %d", code)
	}
}

// On a terminal, too, lines can be had.
func TestPlainOnATerminal(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	sid := run(t, s.Dir, "start", "--no-wait")
	c := attach(t, s.Dir, sid, "--plain")
	c.shows("-- demo started")
	c.keys(keyCtrlC)
	if code := c.ends(); code != 0 {
		t.Errorf("attach ends with %d", code)
	}
}

var _ = []string{keyPageUp, keyCtrlT}
