package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/protocol"
)

const (
	adminHeaderBytesMax = 8 << 10 // of a request
	adminHeaderTimeout  = 5 * time.Second
	adminIdleTimeout    = time.Minute
	adminStopMax        = time.Second // for answers under way when the server stops
)

// admin serves metrics, health and profiles to whoever may reach it: this
// machine, unless --insecure.
type admin struct {
	ln    net.Listener
	http  *http.Server
	ready atomic.Bool
}

// checkAdmin reads --admin. Beyond loopback it needs --insecure: it asks for no
// token.
func checkAdmin(address string, insecure bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want host:port, such as 127.0.0.1:9801", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: want a port from 0 to 65535", address)
	}
	if !insecure && !gatewaytcp.IsLoopback(host) {
		return fmt.Errorf("%s: whoever can reach it may see numbers and take profiles without a token; "+
			"use 127.0.0.1, or allow it with --insecure", address)
	}
	return nil
}

// openAdmin listens. Nothing is served before serve.
func (s *server) openAdmin() error {
	lc := net.ListenConfig{}
	ln, err := lc.Listen(context.Background(), "tcp", s.cfg.Admin) //nolint:contextcheck // a local name; nothing to cancel
	if err != nil {
		return fmt.Errorf("admin: listen on %s: %w", s.cfg.Admin, err)
	}
	if at, ok := ln.Addr().(*net.TCPAddr); !s.cfg.insecure && (!ok || !at.IP.IsLoopback()) {
		return errors.Join(fmt.Errorf("admin: %s does not lead to this machine alone", s.cfg.Admin), ln.Close())
	}
	a := &admin{ln: &limitedListener{Listener: ln, places: make(chan struct{}, protocol.AdminConnectionsMax), closed: make(chan struct{})}}
	a.http = &http.Server{
		Handler: a.handler(s), ReadHeaderTimeout: adminHeaderTimeout, IdleTimeout: adminIdleTimeout, MaxHeaderBytes: adminHeaderBytesMax,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.admin = a
	return nil
}

// URL is where it is, with the real port; empty for none.
func (a *admin) URL() string {
	if a == nil {
		return ""
	}
	return "http://" + a.ln.Addr().String()
}

func (a *admin) handler(s *server) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: protocol.AdminConnectionsMax}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, a.unready(s)) })
	// Not cmdline: a token may stand in it.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.cfg.insecure && !namesThisMachine(r.Host) {
			// A web page whose name was made to lead here (DNS rebinding).
			http.Error(w, "this address is for this machine", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func namesThisMachine(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return gatewaytcp.IsLoopback(strings.Trim(host, "[]"))
}

// unready says why the server does not serve; nil when it does.
func (a *admin) unready(s *server) error {
	if !a.ready.Load() {
		return errors.New("starting or stopping")
	}
	if h := s.node.Health(); h.Refuses() {
		return errors.New(h.String())
	}
	return nil
}

func say(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok\n"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error() + "\n"
	}
	_, _ = w.Write([]byte(text)) // whoever asked may be gone
}

// setReady says whether the server serves. A nil admin hears nothing.
func (a *admin) setReady(is bool) {
	if a != nil {
		a.ready.Store(is)
	}
}

// serve answers until ctx ends, and returns when every answer has ended.
func (a *admin) serve(ctx context.Context, log *slog.Logger) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminStopMax)
		defer cancel()
		if err := a.http.Shutdown(within); err != nil {
			log.Debug("admin", slog.Any(protocol.LogError, errors.Join(err, a.http.Close())))
		}
	})
	err := a.http.Serve(a.ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// close gives the listener back when serve was never called.
func (a *admin) close() error {
	if a == nil {
		return nil
	}
	if err := a.ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// limitedListener has at most so many connections open; it accepts the next one
// when one of them has closed.
type limitedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept waits for a place and then for a connection.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close ends a waiting Accept.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close gives the place back.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
