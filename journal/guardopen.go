package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// guardFiles makes the files fit for the server, before anything opens them.
func (n *Node) guardFiles(ctx context.Context) error {
	prev, found, err := readBoot(n.cfg.Dir)
	if err != nil {
		return err
	}
	id, err := readBootID()
	if err != nil {
		return err
	}
	n.guard = newGuard(n.cfg, n.format, n.clock())
	err = n.guard.before(ctx, found && !prev.Clean && prev.BootID != id)
	n.damage = n.guard.unsettled()
	return err
}

// openGuarded starts the server and makes sure that it has every record that was
// read before; where it has not, the streams are put back and it starts again.
func (n *Node) openGuarded(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := n.guard.fault("opening"); err != nil {
			return err
		}
		if err := n.startServer(ctx); err != nil {
			return err
		}
		if err := n.guard.fault("opened"); err != nil {
			return err
		}
		have, err := n.streamStates(ctx)
		if err != nil {
			return err
		}
		lost := n.guard.shrunk(have, try == guardTries)
		if len(lost) == 0 {
			break
		}
		n.stopTraffic()
		if err := n.guard.restore(lost, try); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if err := n.openStreams(ctx); err != nil {
		return err
	}
	if len(n.guard.remake) > 0 {
		have, err := n.streamStates(ctx)
		if err != nil {
			return err
		}
		if lost := n.guard.shrunk(have, true); len(lost) > 0 {
			return fmt.Errorf("journal: %w", n.guard.refuse(lost))
		}
	}
	if err := n.guard.after(n.format.Expect); err != nil {
		return err
	}
	n.damage = n.guard.unsettled()
	n.guard = nil
	return nil
}

// streamStates returns what the server made of each stream.
func (n *Node) streamStates(ctx context.Context) (map[string]opened, error) {
	have := make(map[string]opened)
	list := n.js.ListStreams(ctx)
	for info := range list.Info() {
		have[info.Config.Name] = opened{last: info.State.LastSeq, messages: info.State.Msgs}
	}
	if err := errors.Join(list.Err(), ctx.Err()); err != nil {
		return nil, fmt.Errorf("journal: list streams: %w", err)
	}
	n.log.Debug("streams opened", slog.Int("streams", len(have)))
	return have, nil
}
