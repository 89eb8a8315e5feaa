package journal

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logBridge is the embedded server's logger over slog: notices become Debug,
// warnings and errors keep their level; debug and trace are off.
type logBridge struct {
	log   *slog.Logger
	wrong func()                 // called at each error line; must not block
	fatal atomic.Pointer[string] // the first fatal line: the server did not start
}

func (l *logBridge) Noticef(format string, v ...any) {
	l.log.Debug("nats", slog.String("text", fmt.Sprintf(format, v...)))
}

func (l *logBridge) Warnf(format string, v ...any) {
	l.log.Warn("nats", slog.String("text", fmt.Sprintf(format, v...)))
}

// routeErrors are of a peer that is away, which is tried again for ever: the journal
// says itself what it cannot do without it.
const routeErrors = "Error trying to connect to route"

func (l *logBridge) Errorf(format string, v ...any) {
	if strings.HasPrefix(format, routeErrors) {
		l.Warnf(format, v...)
		return
	}
	l.wrong()
	l.log.Error("nats", slog.String("text", fmt.Sprintf(format, v...)))
}

func (l *logBridge) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error("nats", slog.String("text", text))
}

func (l *logBridge) Debugf(string, ...any) {}
func (l *logBridge) Tracef(string, ...any) {}
