// Package soak_test breaks a server in every way that can be brought about from
// outside while sessions print, clients read and commands are sent, round after
// round, and lets tests/model judge what everybody saw.
package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"rejoin/tests/harness"
	"rejoin/tests/model"
)

const (
	eventLimit       = 1 << 20 // --max-event-bytes of the server
	roundsShort      = 14
	roundsPerSession = 5
	flowEvents       = 25 // per session and round before a fault, and after it
	flowAcks         = 3  // likewise, of all writers of a session
)

// durabilities are drawn for every start of the server.
var durabilities = []string{"always", "20ms"}

// kindsOf are the sessions of a world.
var kindsOf = []string{model.Flood, model.Chatty, model.Echo, model.Demo}

// Environment: SOAK_ROUNDS, SOAK_SEED, SOAK_FAULTS (names with commas; all), and
// REJOIN_BIN for another binary.
//
// Proves I-J1, I-J2, I-J3, I-J4, I-J6, I-S2, I-S3, I-B1, I-B2, I-B3, I-W1, I-W2, I-W3, I-P1, I-P2, I-G1, I-G3 and I-A1.
func TestSoak(t *testing.T) {
	rounds := harness.Setting(t, "SOAK_ROUNDS", roundsShort)
	if testing.Short() && os.Getenv("SOAK_ROUNDS") == "" {
		rounds = 4
	}
	seed := harness.Setting(t, "SOAK_SEED", int(time.Now().UnixNano()&0xffffff))
	fmt.Printf("%d rounds, SOAK_SEED=%d\n", rounds, seed)
	t.Logf("SOAK_SEED=%d", seed)
	s := newSoak(t, seed)
	some, skipped := model.Choose(t, s, faults, "SOAK_FAULTS", false)
	s.report.skipped = skipped
	model.Rounds(s.rng, rounds, some, s.round)
	s.renew()
	s.report.print()
}

// soak is the state over all rounds.
type soak struct {
	t      *testing.T
	site   *model.Site
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
	world  []*subject
	lived  int         // rounds of world
	trap   atomic.Bool // the next acknowledgement of a new command kills the server
	report *report
}

// subject is one of the world's, with what is done to this server.
type subject struct {
	*model.Subject
	s *soak
}

func newSoak(t *testing.T, seed int) *soak {
	t.Helper()
	dir := t.TempDir()
	s := &soak{
		t: t, rng: rand.New(rand.NewPCG(uint64(seed), 1)),
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
	s.site = &model.Site{
		T: t, Seed: seed, Again: fmt.Sprintf("SOAK_SEED=%d", seed), Books: s.books, Demo: []string{s.bin, "demo-agent", "--pace", "0"},
		EventLimit: eventLimit, Secrets: []string{s.token}, Transports: []string{"tcp", "unix", "proxy"},
		Connect: s.connect, Acked: s.acked, Judged: s.report.tally.Judged,
	}
	t.Cleanup(func() { model.EndAll(t, s.subjects()) }) // also when a round fails
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

// acked kills the server where the trap is set.
func (s *soak) acked(*model.Subject) error {
	if s.trap.CompareAndSwap(true, false) {
		return s.server.KillNow()
	}
	return nil
}

// subjects are those of the world as the model knows them.
func (s *soak) subjects() []*model.Subject {
	all := make([]*model.Subject, len(s.world))
	for i, u := range s.world {
		all[i] = u.Subject
	}
	return all
}

func (s *soak) flows(c *harness.Client) []model.Flow {
	s.t.Helper()
	return model.Flows(c, s.subjects())
}

// flowing waits until every session has stored and acknowledged enough since.
func (s *soak) flowing(c *harness.Client, since []model.Flow, when string) (events uint64, acks int64) {
	s.t.Helper()
	return s.site.Flowing(c, s.subjects(), since, flowEvents, flowAcks, when)
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
			s.world = append(s.world, &subject{s.site.Start(c, kind, nil), s})
		}
	}
	began := time.Now()
	start := s.flows(c)
	s.move(c)
	r := row{round: n + 1, fault: f.Name, level: s.level}
	r.eventsBefore, r.acksBefore = s.flowing(c, start, "before the fault")
	f.Strike(s)
	c = harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.Resume(c)
	}
	struck := s.flows(c)
	s.move(c)
	r.eventsAfter, r.acksAfter = s.flowing(c, struck, "after "+f.Name)
	for _, u := range s.world {
		u.Calm(c)
	}
	for _, u := range s.world {
		u.Settle(c)
		u.Validate(c, true, u.Info(c).Run, false)
	}
	s.lived++
	r.took = time.Since(began)
	s.report.add(r)
}

// move lets every child print and every writer talk.
func (s *soak) move(c *harness.Client) {
	s.t.Helper()
	for _, u := range s.world {
		u.Move(c)
	}
}

// renew ends the sessions of this world in order, and judges them once more.
func (s *soak) renew() {
	s.t.Helper()
	c := harness.Dial(s.t, s.server)
	for _, u := range s.world {
		u.Stop(c)
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
		u.Orphans = harness.MarkedBy("REJOIN_SESSION", u.Session)
		i := u.Info(c)
		if i.State != "interrupted" {
			s.t.Fatalf("broke the failure table: after the death of the server session %s is %+v", u.Session, i)
		}
		u.Dead[i.Run] = true
		u.Validate(c, false, i.Run, false)
	}
}

// pick returns one of the world's sessions of these kinds.
func (s *soak) pick(kinds ...string) *subject {
	var some []*subject
	for _, u := range s.world {
		if slices.Contains(kinds, u.Kind) {
			some = append(some, u)
		}
	}
	return some[s.rng.IntN(len(some))]
}
