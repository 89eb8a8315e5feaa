// Package soak_test breaks a server in every way that can be brought about from
// outside while sessions print, clients read and commands are sent, round after
// round, and lets tests/model judge what everybody saw.
package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

const (
	roundsShort      = 14
	roundsPerSession = 5
	flowEvents       = 25 // per session and round before a fault, and after it
	flowAcks         = 3  // likewise, of all writers of a session
	runsMax          = 64 // of a session: its starts, recoveries and resumes are fewer
)

// durabilities are drawn for every start of the server.
var durabilities = []string{"always", "20ms"}

// kindsOf are the sessions of a world.
var kindsOf = []string{"flood", "chatty", "echo", "demo"}

// Environment: SOAK_ROUNDS, SOAK_SEED, SOAK_FAULTS (names with commas; all), and
// REJOIN_BIN for another binary.
//
// Proves I-J1, I-J2, I-J3, I-J4, I-J6, I-S2, I-S3, I-B1, I-B2, I-B3, I-W1, I-W2, I-W3, I-P1, I-P2, I-G1, I-G3 and I-A1.
func TestSoak(t *testing.T) {
	rounds := setting(t, "SOAK_ROUNDS", roundsShort)
	if testing.Short() && os.Getenv("SOAK_ROUNDS") == "" {
		rounds = 4
	}
	seed := setting(t, "SOAK_SEED", int(time.Now().UnixNano()&0xffffff))
	fmt.Printf("%d rounds, SOAK_SEED=%d\n", rounds, seed)
	t.Logf("SOAK_SEED=%d", seed)
	s := newSoak(t, seed)
	faults := s.faults()
	for round := range rounds {
		if round%len(faults) == 0 {
			s.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		s.round(round, faults[round%len(faults)])
	}
	s.renew()
	s.report.print()
}

func setting(t *testing.T, name string, preset int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// soak is the state over all rounds.
type soak struct {
	t      *testing.T
	seed   int
	rng    *rand.Rand
	books  string // folder of the children's books
	data   *disk
	bin    string
	clock  *clock
	server *harness.Server
	socket string
	direct string // the TCP listener
	token  string
	proxy  *harness.Proxy
	level  string // durability of the running server
	names  int    // of command ids
	world  []*subject
	lived  int         // rounds of world
	trap   atomic.Bool // the next acknowledgement of a new command kills the server
	report *report

	mu       sync.Mutex
	breaches []error
}

func newSoak(t *testing.T, seed int) *soak {
	t.Helper()
	dir := t.TempDir()
	s := &soak{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 1)),
		books: filepath.Join(dir, "books"), socket: filepath.Join(dir, "s"), report: newReport(t),
	}
	if err := os.Mkdir(s.books, 0o700); err != nil {
		t.Fatal(err)
	}
	s.data = newDisk(t, filepath.Join(dir, "disk"))
	s.bin, s.clock = clockedBinary(t, dir)
	s.server = harness.New(t, harness.Options{
		Bin: s.bin, DataDir: s.data.dir(), Listen: []string{harness.FixedPort(t), "unix://" + s.socket},
		Args: []string{"--max-event-bytes", fmt.Sprint(eventLimit), "--write-timeout", "20s"},
		Env:  []string{"GOTRACEBACK=all", s.clock.env()},
	})
	s.start()
	_, s.direct = s.server.Addr()
	s.token = s.server.Token()
	s.proxy = harness.NewProxy(t, s.direct)
	t.Cleanup(func() { // also when a round fails
		for _, u := range s.world {
			u.end()
		}
		if t.Failed() {
			s.explain()
		}
	})
	return s
}

// start runs the server, at a durability that is drawn.
func (s *soak) start() {
	s.t.Helper()
	s.level = durabilities[s.rng.IntN(len(durabilities))]
	s.server.Run("--durability", s.level)
}

// address of a transport.
func (s *soak) address(transport string) (network, address string) {
	switch transport {
	case "unix":
		return "unix", s.socket
	case "proxy":
		return "tcp", s.proxy.Addr()
	}
	return "tcp", s.direct
}

func (s *soak) connect(ctx context.Context, transport string, rcvbuf int, tap func(*harness.Frame)) (*harness.Client, error) {
	network, address := s.address(transport)
	return harness.ConnectTap(ctx, network, address, s.token, rcvbuf, tap)
}

// call makes a request that must succeed.
func (s *soak) call(c *harness.Client, method string, params, result any) {
	s.t.Helper()
	raw, err := c.Call(harness.Context(s.t), method, params)
	if err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(raw, result); err != nil {
		s.t.Fatalf("%s answered %.300s: %v", method, raw, err)
	}
}

// broke notes a breach that a client met.
func (s *soak) broke(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaches = append(s.breaches, err)
}

// check fails the test at once when a client met a breach.
func (s *soak) check() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.breaches {
		s.t.Error(err)
	}
	if len(s.breaches) > 0 {
		s.t.Fatalf("run again with SOAK_SEED=%d", s.seed)
	}
}

// explain has the model judge what can be judged of a round that failed.
func (s *soak) explain() {
	s.t.Helper()
	for _, u := range s.world {
		h := u.rec.History()
		h.Logs, h.Losses = u.logs, u.losses
		if u.booked() {
			books, err := model.ReadBooks(s.books, u.session, runsMax, func(uint64) bool { return false })
			if err != nil {
				s.t.Error(err)
			}
			h.Books, h.Booked = books, true
		}
		if err := h.ValidatePart(); err != nil {
			s.t.Error(err)
		}
	}
}

// flow is how much was stored and acknowledged for one session.
type flow struct {
	head uint64
	acks int64
}

func (s *soak) flows(c *harness.Client) []flow {
	s.t.Helper()
	all := make([]flow, len(s.world))
	for i, u := range s.world {
		all[i] = flow{u.info(c).Head, u.acks.Load()}
	}
	return all
}

// flowing waits until every session has stored and acknowledged enough since.
func (s *soak) flowing(c *harness.Client, since []flow, when string) (events uint64, acks int64) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d events and %d acknowledgements of every session %s", flowEvents, flowAcks, when), func() (enough bool, sum uint64) {
		events, acks, enough = 0, 0, true
		for i, now := range s.flows(c) {
			e, a := now.head-since[i].head, now.acks-since[i].acks
			enough = enough && e >= flowEvents && a >= flowAcks
			events, acks = events+e, acks+a
		}
		return enough, uint64(acks)
	})
	return events, acks
}

// until waits until cond is done; it gives up when nothing has moved for as long
// as nothing can take: sum is what moves.
func (s *soak) until(what string, cond func() (done bool, sum uint64)) {
	s.t.Helper()
	var last uint64
	for {
		moved := false
		harness.Eventually(s.t, what, func() bool {
			s.check()
			done, sum := cond()
			moved = !done && sum != last
			last = sum
			return done || moved
		})
		if !moved {
			return
		}
	}
}

// round brings everything into motion, strikes, sees it move again, and judges.
func (s *soak) round(n int, f fault) {
	s.t.Helper()
	if s.lived == roundsPerSession {
		s.renew()
	}
	c := harness.Dial(s.t, s.server)
	if s.world == nil {
		for _, kind := range kindsOf {
			s.world = append(s.world, s.newSubject(c, kind))
		}
	}
	began := time.Now()
	start := s.flows(c)
	s.move(c)
	r := row{round: n + 1, fault: f.name, level: s.level}
	r.eventsBefore, r.acksBefore = s.flowing(c, start, "before the fault")
	f.strike(s)
	c = harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.resume(c)
	}
	struck := s.flows(c)
	s.move(c)
	r.eventsAfter, r.acksAfter = s.flowing(c, struck, "after "+f.name)
	for _, u := range s.world {
		u.calm(c)
	}
	for _, u := range s.world {
		u.settle(c)
		u.validate(c, true, u.info(c).Run, false)
	}
	s.lived++
	r.took = time.Since(began)
	s.report.add(r)
}

// move lets every child print and every writer talk.
func (s *soak) move(c *harness.Client) {
	s.t.Helper()
	for _, u := range s.world {
		u.level.Store(talking)
		u.steady(c)
	}
}

// renew ends the sessions of this world in order, and judges them once more.
func (s *soak) renew() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.stop(c)
	}
	s.world, s.lived = nil, 0
}

// recover starts the server after its death, when nothing of a session may live,
// and lets every session's log be read before it has an owner again.
func (s *soak) recover() {
	s.t.Helper()
	s.start()
	s.recovered()
}

func (s *soak) recovered() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.orphans = harness.MarkedBy("REJOIN_SESSION", u.session)
		i := u.info(c)
		if i.State != "interrupted" {
			s.t.Fatalf("broke the failure table: after the death of the server session %s is %+v", u.session, i)
		}
		u.dead[i.Run] = true
		u.validate(c, false, i.Run, false)
	}
}

// pick returns one of the world's sessions of these kinds.
func (s *soak) pick(kinds ...string) *subject {
	var some []*subject
	for _, u := range s.world {
		if slices.Contains(kinds, u.kind) {
			some = append(some, u)
		}
	}
	return some[s.rng.IntN(len(some))]
}
