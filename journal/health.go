package journal

import (
	"errors"
	"fmt"
	"strings"

	"rejoin/protocol"
)

// HealthState is what the journal can still do; a later one can do less.
type HealthState uint8

// The states.
const (
	HealthOK    HealthState = iota
	HealthTight             // output of children waits; commands are taken
	HealthFull              // new commands and sessions are refused; what runs may be brought to its end
	HealthSick              // nothing can be written
)

// String is the word that clients and logs see.
func (s HealthState) String() string {
	return [...]string{"ok", "tight", "full", "sick"}[s]
}

// Health says how the journal, or one shard of it, is. The zero value is well.
type Health struct {
	State HealthState
	// Reason says what is wrong and what to do, fit for every client: without
	// paths and figures, and the same for as long as the state lasts. Empty while ok.
	Reason string
}

// Refuses reports that no new command and no new session may be taken.
func (h Health) Refuses() bool { return h.State >= HealthFull }

// Holds reports that children's output has to wait.
func (h Health) Holds() bool { return h.State >= HealthTight }

// String is empty while the state is ok.
func (h Health) String() string {
	if h.State == HealthOK {
		return ""
	}
	return "journal " + h.State.String() + ": " + h.Reason
}

// Err is what a request is refused with; nil unless Refuses.
func (h Health) Err() error {
	if !h.Refuses() {
		return nil
	}
	e := protocol.Errorf(protocol.ReasonJournalUnavailable, "%s; ask again later", h)
	switch h.Reason {
	case reasonDiskFull:
		return e.Met("DiskFullBytes")
	case reasonShardFull:
		return e.Met("ShardFullPercent")
	}
	return e
}

// worse returns the one of two that can do less.
func (h Health) worse(o Health) Health {
	if o.State > h.State {
		return o
	}
	return h
}

// Usage is the journal's state in figures, in bytes.
type Usage struct {
	Health
	Detail string // of the state sick: what the system said, with paths; for operators
	Used   int64  // stored in all shards
	Quota  int64  // of all shards
	Free   int64  // on the file system, for us
	Shards []ShardUsage
}

// ShardUsage is one shard's part.
type ShardUsage struct {
	Health
	Used, Quota int64
}

// Reasons of health states. They have no figures, so that they do not change
// while a state lasts.
const (
	reasonDiskTight  = "the server's disk has little free space: output waits until there is more"
	reasonDiskFull   = "the server's disk has too little free space: free some there, or delete sessions"
	reasonShardTight = "this part of the journal is near its limit: output waits until sessions are deleted, their retention is lowered, or journal.maxBytes is raised"
	reasonShardFull  = "this part of the journal is at its limit: delete sessions, lower their retention, or raise journal.maxBytes"
	reasonWrite      = "the server cannot write to its disk: it goes on by itself when it can"
	reasonRestart    = "the journal's engine does not come back: the server's log says why"
	reasonStalled    = "the journal does not answer"

	reasonAway        = "the servers that keep the journal are not reached: it goes on by itself when they are"
	reasonSilent      = "this part of the journal does not answer: it goes on by itself when its servers do"
	reasonServersFull = "the servers that keep the journal have no room: free some there, or delete sessions"
)

// space is what a file system has, in bytes.
type space struct{ free, size int64 }

// Thresholds of free space: the named limits, less on a small file system.
func (s space) tightBelow() int64 {
	return min(protocol.DiskTightBytes, s.size/100*protocol.DiskTightPercentMax)
}

func (s space) fullBelow() int64 {
	return min(protocol.DiskFullBytes, s.size/100*protocol.DiskFullPercentMax)
}

// startBelow is a quarter of fullBelow: a server starts in the state full, to be
// read and to be tidied up, but not where its start itself could fail.
func (s space) startBelow() int64 { return s.fullBelow() / 4 }

// A state ends only when there is a quarter more than its threshold.
func above(free, threshold int64) bool { return free >= threshold+threshold/4 }

// diskHealth judges free space, given the state so far.
func diskHealth(was HealthState, s space) Health {
	switch {
	case s.free < s.fullBelow(), was == HealthFull && !above(s.free, s.fullBelow()):
		return Health{HealthFull, reasonDiskFull}
	case s.free < s.tightBelow(), was >= HealthTight && !above(s.free, s.tightBelow()):
		return Health{HealthTight, reasonDiskTight}
	}
	return Health{}
}

// shardHealth judges what of a shard's quota is used, given the state so far.
func shardHealth(was HealthState, used, quota int64) Health {
	percent := func(n int64) int64 { return quota/100*n + quota%100*n/100 }
	switch {
	case used >= percent(protocol.ShardFullPercent), was == HealthFull && used >= percent(protocol.ShardFullEndPercent):
		return Health{HealthFull, reasonShardFull}
	case used >= percent(protocol.ShardTightPercent), was >= HealthTight && used >= percent(protocol.ShardTightEndPercent):
		return Health{HealthTight, reasonShardTight}
	}
	return Health{}
}

// A SpaceError says that the disk is too full to start on: the embedded server
// may remove a stream that it cannot open, so it is not even tried.
type SpaceError struct {
	Dir        string
	Free, Need int64 // bytes
}

// Error names the directory and what to do.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("the disk of data directory %s is full: %.1f MiB are free, the journal needs %.1f MiB to start; nothing was changed. "+
		"Free space there and start again", e.Dir, mebi(e.Free), mebi(e.Need))
}

func mebi(n int64) float64 { return float64(n) / (1 << 20) }

// errNoServer: the embedded server is between two lives.
var errNoServer = errors.New("journal: the embedded server is being restarted")

// firstLine cuts what a log or a client gets of the engine's own words.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
