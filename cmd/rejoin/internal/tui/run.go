package tui

import (
	"context"
	"errors"
	"io"
	"sync"

	tea "charm.land/bubbletea/v2"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/view"
	"rejoin/cmd/rejoin/internal/waits"
	"rejoin/snapshot"
)

// batchMax is how many messages of the subscription one look at the screen takes.
const batchMax = 1024

// Config of Run.
type Config struct {
	Client  *client.Client
	Session string         // its id
	Folds   snapshot.Folds // of this program
	In      io.Reader      // the terminal
	Out     io.Writer      // the terminal
}

// Run shows a session until the user leaves, ctx ends (nil), or the subscription
// cannot go on.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	links := newLinks()
	first, stop := context.WithTimeout(ctx, requestTimeout)
	sub, err := cfg.Client.Subscribe(first, cfg.Session, client.SubscribeOptions{From: "snapshot", OnLink: links.set})
	stop()
	if err != nil {
		return err
	}
	m := &model{ctx: ctx, client: cfg.Client, session: cfg.Session, view: view.New(cfg.Folds)}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(cfg.In), tea.WithOutput(cfg.Out), tea.WithoutSignalHandler())
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(ctx, sub, p.Send) })
	pumps.Go(func() { links.pump(ctx, p.Send) })
	pumps.Go(func() {
		waits.Watch(ctx, cfg.Client, cfg.Session, func(why string) { p.Send(waitMsg(why)) })
	})
	_, err = p.Run()
	cancel()
	p.Kill() // a pump may wait to be heard
	pumps.Wait()
	err = errors.Join(ignoreKilled(err), sub.Close())
	if m.gone == "" && m.fatal != nil && !errors.Is(m.fatal, context.Canceled) {
		err = errors.Join(m.fatal, err)
	}
	return err
}

// ignoreKilled: the end of the context is no error of the screen.
func ignoreKilled(err error) error {
	if errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrProgramPanic) {
		return nil
	}
	return err
}

// pump hands on what the subscription brings, as much at a time as there is.
func pump(ctx context.Context, sub *client.Subscription, send func(tea.Msg)) {
	for {
		var batch batchMsg
		var err error
		for err == nil && len(batch) < batchMax && (len(batch) == 0 || sub.Ready()) {
			var msg client.Message
			if msg, err = sub.Next(ctx); err == nil {
				batch = append(batch, msg)
			}
		}
		if len(batch) > 0 {
			send(batch)
		}
		if err != nil {
			send(endMsg{err})
			return
		}
	}
}

// links is the newest state of the link, for whoever looks.
type links struct {
	wake chan struct{} // capacity one: a second change is seen with the first

	mu  sync.Mutex
	now client.Link
}

func newLinks() *links { return &links{wake: make(chan struct{}, 1)} }

// set does not block: the subscription calls it.
func (l *links) set(now client.Link) {
	l.mu.Lock()
	l.now = now
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *links) pump(ctx context.Context, send func(tea.Msg)) {
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		now := l.now
		l.mu.Unlock()
		send(linkMsg(now))
	}
}
