package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"rejoin/agent"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/snapshot"
)

// Registry is what a worker tells about the sessions it owns (the broker's
// registry implements it).
type Registry interface {
	// Update changes the record by compare-and-set, retried while the newest run
	// is still run; an error that is journal.ErrFenced when it is not. Change may
	// be called more than once.
	Update(ctx context.Context, k protocol.Key, run protocol.Run, change func(*protocol.SessionRecord)) error
	// Confirm proves, by a compare-and-set that leaves the record as it is, that run is
	// the newest; an error that is journal.ErrFenced when it is not.
	Confirm(ctx context.Context, k protocol.Key, run protocol.Run) error
	// Deleted reports a tombstone, or that there is no record.
	Deleted(ctx context.Context, k protocol.Key) (bool, error)
}

// ErrNotOwner says that the session is not here, or its newest run somebody
// else's. It is journal.ErrFenced, as the registry's is. A retry cannot help.
var ErrNotOwner = fmt.Errorf("worker: not the owner of the newest run: %w", journal.ErrFenced)

// Config of a Worker.
type Config struct {
	ID            string                   // of the worker. Without Presence its bus address: one subject token. Required
	Presence      *Presence                // nil: the only worker there is
	DataDir       string                   // stderr tails are kept under DataDir/stderr. Required
	StderrSeal    *Seal                    // of those files; nil: they are in clear
	Adapters      map[string]agent.Adapter // by name. Required
	Checkpoints   *snapshot.Store          // nil: none are taken, and no log is trimmed
	Retention     snapshot.Retention       // of each session's log
	EventBytesMax int                      // longest line of a child; zero: protocol.EventBytesDefault
	SessionsMax   int                      // children at a time; zero: protocol.SessionsLiveDefault
	Subreaper     bool                     // the process adopts its descendants' orphans for good; nothing else in it may start processes in groups of their own
	Containment   *Containment             // nil: no control groups
	Logger        *slog.Logger             // nil: nothing is logged
	Now           func() time.Time         // wall clock of event times; nil: time.Now
}

func (c Config) withDefaults() Config {
	if c.EventBytesMax == 0 {
		c.EventBytesMax = protocol.EventBytesDefault
	}
	if c.SessionsMax == 0 {
		c.SessionsMax = protocol.SessionsLiveDefault
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate names the field that is wrong.
func (c Config) Validate() error {
	switch {
	case c.ID == "" || strings.ContainsAny(c.ID, ".*> \t\r\n"):
		return fmt.Errorf("worker: Config.ID %q is not one subject token", c.ID)
	case c.Presence != nil && !protocol.ValidSessionID(c.ID):
		return fmt.Errorf("worker: id %q: must be 1 to %d letters, digits, - and _", c.ID, protocol.SessionIDBytesMax)
	case c.Presence != nil && len(c.Presence.Labels) > protocol.LabelsMax:
		return fmt.Errorf("worker: %d labels: must be at most %d", len(c.Presence.Labels), protocol.LabelsMax)
	case c.DataDir == "":
		return errors.New("worker: Config.DataDir is empty")
	case len(c.Adapters) == 0:
		return errors.New("worker: Config.Adapters is empty")
	case c.EventBytesMax < 0:
		return fmt.Errorf("worker: Config.EventBytesMax is %d", c.EventBytesMax)
	case c.SessionsMax < 0:
		return fmt.Errorf("worker: Config.SessionsMax is %d", c.SessionsMax)
	}
	if c.Presence != nil {
		for name, value := range c.Presence.Labels {
			if !protocol.ValidLabel(name, value) {
				return fmt.Errorf("worker: label %q=%q: must be printable ASCII without blanks, commas and equal signs, at most %d bytes each", name, value, protocol.LabelBytesMax)
			}
		}
	}
	return nil
}

// Times of a worker. Those of the kill ladder are in ladder.go.
const (
	startMax       = 20 * time.Second       // a start or resume until its first record and its registry entry are durable
	recordWait     = 2 * time.Second        // stop_session after the child's death, for session_end and the registry
	serverStopMax  = 8 * time.Second        // from the end of Run's ctx until what is not durable is given up
	registryTry    = 5 * time.Second        // one attempt to update the registry
	registryGiveUp = 10 * time.Minute       // until the last attempt, unless the journal is away
	registryPause  = 100 * time.Millisecond // after the first failed attempt; doubles up to registryTry
)
