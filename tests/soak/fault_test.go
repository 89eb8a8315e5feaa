package soak_test

import (
	"syscall"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

// fault is one way to break a soak's server.
type fault = model.Fault[*soak]

var faults = []fault{
	{Name: "kill", Strike: (*soak).killServer},
	{Name: "kill-input", Strike: (*soak).killByChild},
	{Name: "kill-ack", Strike: (*soak).killOnAck},
	{Name: "flip", Strike: (*soak).flipBit},
	{Name: "truncate", Strike: (*soak).truncate},
	{Name: "pause", Strike: (*soak).pauseServer},
	{Name: "kill-child", Strike: (*soak).killChild},
	{Name: "reboot", Strike: (*soak).reboot},
	{Name: "terminate", Strike: (*soak).terminate},
	{Name: "read-only", Strike: (*soak).readOnly, Needs: needsDisk},
	{Name: "full", Strike: (*soak).fullDisk, Needs: needsDisk},
	{Name: "clock", Strike: (*soak).jumpClock, Needs: needsClock},
	{Name: "cut", Strike: (*soak).cutLinks},
	{Name: "half-open", Strike: (*soak).halfOpen},
	{Name: "half-close", Strike: (*soak).halfClose},
	{Name: "stall-link", Strike: (*soak).stallLinks},
	{Name: "stalled", Strike: (*soak).stalledReaders},
	{Name: "flood", Strike: (*soak).flood},
}

// hold keeps a fault up for a while.
func (s *soak) hold(least, most time.Duration) {
	model.Hold(s.t, s.rng, least, most)
}

// killServer: SIGKILL, somewhere.
func (s *soak) killServer() {
	s.t.Helper()
	s.hold(0, 50*time.Millisecond)
	s.server.Kill9()
	s.recover()
}

// killByChild: SIGKILL by a child that has just read a command.
func (s *soak) killByChild() {
	s.t.Helper()
	u := s.pick(model.Flood, model.Chatty, model.Echo)
	c := harness.Dial(s.t, s.server)
	x := u.Order(model.Order{Type: "kill"})
	for x.Settled.Load() == false {
		if err := model.Tolerate(u.Send(harness.Context(s.t), c, x)); err != nil {
			s.t.Fatal(err)
		}
		select {
		case <-s.server.Exited():
			x.Settled.Store(true)
		default:
		}
	}
	s.killed()
	s.recover()
}

// killed waits for the death of the server by somebody's SIGKILL.
func (s *soak) killed() {
	s.t.Helper()
	harness.Eventually(s.t, "the server is killed", func() bool {
		s.site.Check()
		return !s.server.Alive()
	})
	if !s.server.Killed() {
		s.t.Fatalf("the server ended by itself\n%s", s.server.LogTail())
	}
}

// killOnAck: SIGKILL by a client that has just got an acknowledgement.
func (s *soak) killOnAck() {
	s.t.Helper()
	s.trap.Store(true)
	s.killed()
	s.recover()
}

// pauseServer: SIGSTOP, SIGCONT.
func (s *soak) pauseServer() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.hold(100*time.Millisecond, 600*time.Millisecond)
	s.signal(syscall.SIGCONT)
}

func (s *soak) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.server.PID(), sig); err != nil {
		s.t.Fatalf("%v: %v", sig, err)
	}
}

// killChild: SIGKILL of one session's child; its session ends and says so.
func (s *soak) killChild() {
	s.t.Helper()
	u := s.pick(kindsOf...)
	c := harness.Dial(s.t, s.server)
	i := u.Info(c)
	if i.PID == nil {
		s.t.Fatalf("session %s has no child: %+v", u.Session, i)
	}
	u.Dead[i.Run] = true
	if err := syscall.Kill(*i.PID, syscall.SIGKILL); err != nil {
		s.t.Fatalf("kill child %d: %v", *i.PID, err)
	}
	harness.Eventually(s.t, "the session whose child was killed has ended", func() bool {
		s.site.Check()
		return u.Info(c).State == "exited"
	})
}

// terminate: SIGTERM in the middle of everything, and a new start.
func (s *soak) terminate() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	runs := make([]uint64, len(s.world))
	for i, u := range s.world {
		runs[i] = u.Info(c).Run
		u.Burst(c)
	}
	if code := s.server.Term(); code != 0 {
		s.t.Fatalf("the server ended with status %d\n%s", code, s.server.LogTail())
	}
	s.start()
	c = harness.Dial(s.t, s.server)
	for i, u := range s.world {
		u.Orphans = harness.MarkedBy("REJOIN_SESSION", u.Session)
		if now := u.Info(c); now.State != "exited" || now.Run != runs[i] {
			s.t.Fatalf("broke the failure table: after SIGTERM session %s is %+v", u.Session, now)
		}
		u.Validate(c, false, runs[i], true)
	}
}

// cutLinks: every connection over the proxy is reset, some times.
func (s *soak) cutLinks() {
	s.t.Helper()
	s.linked()
	for range 1 + s.rng.IntN(4) {
		s.proxy.Cut()
		s.hold(10*time.Millisecond, 80*time.Millisecond)
	}
}

// linked waits until somebody is connected over the proxy.
func (s *soak) linked() {
	s.t.Helper()
	harness.Eventually(s.t, "a client over the proxy", func() bool { return s.proxy.Links() > 0 })
}

// halfOpen: the clients vanish without a word to the server, whose side of the
// links stays.
func (s *soak) halfOpen() {
	s.t.Helper()
	s.linked()
	s.proxy.HalfOpen()
	s.hold(100*time.Millisecond, 300*time.Millisecond)
	s.t.Cleanup(func() { s.proxy.Cut() })
}

// halfClose: the server's input ends, the way back stays open.
func (s *soak) halfClose() {
	s.t.Helper()
	s.linked()
	s.proxy.HalfClose()
	s.hold(10*time.Millisecond, 100*time.Millisecond)
	s.proxy.Cut()
}

// stallLinks: for a while no byte passes the proxy.
func (s *soak) stallLinks() {
	s.t.Helper()
	s.linked()
	s.proxy.Stall()
	s.hold(200*time.Millisecond, 700*time.Millisecond)
	s.proxy.Flow()
}

// stalledReaders: more readers of every session that do not read for a while, and
// then get everything.
func (s *soak) stalledReaders() {
	s.t.Helper()
	const each = 5
	type stalled struct {
		c  *harness.Client
		st *harness.Stream
	}
	var all []stalled
	for _, u := range s.world {
		for range each {
			tap := u.Rec.Tap(u.Kind+"-stalled", "tcp", model.Asked{Replay: true})
			c, err := s.site.Connect(harness.Context(s.t), "tcp", 4096, tap)
			if err != nil {
				s.t.Fatal(err)
			}
			st, err := c.SubscribeFunc(harness.Context(s.t), u.Session, map[string]any{"after": 0}, func(harness.Event) {})
			if err != nil {
				s.t.Fatal(err)
			}
			c.Pause()
			all = append(all, stalled{c, st})
		}
	}
	c := harness.Dial(s.t, s.server)
	s.flowing(c, s.flows(c), "while readers are stalled")
	for _, x := range all {
		x.c.Resume()
	}
	for _, x := range all {
		if _, err := x.st.Synced(harness.Context(s.t)); err != nil {
			s.t.Fatalf("a stalled reader: %v", err)
		}
		if err := x.c.Close(); err != nil {
			s.t.Fatalf("a stalled reader: %v", err)
		}
	}
}

// flood: one session prints as fast as it can; the others go on meanwhile.
func (s *soak) flood() {
	s.t.Helper()
	const lines = 5000
	c := harness.Dial(s.t, s.server)
	u := s.pick(model.Flood)
	from := u.Info(c).Head
	since := s.flows(c)
	u.Give(c, model.Order{Type: "burst", N: lines})
	s.flowing(c, since, "during a flood")
	harness.Eventually(s.t, "the flood is in the log", func() bool {
		s.site.Check()
		return u.Info(c).Head >= from+lines
	})
}
