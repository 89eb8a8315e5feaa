package main

import "time"

const (
	replicas = 3
	// An agent prints some of the time, and then as a model streams. Its lines are
	// further apart than a record takes, so that each is one.
	turnShare       = 0.10
	turnSeconds     = 30
	eventsPerSecond = 20
	seconds         = 60 // that are played
)

// placement is how clients are spread over gateways.
type placement int

const (
	anywhere  placement = iota // each client goes to any gateway, as a proxy with least connections does
	bySession                  // those of a session go to the same one, until it has its share
)

func (p placement) String() string {
	return [...]string{"anywhere", "by session"}[p]
}

// scenario is how much there is to do, and the machines of one cell: a cluster of
// NATS servers with the roles that meet on it. Cells share nothing.
type scenario struct {
	name                string
	sessions, observers int // of all cells together
	cells               int
	place               placement

	// Of each cell.
	workers, gateways, brokers, servers, shards int
	// Processors of each machine.
	workerCores, gatewayCores, serverCores float64
}

// scenarios are those of docs/scale.md.
var scenarios = []scenario{
	{
		name: "10k sessions, 100k observers", sessions: 10_000, observers: 100_000, cells: 1, place: anywhere,
		workers: 40, gateways: 6, brokers: 2, servers: 3, shards: 8, workerCores: 1, gatewayCores: 4, serverCores: 16,
	},
	{
		name: "1M sessions, 10M observers", sessions: 1_000_000, observers: 10_000_000, cells: 20, place: bySession,
		workers: 200, gateways: 16, brokers: 3, servers: 9, shards: 40, workerCores: 1, gatewayCores: 4, serverCores: 16,
	},
}

// outage is how long a shard takes nothing when the server that leads it is lost.
const outage = 10 * time.Second
