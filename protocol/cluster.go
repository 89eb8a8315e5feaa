package protocol

import (
	"strings"
	"time"
)

// ServerRole is a part of the system that a process can be, alone or with others.
type ServerRole string

// The roles. One process on its own is all of them.
const (
	RoleBroker  ServerRole = "broker"  // who may own a session
	RoleGateway ServerRole = "gateway" // serves clients
	RoleWorker  ServerRole = "worker"  // runs children
)

// ClusterStatus is what server_status says of the processes that serve the same
// sessions.
type ClusterStatus struct {
	Roles    []ServerRole `json:"roles"` // of the process that answers
	Brokers  int          `json:"brokers"`
	Workers  int          `json:"workers"`
	Gateways int          `json:"gateways"`
	Replicas int          `json:"replicas"` // copies of the journal
}

// The buckets of the journal.
const (
	BucketSessions = "sessions" // a SessionRecord per session
	BucketStarts   = "starts"   // which start_session made which session
)

// The buckets that roles of several processes meet in besides. One process that does
// all has neither.
const (
	BucketWorkers  = "workers"  // a WorkerEntry per worker id; a canary per broker
	BucketGateways = "gateways" // a GatewayEntry per gateway id
)

// How owners are found alive (docs/ARCHITECTURE.md, Owners and failover).
const (
	// HeartbeatEvery is how often a worker writes its entry, and a broker its canary.
	HeartbeatEvery = 3 * time.Second
	// WorkerLostAfter is how long, on a broker's own monotonic clock, a worker may
	// write nothing while that broker's canaries go through.
	WorkerLostAfter = 30 * time.Second
	// WorkerFreezeAfter is how long a worker may fail to write its entry before it
	// stops the trees of sessions that could be started elsewhere.
	WorkerFreezeAfter = 20 * time.Second
	// GatewayEvery is how often a gateway writes its entry; one that is three times
	// as old is nobody's destination.
	GatewayEvery = 10 * time.Second
)

// A WorkerEntry is what a worker says of itself, by compare-and-set on its own
// last revision: whoever took the id over since, or called the worker lost, is
// seen by the next heartbeat.
type WorkerEntry struct {
	ID       string            `json:"id"`
	Owner    string            `json:"owner"` // bus address of this life of the worker, see OwnerName
	Labels   map[string]string `json:"labels,omitempty"`
	Dir      string            `json:"dir,omitempty"` // its working directory: of sessions for which nobody named one
	Capacity int               `json:"capacity"`      // sessions at a time
	Sessions int               `json:"sessions"`      // at the moment
	Draining bool              `json:"draining,omitempty"`
	Moving   bool              `json:"moving,omitempty"` // with Draining: what the policy resumes goes on elsewhere, by whichever broker sees to it
	Left     bool              `json:"left,omitempty"`   // stopped in order: nothing runs there
	Lost     bool              `json:"lost,omitempty"`   // set by a broker; the worker's next heartbeat finds it
	Version  string            `json:"version"`
	Beat     uint64            `json:"beat"`
	At       int64             `json:"at"` // ms since 1970 on the worker's clock, for people only
}

// A GatewayEntry is where a gateway serves clients.
type GatewayEntry struct {
	ID       string   `json:"id"`
	URLs     []string `json:"urls"` // as clients reach them
	Draining bool     `json:"draining,omitempty"`
	Version  string   `json:"version"`
	Beat     uint64   `json:"beat"`
	At       int64    `json:"at"` // ms since 1970 on the gateway's clock, for people only
}

// ValidLabel reports whether a worker may have the label name=value, and a session
// demand it: both printable ASCII without blanks, commas and equal signs, and at
// most LabelBytesMax long; the value may be empty.
func ValidLabel(name, value string) bool {
	return name != "" && plain(name) && plain(value)
}

func plain(s string) bool {
	return len(s) <= LabelBytesMax && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '=' })
}

// ownerSeparator stands between a worker's id, which cannot hold it, and what
// names one life of the worker.
const ownerSeparator = "~"

// OwnerName names one life of a worker: two processes never have the same, so
// that a request for an earlier one finds nobody.
func OwnerName(worker, life string) string { return worker + ownerSeparator + life }

// WorkerOf returns the id of the worker that an owner is, or was, a life of.
func WorkerOf(owner string) string {
	id, _, _ := strings.Cut(owner, ownerSeparator)
	return id
}

// BrokerSubject is where brokers answer what gateways ask of them: any one of them
// answers (a NATS queue group).
const BrokerSubject = "broker"

// BrokerSubjectOf is where one broker answers the same: whoever asks it there knows
// whose end to look out for.
func BrokerSubjectOf(broker string) string { return BrokerSubject + "." + broker }
