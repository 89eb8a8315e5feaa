package broker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"rejoin/journal"
	"rejoin/protocol"
)

// A candidate is a worker that may run a session.
type candidate struct {
	protocol.WorkerEntry
	load int // sessions that the registry says it has
}

// rank orders the workers that may run a session which wants such labels: host
// first, since agents keep files where they ran, then by their load for their size.
// The error says why there is none.
func rank(all []candidate, labels map[string]string, host string) ([]candidate, *protocol.Error) {
	out := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return c.Lost || c.Left || c.Draining || !hasLabels(c.Labels, labels)
	})
	if len(out) == 0 && slices.ContainsFunc(all, func(c candidate) bool { return !c.Lost && !c.Left && hasLabels(c.Labels, labels) }) {
		return nil, unavailableNow("every worker that could run this is draining")
	}
	if len(out) == 0 {
		return nil, noWorkerWith(labels)
	}
	seats := 0 // of all of them: where none is left, each has told its capacity
	for _, c := range out {
		seats += c.Capacity
	}
	out = slices.DeleteFunc(out, func(c candidate) bool { return c.Capacity > 0 && c.load >= c.Capacity })
	if len(out) == 0 {
		return nil, protocol.Errorf(protocol.ReasonOverloaded, "every worker that could run this is full: %d sessions in all", seats).Met("SessionsLiveDefault")
	}
	slices.SortFunc(out, func(x, y candidate) int {
		return cmp.Or(
			-compareBool(x.ID == host, y.ID == host),
			cmp.Compare(x.load*max(y.Capacity, 1), y.load*max(x.Capacity, 1)), // load/capacity
			cmp.Compare(y.Capacity-y.load, x.Capacity-x.load),
			cmp.Compare(x.ID, y.ID),
		)
	})
	return out, nil
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// hasLabels reports whether has holds all of want.
func hasLabels(has, want map[string]string) bool {
	for name, value := range want {
		if is, ok := has[name]; !ok || is != value {
			return false
		}
	}
	return true
}

// pick returns the owner that a session's next run is granted to: of the workers
// that may run it the best one that answers. Errors: retryable, for clients.
func (b *Broker) pick(ctx context.Context, seen *protocol.SessionRecord) (owner string, err error) {
	if b.roster == nil {
		return b.pickConfigured(seen)
	}
	fit, none := rank(b.candidates(), seen.Labels, seen.Host)
	if none != nil {
		return "", none
	}
	for _, c := range fit {
		_, err := b.ask(ctx, c.Owner, infoTimeout, request(protocol.OpInfo, seen.Key()))
		if err == nil {
			return c.Owner, nil
		}
		if !errors.Is(err, journal.ErrNoOwner) && !errors.Is(err, errNoAnswer) {
			return "", err
		}
		b.log.Debug("worker passed over", slog.String(protocol.LogWorker, c.ID), slog.Any(protocol.LogError, err))
	}
	return "", noWorkerWith(seen.Labels) // those that there are may be lost, which takes a while to know
}

// candidates are the workers of the roster with what the registry says they have.
func (b *Broker) candidates() []candidate {
	load := make(map[string]int)
	for _, rec := range b.registry.records(owned) {
		load[rec.Owner]++
	}
	var out []candidate
	for _, e := range b.roster.workers() {
		out = append(out, candidate{e, load[e.Owner]})
	}
	return out
}

// pickConfigured is pick among Config.Workers.
func (b *Broker) pickConfigured(seen *protocol.SessionRecord) (string, error) {
	if len(seen.Labels) > 0 { // workers that are told of in the configuration have none
		return "", noWorkerWith(seen.Labels)
	}
	if len(b.cfg.Workers) == 1 {
		return b.cfg.Workers[0], nil
	}
	load := make(map[string]int)
	for _, rec := range b.registry.records(running) {
		load[rec.Owner]++
	}
	return slices.MinFunc(b.cfg.Workers, func(x, y string) int { return load[x] - load[y] }), nil
}

// noWorkerWith is what a client is told when no worker has the labels that are
// wanted.
func noWorkerWith(labels map[string]string) *protocol.Error {
	if len(labels) == 0 {
		return noWorker()
	}
	return unavailableNow("no worker with label %s is running", labelList(labels))
}
