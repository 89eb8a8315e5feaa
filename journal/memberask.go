package journal

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"rejoin/protocol"
)

const (
	// memberSubject is where members ask each other how they are.
	memberSubject = "rejoin.member"
	// memberAsking is added to the name of a server that only asks: it keeps nothing.
	memberAsking = "-asks"
)

// memberSays is what a member tells the others of itself.
type memberSays struct {
	Name    string   `json:"name"`
	New     bool     `json:"new"`               // it never had the whole journal
	Damaged []string `json:"damaged,omitempty"` // copies without which it waits
	Filling []string `json:"filling,omitempty"` // copies that are not whole yet
}

// peerSays is what the leader of a Raft group says of another member.
type peerSays struct {
	Name    string `json:"name"` // a sentence where the leader has not met it yet
	Peer    string `json:"peer"`
	Current bool   `json:"current"`
	Offline bool   `json:"offline"`
	Lag     uint64 `json:"lag"`
}

// groupSays is what is said of a Raft group.
type groupSays struct {
	Leader   string     `json:"leader"`
	Replicas []peerSays `json:"replicas"`
}

// is reports whether it is the member of that name.
func (p *peerSays) is(name string) bool { return p.Name == name || p.Peer == peerID(name) }

// peerID is what Raft calls the server of that name (server/events.go, getHash).
func peerID(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	id := sum[:8]
	for i := range id {
		id[i] = digits[int(id[i])%len(digits)]
	}
	return string(id)
}

// behind says why not every member but me is known to have all of a group's log;
// empty: each has. The leader counts what an entry that it committed lacks, and says
// something only once an entry of its own term is committed.
func (g *groupSays) behind(me string) string {
	switch g.Leader {
	case "":
		return "it has no leader"
	case me:
		return "its leader was this member, and there is no other yet"
	}
	others := 1
	for _, p := range g.Replicas {
		if p.is(me) {
			continue
		}
		if others++; p.Offline || !p.Current || p.Lag > 0 {
			return "the member " + p.Name + " has not all of it, or does not answer"
		}
	}
	if others != membersOf-1 {
		return fmt.Sprintf("%d other members have it, not %d", others, membersOf-1)
	}
	return ""
}

// answer has the others told how this member is, over nc.
func (m *member) answer(nc *nats.Conn, damaged []string) error {
	_, err := nc.Subscribe(memberSubject, func(q *nats.Msg) {
		says := m.says()
		says.Damaged = damaged
		data, err := json.Marshal(says)
		if err == nil {
			err = q.Respond(data)
		}
		if err != nil {
			m.log.Warn("another member gets no answer", slog.String("error", err.Error()))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return fmt.Errorf("journal: answer other members: %w", err)
	}
	return nil
}

// askMembers returns once it is known that nothing acknowledged depends on the
// copies that this member lacks: the two others have everything, or nobody ever had
// anything. It asks through a server that joins the cluster without a store, so that
// this member takes no part in any decision meanwhile. It waits until ctx ends.
// Errors: *RefusedError where two members are damaged.
func (n *Node) askMembers(ctx context.Context, lost []memberLoss) (err error) {
	m := n.remote.member
	opts, err := m.options(m.cfg.Name + memberAsking)
	if err != nil {
		return err
	}
	srv, err := n.runServer(ctx, opts)
	if err != nil {
		return err
	}
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	var at atomic.Pointer[server.Server]
	at.Store(srv)
	a := asker{m: m, lost: lost}
	if a.user, err = m.dial("asks", m.user, lifeline{&at}); err != nil {
		return err
	}
	defer a.user.Close()
	if a.admin, err = m.dial("asks-system", m.system, lifeline{&at}); err != nil {
		return err
	}
	defer a.admin.Close()
	damaged := []string{}
	for _, l := range lost {
		damaged = append(damaged, l.name())
	}
	if err := m.answer(a.user, damaged); err != nil {
		return err
	}
	w := waiter{log: n.log}
	for try := 0; ; try++ {
		err := a.look(ctx)
		var later *laterError
		if err == nil || !errors.As(err, &later) && !errors.Is(err, ErrUnavailable) {
			return err
		}
		w.tell(err)
		if err := pause(ctx, try); err != nil {
			return fmt.Errorf("journal: wait for the other members: %w", errors.Join(w.last, err))
		}
	}
}

// asker asks the other members on behalf of one that lacks something.
type asker struct {
	m           *member
	lost        []memberLoss
	user, admin *nats.Conn
}

// all reports whether this member lacks everything.
func (a *asker) all() bool {
	return a.m.fresh || slices.ContainsFunc(a.lost, func(l memberLoss) bool { return l.stream == lostAll })
}

// look takes one look. Errors: *laterError and ErrUnavailable, *RefusedError.
func (a *asker) look(ctx context.Context) error {
	others, err := a.others(ctx)
	if err != nil {
		return err
	}
	if len(others) < membersOf-1 {
		return &laterError{fmt.Sprintf("%d of the %d other members of the cluster %s answer", len(others), membersOf-1, a.m.cfg.Cluster)}
	}
	fresh := 0
	for _, o := range others {
		if len(o.Damaged) > 0 && len(a.lost) > 0 {
			return &RefusedError{fmt.Sprintf("two members are damaged: %s lacks %s, and %s lacks %s; records may be in neither. Nothing was changed. "+
				"See whether a disk comes back with what it had; to go on with what the third has, see Damage of two members in docs/operations.md",
				a.m.cfg.Name, a.names(), o.Name, strings.Join(o.Damaged, ", "))}
		}
		if o.New {
			fresh++
		}
		if len(o.Filling) > 0 {
			return &laterError{"the member " + o.Name + " is being filled itself"}
		}
	}
	if a.all() && fresh == membersOf-1 {
		return nil // nothing was ever acknowledged
	}
	if err := a.meta(ctx); err != nil {
		return err
	}
	return a.streams(ctx)
}

func (a *asker) names() string {
	names := make([]string, 0, len(a.lost))
	for i := range a.lost {
		names = append(names, a.lost[i].name())
	}
	return strings.Join(names, ", ")
}

// others asks the other members how they are.
func (a *asker) others(ctx context.Context) ([]memberSays, error) {
	var out []memberSays
	return out, gather(ctx, a.user, memberSubject, nil, func(m *nats.Msg) (bool, error) {
		var s memberSays
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if s.Name != a.m.cfg.Name && !slices.ContainsFunc(out, func(o memberSays) bool { return o.Name == s.Name }) {
			out = append(out, s)
		}
		return len(out) == membersOf-1, nil
	})
}

// meta makes sure that both others have the list of all streams.
func (a *asker) meta(ctx context.Context) error {
	var found *groupSays
	if err := gather(ctx, a.admin, ServersSubject, nil, func(m *nats.Msg) (bool, error) {
		var s serverSays
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if g := s.Data.Meta; g != nil && g.Leader != "" && g.Leader == s.Server.Name {
			found = &g.groupSays
		}
		return found != nil, nil
	}); err != nil {
		return err
	}
	me := a.m.cfg.Name
	if found == nil {
		return &laterError{"the other members have no leader: both have to run"}
	}
	if len(found.Replicas) == membersOf-1 && !slices.ContainsFunc(found.Replicas, func(p peerSays) bool { return p.is(me) }) {
		names := []string{found.Leader}
		for _, p := range found.Replicas {
			names = append(names, p.Name)
		}
		return &RefusedError{fmt.Sprintf("the cluster %s has the members %s, and none that is called %s: a member that is replaced keeps its name",
			a.m.cfg.Cluster, strings.Join(names, ", "), me)}
	}
	if why := found.behind(me); why != "" {
		return &laterError{"the list of streams: " + why}
	}
	return nil
}

// streams makes sure that both others have what this one lacks.
func (a *asker) streams(ctx context.Context) error {
	var names []string
	for i := range a.lost {
		if s := a.lost[i].stream; s != lostAll && s != metaGroup {
			names = append(names, s)
		}
	}
	if a.all() {
		var answer struct {
			Error   *apiError `json:"error"`
			Streams []string  `json:"streams"`
		}
		if err := askAPI(ctx, a.user, "STREAM.NAMES", nil, &answer); err != nil {
			return fmt.Errorf("list streams: %w", err)
		}
		if answer.Error != nil {
			return fmt.Errorf("%w: list streams: %w", ErrUnavailable, answer.Error)
		}
		names = answer.Streams
	}
	for _, name := range names {
		info, found, err := streamInfoOver(ctx, a.user, name)
		switch {
		case err != nil:
			return err
		case !found || info.Cluster == nil:
			return &laterError{"the other members do not have stream " + name}
		}
		if why := info.Cluster.behind(a.m.cfg.Name); why != "" {
			return &laterError{"stream " + name + ": " + why}
		}
	}
	return nil
}

// gather hands answers to take until it has enough, or protocol.MemberAnswerWait is over.
func gather(ctx context.Context, nc *nats.Conn, subject string, data []byte, take func(*nats.Msg) (bool, error)) error {
	inbox := nc.NewInbox()
	answers := make(chan *nats.Msg, serversAnswersMax)
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }() // the connection closes anyway
		err = nc.PublishRequest(subject, inbox, data)
	}
	if err != nil {
		return unavailable(ctx, err)
	}
	late := time.NewTimer(protocol.MemberAnswerWait)
	defer late.Stop()
	for {
		select {
		case m := <-answers:
			if m.Header.Get(headerStatus) != "" { // nobody
				return nil
			}
			if enough, err := take(m); enough || err != nil {
				return err
			}
		case <-late.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ownStream is what this member's server has of a stream, and its Raft group.
func (n *Node) ownStream(name string) (own opened, group string, err error) {
	srv := n.engine.Load()
	if srv == nil {
		return own, "", errNoServer
	}
	all, err := srv.Jsz(&server.JSzOptions{Account: "$G", Streams: true})
	if err != nil {
		return own, "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, account := range all.AccountDetails {
		for i := range account.Streams {
			if s := &account.Streams[i]; s.Name == name && s.Cluster != nil {
				return opened{last: s.State.LastSeq, messages: s.State.Msgs}, s.Cluster.RaftGroup, nil
			}
		}
	}
	return own, "", fmt.Errorf("%w: this member has no copy of stream %s yet", ErrUnavailable, name)
}
