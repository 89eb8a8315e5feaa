package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"rejoin/protocol"
)

// session is one agent of a cell, with those who observe it.
type session struct {
	worker, shard int
	printing      bool
	watched       []watched
}

// watched is a gateway with clients of a session.
type watched struct{ gateway, clients int }

// gauge collects what a machine has to do, second by second.
type gauge struct{ perSecond [][]float64 } // of each machine: cores

func newGauge(machines int) *gauge { return &gauge{make([][]float64, machines)} }

// tick begins a second.
func (g *gauge) tick() {
	for i := range g.perSecond {
		g.perSecond[i] = append(g.perSecond[i], 0)
	}
}

// add charges machine i in the current second.
func (g *gauge) add(i int, micros float64) {
	s := g.perSecond[i]
	s[len(s)-1] += micros / 1e6
}

// mean is over machines and seconds, busiest the 99th of 100 seconds of the machine
// where that is the largest.
func (g *gauge) mean() float64 {
	sum, n := 0.0, 0
	for _, s := range g.perSecond {
		for _, v := range s {
			sum += v
			n++
		}
	}
	return sum / float64(n)
}

func (g *gauge) busiest() float64 {
	worst := 0.0
	for _, s := range g.perSecond {
		sorted := slices.Sorted(slices.Values(s))
		worst = max(worst, sorted[(len(sorted)-1)*99/100])
	}
	return worst
}

// result is what one cell does.
type result struct {
	worker, gateway, server, shard *gauge  // shard: share of what one can take
	records, deliveries            float64 // a second
	copies                         float64 // of a record, to gateways
	watches                        int     // of sessions, in all gateways
	connections                    []int   // of each gateway
	backlog                        int     // records after an outage, of one event per record before it
	lost                           int     // events that were printed during it
}

// simulate plays one cell of a scenario.
func simulate(c costs, s scenario) result {
	r := rand.New(rand.NewPCG(5, 7))
	all, connections := populate(r, s)
	res := result{
		worker: newGauge(s.workers), gateway: newGauge(s.gateways), server: newGauge(s.servers), shard: newGauge(s.shards),
		connections: connections,
	}
	for _, one := range all {
		res.watches += len(one.watched)
	}
	copies := 0
	for range seconds {
		for _, g := range []*gauge{res.worker, res.gateway, res.server, res.shard} {
			g.tick()
		}
		for i := range all {
			one := &all[i]
			if !turn(r, one) {
				continue
			}
			// Around the mean: a model streams unevenly.
			events := eventsPerSecond/2 + r.IntN(eventsPerSecond+1)
			res.records += float64(events)
			copies += events * len(one.watched)
			res.deliveries += float64(res.charge(c, s, one, events))
		}
	}
	res.copies = float64(copies) / res.records
	res.records /= seconds
	res.deliveries /= seconds
	res.strike(s, all)
	return res
}

// turn begins and ends turns: turnSeconds long in the mean, turnShare of the time.
func turn(r *rand.Rand, one *session) bool {
	p := 1.0 / turnSeconds
	if !one.printing {
		p *= turnShare / (1 - turnShare)
	}
	if r.Float64() < p {
		one.printing = !one.printing
	}
	return one.printing
}

// charge books the events of one session in one second, and returns the deliveries.
func (res *result) charge(c costs, s scenario, one *session, events int) (deliveries int) {
	n := float64(events)
	res.worker.add(one.worker, n*c.Worker)
	res.shard.add(one.shard, n*1e6/c.shardMax())
	for k := range replicas {
		// The copies of a shard are on neighbours; the first one leads.
		res.server.add((one.shard+k)%s.servers, n*c.NATSR3/replicas)
	}
	leader := one.shard % s.servers
	for _, w := range one.watched {
		res.server.add(leader, n*c.Watch)
		res.gateway.add(w.gateway, n*(c.Hub+float64(w.clients)*c.Delivery))
		deliveries += events * w.clients
	}
	return deliveries
}

// strike takes the server of the first shard away: what its sessions print until
// there is another leader waits, and becomes a record for each RecordEventsMax events or less.
func (res *result) strike(s scenario, all []session) {
	printed := eventsPerSecond * int(outage.Seconds())
	for _, one := range all {
		if one.printing && one.shard%s.servers == 0 {
			res.lost += printed
			res.backlog += (printed + protocol.RecordEventsMax - 1) / protocol.RecordEventsMax
		}
	}
}

// populate spreads sessions over workers and shards, and observers over sessions:
// few sessions have many, most have one or two.
func populate(r *rand.Rand, s scenario) (all []session, connections []int) {
	n, observers := s.sessions/s.cells, s.observers/s.cells
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = min(math.Pow(1-r.Float64(), -1/1.5), 1000)
		sum += weights[i]
	}
	all, connections = make([]session, n), make([]int, s.gateways)
	share := observers/s.gateways + 1
	given, owed := 0, 0.0
	for i := range all {
		one := &all[i]
		one.worker, one.shard = i%s.workers, r.IntN(s.shards)
		one.printing = r.Float64() < turnShare
		owed += weights[i] / sum * float64(observers)
		clients := int(owed+0.5) - given
		given += clients
		one.watched = place(r, s, clients, share, connections)
	}
	return all, connections
}

// place gives the clients of a session to gateways.
func place(r *rand.Rand, s scenario, clients, share int, connections []int) (w []watched) {
	at := map[int]int{}
	if s.place == bySession {
		for g := r.IntN(s.gateways); clients > 0; g = (g + 1) % s.gateways {
			if take := min(clients, share+share/10-connections[g]); take > 0 {
				at[g] = take
				connections[g] += take
				clients -= take
			}
		}
	}
	for range clients {
		g := r.IntN(s.gateways)
		at[g]++
		connections[g]++
	}
	for g := range s.gateways { // in order, so that every run is the same
		if at[g] > 0 {
			w = append(w, watched{g, at[g]})
		}
	}
	return w
}
