package client

import (
	"errors"
	"net"
	"os"
	"time"
)

var (
	errSilent = errors.New("the server does not answer")
	errBehind = errors.New("the server has newer events but sends none")
)

// pulse reads a connection and notices when its other end has died. Its clock
// runs only inside Read. It is for the goroutine that reads.
type pulse struct {
	conn   net.Conn
	ping   func() error // asks for a sign of life; nil: the clock is off
	after  time.Duration
	within time.Duration
	state  pulseState
}

type pulseState uint8

const (
	pulseQuiet  pulseState = iota
	pulsePinged            // a sign of life is due
	pulseBehind            // an event is due
)

// Read returns what the connection has; errSilent or errBehind when what is due
// did not come in time.
func (p *pulse) Read(b []byte) (int, error) {
	if p.ping == nil {
		return p.conn.Read(b)
	}
	for {
		wait := p.within
		if p.state == pulseQuiet {
			wait = p.after
		}
		if err := p.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		n, err := p.conn.Read(b)
		if n > 0 {
			if p.state == pulsePinged {
				p.state = pulseQuiet
			}
			return n, err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		switch p.state {
		case pulsePinged:
			return 0, errSilent
		case pulseBehind:
			return 0, errBehind
		case pulseQuiet:
			p.state = pulsePinged
			if err := p.ping(); err != nil {
				return 0, err
			}
		}
	}
}

// behind tells that an event is known to exist that has not arrived.
func (p *pulse) behind() { p.state = pulseBehind }

// event tells that an event arrived.
func (p *pulse) event() { p.state = pulseQuiet }
