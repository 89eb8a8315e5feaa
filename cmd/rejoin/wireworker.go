package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"rejoin/broker"
	"rejoin/protocol"
	"rejoin/worker"
)

// contain finds out what the system can do about what children start, and says
// which configured limits it cannot enforce.
func (s *server) contain() (err error) {
	if !s.cfg.is(protocol.RoleWorker) {
		return nil
	}
	if s.cfg.Cgroups != cgroupsOff {
		if s.containment, err = worker.OpenContainment(s.cfg.dataDir, s.node.Instance(), s.log); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Agents)) {
		l := s.cfg.Agents[name].Limits.Record()
		err := s.containment.Prepare(l)
		switch {
		case err == nil:
		case l.Enforce == protocol.EnforcePreferred:
			s.log.Warn("agent runs without its limits", slog.String("agent", name), slog.Any(protocol.LogError, err))
		default:
			s.log.Error("agent cannot start", slog.String("agent", name), slog.Any(protocol.LogError, err))
		}
	}
	is := s.containment.Status()
	s.log.Info("containment of children", slog.Int("cgroups", is.Cgroups), slog.String("group", is.Group),
		slog.String("why", is.Why), slog.Any("limits", is.Limits))
	return nil
}

// makeWorker makes the worker: the only one, or one of several.
func (s *server) makeWorker(ctx context.Context) (err error) {
	if !s.cfg.is(protocol.RoleWorker) {
		return nil
	}
	wc := worker.Config{
		ID: workerID, DataDir: s.cfg.dataDir, StderrSeal: s.seal, Adapters: adapters(), Checkpoints: s.checkpoints,
		Retention: s.retention(), EventBytesMax: int(s.cfg.Limits.MaxEventBytes), SessionsMax: s.cfg.Limits.MaxSessions,
		Subreaper: true, Containment: s.containment, Logger: s.log,
	}
	if s.cfg.split() {
		wc.ID = s.workerID()
		wc.Presence = &worker.Presence{Labels: s.cfg.Worker.Labels, Version: version()}
		if wc.Presence.Dir, err = os.Getwd(); err != nil {
			return fmt.Errorf("find out the working directory: %w", err)
		}
	}
	var registry *broker.Registry
	if s.broker != nil {
		registry = s.broker.Registry()
	} else if registry, err = broker.OpenRegistry(ctx, s.node); err != nil {
		return fmt.Errorf("open the registry: %w", err)
	}
	s.worker, err = worker.New(wc, s.node, registry, s.folds)
	return err
}

// workerID is the worker's name among others: that of the machine, and enough of
// the data directory's own to tell two on one machine apart.
func (s *server) workerID() string {
	if s.cfg.Worker.ID != "" {
		return s.cfg.Worker.ID
	}
	const own = 6 // characters of the ULID's random end
	instance := strings.ToLower(s.node.Instance())
	name := machineName()
	return name[:min(len(name), protocol.SessionIDBytesMax-own-1)] + "-" + instance[len(instance)-own:]
}

// machineName is the machine's name, as far as workers and members can have it.
func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "worker"
	}
	name = strings.Map(func(r rune) rune {
		if protocol.ValidSessionID(string(r)) {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), protocol.SessionIDBytesMax)]
}

// killLeftovers ends what an earlier process of this data directory left running.
func (s *server) killLeftovers(ctx context.Context) error {
	contained, err := s.containment.KillLeftovers(ctx)
	if err != nil {
		return fmt.Errorf("end the programs of an earlier server: %w", err)
	}
	killed, err := worker.KillOrphans(ctx, s.node.Instance(), s.log)
	if err != nil {
		return fmt.Errorf("end the programs of an earlier server: %w", err)
	}
	if killed += contained; killed > 0 {
		s.log.Warn("ended programs that an earlier server left behind", slog.Int("processes", killed))
	}
	return nil
}
