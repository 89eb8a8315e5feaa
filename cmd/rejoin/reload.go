package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"rejoin/protocol"
)

// reloads are what SIGHUP has read again: files that may change while a server
// runs. Whoever has one adds itself before the server is ready. Safe for
// concurrent use.
type reloads struct {
	mu   sync.Mutex
	list []reload
}

// A reload reads one thing again. When it fails, what was read before stays.
type reload struct {
	what string // for the log: certificates, tokens
	read func() error
}

func (r *reloads) add(what string, read func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, reload{what, read})
}

// run reads everything again, one after the other.
func (r *reloads) run(log *slog.Logger) {
	r.mu.Lock()
	list := r.list
	r.mu.Unlock()
	if len(list) == 0 {
		log.Info("nothing to reload")
	}
	for _, l := range list {
		if err := l.read(); err != nil {
			log.Error("not reloaded; what was read before stays", slog.String("what", l.what), slog.Any(protocol.LogError, err))
			continue
		}
		log.Info("reloaded", slog.String("what", l.what))
	}
}

// watch runs the reloads at every SIGHUP until the returned function is called,
// which waits for the one in work. Under nohup SIGHUP stays ignored. When the
// server had a terminal and that has gone, the signal means what it always did
// there, and becomes a SIGTERM.
func (r *reloads) watch(log *slog.Logger) (stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	hups := make(chan os.Signal, 1) // more than one while one is in work are one
	done := make(chan struct{})
	terminal := hasTerminal()
	var wg sync.WaitGroup
	signal.Notify(hups, syscall.SIGHUP)
	wg.Go(func() {
		for {
			select {
			case <-hups:
				if terminal && !hasTerminal() {
					log.Info("stopping: the terminal has gone")
					if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err == nil {
						return
					}
				}
				r.run(log)
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(hups)
		close(done)
		wg.Wait()
	}
}

// hasTerminal reports whether the process has a controlling terminal (tty(4)).
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOENT)
	}
	_ = unix.Close(fd) // it was only looked at
	return true
}
