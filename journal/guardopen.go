package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// guardFiles makes the files fit for the server, before it opens them.
func (n *Node) guardFiles(ctx context.Context) (*guard, error) {
	prev, found, err := readBoot(n.cfg.Dir)
	if err != nil {
		return nil, err
	}
	id, err := readBootID()
	if err != nil {
		return nil, err
	}
	g := newGuard(n.cfg, n.format, n.clock())
	err = g.before(ctx, found && !prev.Clean && prev.BootID != id)
	n.setDamage(g)
	return g, err
}

func (n *Node) setDamage(g *guard) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.damage = g.unsettled()
}

// openGuarded opens the streams, with open, and makes sure that the server has
// every record that was read before; where it has not, shut ends it, the streams
// are put back and are opened again.
func (n *Node) openGuarded(ctx context.Context, g *guard, open func(context.Context) error, shut func()) error {
	defer n.setDamage(g)
	for try := 1; ; try++ {
		if err := g.fault("opening"); err != nil {
			return err
		}
		if err := open(ctx); err != nil {
			return err
		}
		if err := g.fault("opened"); err != nil {
			return err
		}
		have, err := n.streamStates(ctx)
		if err != nil {
			return err
		}
		lost := g.shrunk(have, try == guardTries)
		if len(lost) == 0 {
			if err := g.sealedCuts(); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
			return nil
		}
		shut()
		if err := g.restore(lost, try); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
}

// open starts the server on files that were made fit for it, and finds or makes
// every stream.
func (n *Node) open(ctx context.Context) error {
	g := n.guard
	if err := n.openGuarded(ctx, g, n.startServer, n.stopTraffic); err != nil {
		return err
	}
	if err := n.openStreams(ctx); err != nil {
		return err
	}
	if len(g.remake) > 0 {
		have, err := n.streamStates(ctx)
		if err != nil {
			return err
		}
		if lost := g.shrunk(have, true); len(lost) > 0 {
			return fmt.Errorf("journal: %w", g.refuse(lost))
		}
	}
	n.guard = nil
	return g.after(n.format.Expect)
}

// reopen starts the engine again in place, as guarded as at the first start. It
// makes no stream anew: one whose description is gone keeps its guard copy, which
// the next start of the whole server takes back. Then it fails as for a stream
// that is missing.
func (n *Node) reopen(ctx context.Context) error {
	g, err := n.guardFiles(ctx)
	if err != nil {
		return err
	}
	if len(g.remake) > 0 {
		return fmt.Errorf("journal: the description of stream %s is gone, the next start of the server makes it anew: %w", g.remake[0], missingStream(n.cfg.Dir, g.remake[0]))
	}
	open := func(ctx context.Context) error {
		if err := n.startEngine(ctx); err != nil {
			return err
		}
		return n.awaitConnected(ctx)
	}
	if err := n.openGuarded(ctx, g, open, n.stopEngine); err != nil {
		return err
	}
	return g.after(n.format.Expect)
}

// stopEngine ends the server that keeps the streams; connections look for the
// next one.
func (n *Node) stopEngine() {
	n.reach.lost()
	if old := n.engine.Swap(nil); old != nil {
		old.Shutdown()
		old.WaitForShutdown()
	}
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
