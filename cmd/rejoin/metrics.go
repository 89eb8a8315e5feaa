package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"rejoin/broker"
	"rejoin/gateway"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/snapshot"
	"rejoin/worker"
)

// metrics makes numbers for Prometheus of what the parts of a server count. It
// keeps none itself: they are read when somebody asks. No label holds anything
// that a client chose.
type metrics struct{ s *server }

// A metric is one row of docs/operations.md.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// catalogue is every metric of rejoin's own by its name, filled by define.
var catalogue = map[string]metric{}

func define(kind prometheus.ValueType, name, help string, labels ...string) metric {
	m := metric{prometheus.NewDesc(name, help, labels, nil), kind}
	catalogue[name] = m
	return m
}

func (m metric) send(ch chan<- prometheus.Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
}

func (m metric) sendEach(ch chan<- prometheus.Metric, by map[string]uint64) {
	for label, v := range by {
		m.send(ch, float64(v), label)
	}
}

var (
	mBuild = define(gauge, "rejoin_build_info", "Always 1.", "version", "durability")

	mConnections   = define(gauge, "rejoin_connections", "Connections that are open.")
	mConnected     = define(counter, "rejoin_connections_total", "Connections that were taken.")
	mSubscriptions = define(gauge, "rejoin_subscriptions", "Subscriptions, caught up or behind what the journal holds.", "state")
	mRequests      = define(counter, "rejoin_requests_total", "Requests by method.", "method")
	mErrors        = define(counter, "rejoin_errors_total", "Requests that were answered with an error, by reason.", "reason")
	mRefused       = define(counter, "rejoin_refused_total", "What met a limit and was refused, held back, cut or shortened, by the limit's name.", "limit")
	mBytes         = define(counter, "rejoin_sent_bytes_total", "Bytes that clients' connections took, before TLS.")
	mEvents        = define(counter, "rejoin_sent_events_total", "Events that were given to connections.")
	mSnapshots     = define(counter, "rejoin_sent_snapshots_total", "Snapshots that were given to subscriptions.")
	mAuthTimeouts  = define(counter, "rejoin_auth_timeouts_total", "Connections that did not authenticate in time.")
	mWriteTimeouts = define(counter, "rejoin_write_timeouts_total", "Connections that took no byte within the write timeout.")

	mLogLost   = define(counter, "rejoin_log_lost_total", "Lines that the server's log lacks.")
	mAuditLost = define(counter, "rejoin_audit_lost_total", "Entries that the audit log lacks.")

	mAccepted   = define(counter, "rejoin_accepted_total", "Connections that a listener accepted, by its scheme.", "scheme")
	mAccepts    = define(counter, "rejoin_accept_retries_total", "Times that the system had no room for a connection.")
	mHandshakes = define(counter, "rejoin_tls_handshakes_failed_total", "TLS handshakes that came to nothing.")
	mPeers      = define(counter, "rejoin_peers_refused_total", "Connections of other users on Unix sockets with auth=peer.")
	mExpiry     = define(gauge, "rejoin_tls_certificate_expiry_timestamp_seconds", "When the certificate in force expires, seconds since 1970.")

	mRecords = define(counter, "rejoin_journal_records_total", "Records that became durable.")
	mStored  = define(counter, "rejoin_journal_events_total", "Events that became durable.")
	mWritten = define(counter, "rejoin_journal_bytes_total", "Bytes of those records.")
	mAppend  = define(counter, "rejoin_journal_append_seconds", "How long a record took to become durable: a histogram.")
	mHealth  = define(gauge, "rejoin_journal_health", "What the journal can do: 0 all, 1 children wait, 2 commands are refused, 3 nothing.")
	mFree    = define(gauge, "rejoin_journal_free_bytes", "Space left on the journal's file system.")
	mUsed    = define(gauge, "rejoin_journal_used_bytes", "Bytes that all shards hold.")
	mQuota   = define(gauge, "rejoin_journal_quota_bytes", "Bytes that all shards may hold.")
	mTrims   = define(counter, "rejoin_journal_trims_total", "Logs that retention shortened.")
	mWriters = define(gauge, "rejoin_journal_writers", "Logs that are being written.")
	mGaps    = define(counter, "rejoin_hub_gaps_total", "Live records that did not join; the journal fills them in.")
	mFills   = define(counter, "rejoin_hub_fills_total", "Looks at the journal for what live records left out.")
	mAsked   = define(counter, "rejoin_hub_questions_total", "Questions to leaders for the newest record of a log, shared by the subscribers that come at once.")
	mHeld    = define(counter, "rejoin_hub_held_total", "Wakes of a log's observers that waited up to a millisecond for more events.")
	mHub     = define(gauge, "rejoin_hub_bytes", "Bytes of tail rings and shared ranges.")
	mWatches = define(gauge, "rejoin_hub_watches", "Logs that somebody reads.")

	mCheckpoints = define(counter, "rejoin_checkpoints_total", "Checkpoints that were stored and verified.")
	mNoPoint     = define(counter, "rejoin_checkpoints_failed_total", "Checkpoints that were not.")
	mSessions    = define(gauge, "rejoin_sessions", "Sessions that exist, by state.", "state")
	mLive        = define(gauge, "rejoin_sessions_live", "Sessions with a child, by status.", "status")
	mFrozen      = define(gauge, "rejoin_sessions_stopped", "Sessions whose processes are stopped because their worker is cut off.")
	mRestarts    = define(counter, "rejoin_restarts_total", "Sessions that a policy brought back.")
	mStarted     = define(counter, "rejoin_children_started_total", "Children that were started.")
	mKilled      = define(counter, "rejoin_children_killed_total", "Children that had to be killed, they or what they left behind.")
	mOOM         = define(counter, "rejoin_children_out_of_memory_total", "Runs that ended with processes killed at their limit of memory.")
	mFailed      = define(counter, "rejoin_children_failed_total", "Programs that could not be started.")
)

// Describe sends every metric's description.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range catalogue {
		ch <- c.desc
	}
}

// Collect reads what the parts have counted.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.s
	mBuild.send(ch, 1, version(), s.keeps)
	mLogLost.send(ch, float64(s.lines.Lost()))
	refused := map[string]uint64{}
	if s.gateway != nil {
		refused = collectGateway(ch, s.gateway.Stats())
		s.collectListeners(ch, refused)
	}
	var children worker.Stats
	if s.worker != nil {
		children = s.worker.Stats()
	}
	for limit, n := range children.Limited {
		refused[limit] += n
	}
	var sessions broker.Stats
	if s.broker != nil {
		sessions = s.broker.Stats()
	}
	if sessions.Spent > 0 {
		refused["RestartsPerWindowMax"] += sessions.Spent
	}
	mRefused.sendEach(ch, refused)
	if s.audit != nil {
		mAuditLost.send(ch, float64(s.audit.Lost()))
	}
	collectJournal(ch, s.node.Stats(), s.node.Usage())
	collectSessions(ch, sessions, children, s.checkpoints.Stats())
}

// collectGateway returns what was refused, for others to add to.
func collectGateway(ch chan<- prometheus.Metric, g gateway.Stats) map[string]uint64 {
	mConnections.send(ch, float64(g.Connections))
	mConnected.send(ch, float64(g.Connected))
	mSubscriptions.send(ch, float64(g.CaughtUp), "caught_up")
	mSubscriptions.send(ch, float64(g.Behind), "behind")
	mRequests.sendEach(ch, g.Requests)
	mErrors.sendEach(ch, g.Errors)
	mBytes.send(ch, float64(g.BytesWritten))
	mEvents.send(ch, float64(g.EventsWritten))
	mSnapshots.send(ch, float64(g.SnapshotsSent))
	mAuthTimeouts.send(ch, float64(g.AuthTimeouts))
	mWriteTimeouts.send(ch, float64(g.WriteTimeouts))
	return g.Refused
}

func (s *server) collectListeners(ch chan<- prometheus.Metric, refused map[string]uint64) {
	accepted := map[string]uint64{}
	var all gatewaytcp.Stats
	for _, l := range s.listeners {
		st := l.Stats()
		accepted[l.Scheme()] += st.Accepted
		all.AcceptRetries += st.AcceptRetries
		all.HandshakesFailed += st.HandshakesFailed
		all.HandshakesCut += st.HandshakesCut
		all.PeersRefused += st.PeersRefused
	}
	mAccepted.sendEach(ch, accepted)
	mAccepts.send(ch, float64(all.AcceptRetries))
	mHandshakes.send(ch, float64(all.HandshakesFailed))
	mPeers.send(ch, float64(all.PeersRefused))
	if all.HandshakesCut > 0 {
		refused["HandshakesMax"] += all.HandshakesCut
	}
	if s.certs != nil {
		mExpiry.send(ch, float64(s.certs.Expiry().Unix()))
	}
}

func collectJournal(ch chan<- prometheus.Metric, j journal.Stats, u journal.Usage) {
	mHealth.send(ch, float64(u.State))
	mFree.send(ch, float64(u.Free))
	mUsed.send(ch, float64(u.Used))
	mQuota.send(ch, float64(u.Quota))
	mRecords.send(ch, float64(j.Records))
	mStored.send(ch, float64(j.Events))
	mWritten.send(ch, float64(j.Bytes))
	classes := make(map[float64]uint64, len(journal.AppendBounds))
	sum := uint64(0)
	for i, bound := range journal.AppendBounds {
		sum += j.AppendLatency[i]
		classes[bound.Seconds()] = sum
	}
	sum += j.AppendLatency[len(journal.AppendBounds)]
	ch <- prometheus.MustNewConstHistogram(mAppend.desc, sum, j.AppendTime.Seconds(), classes)
	mTrims.send(ch, float64(j.Trims))
	mWriters.send(ch, float64(j.Writers))
	mGaps.send(ch, float64(j.HubGaps))
	mAsked.send(ch, float64(j.HubAsked))
	mHeld.send(ch, float64(j.HubHeld))
	mFills.send(ch, float64(j.HubFills))
	mHub.send(ch, float64(j.HubBytes))
	mWatches.send(ch, float64(j.HubWatches))
}

func collectSessions(ch chan<- prometheus.Metric, b broker.Stats, w worker.Stats, c snapshot.Stats) {
	mCheckpoints.send(ch, float64(c.Checkpoints))
	mNoPoint.send(ch, float64(c.Failed))
	for state, n := range b.Sessions {
		mSessions.send(ch, float64(n), state)
	}
	for status, n := range w.Live {
		mLive.send(ch, float64(n), status)
	}
	mFrozen.send(ch, float64(w.Frozen))
	mRestarts.send(ch, float64(b.Restarts))
	mStarted.send(ch, float64(w.Started))
	mKilled.send(ch, float64(w.Killed))
	mOOM.send(ch, float64(w.OutOfMemory))
	mFailed.send(ch, float64(w.Failed))
}
