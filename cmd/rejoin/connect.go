package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"rejoin/client"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/protocol"
)

// requestTimeout bounds one request of a command: all but stop are answered in
// moments, and a server that is not is better reported than waited for.
const requestTimeout = 30 * time.Second

// target is the server a command talks to.
type target struct {
	url   string
	more  []string // other servers of the same sessions
	token string
	local bool   // on this machine
	dir   string // the data directory whose server.json names it; empty: none does
	given bool   // the token was given, it is not that directory's
}

// noServerError says that no server runs in the data directory that is meant.
type noServerError struct{ dir string }

func (e *noServerError) Error() string { return "no server runs in " + e.dir }

// target finds the server and its token. A data directory's token goes only to
// the server that its server.json names or, with the default directory and no
// server in it, to one on this machine's default address.
func (a *app) target() (target, error) {
	t := target{token: a.token}
	named, err := a.servers()
	if err != nil {
		return t, err
	}
	if len(named) > 0 {
		t.url, t.more = named[0], named[1:]
	}
	if t.token == "" {
		t.token = a.getenv("REJOIN_TOKEN")
	}
	t.given = t.token != ""
	dir, err := a.dataDirectory()
	if err != nil && t.url == "" {
		return t, err
	}
	ready, running, err := findServer(dir)
	switch {
	case err != nil && t.url == "":
		return t, err
	case t.url != "":
	case running && len(ready.Listeners) > 0:
		t.url = ready.nearest()
	case a.dataDir != "":
		return t, &noServerError{dir}
	default:
		t.url = listenDefault
	}
	if port, ok := strings.CutPrefix(t.url, "tcp://localhost:"); ok {
		// The name may lead to another server's ::1; the token's does not.
		if at := "tcp://127.0.0.1:" + port; running && ready.names(at) || at == listenDefault {
			t.url = at
		}
	}
	t.local = onThisMachine(t.url) && !slices.ContainsFunc(t.more, func(url string) bool { return !onThisMachine(url) })
	foreign := slices.ContainsFunc(t.more, func(url string) bool { return !ready.names(url) })
	if running && ready.names(t.url) && !foreign {
		if len(named) == 0 {
			t.dir = dir
		}
		return t, t.take(ready.TokenFile) // empty: none, or known to whoever started it
	}
	if dir == "" || running || a.dataDir != "" || t.url != listenDefault || len(t.more) > 0 {
		return t, nil
	}
	return t, t.take(tokenFile(dir))
}

// servers are the URLs that the command line names, or else, unless that names a
// data directory, the environment.
func (a *app) servers() ([]string, error) {
	list, from := a.server, "--server"
	if list == "" && a.dataDir == "" {
		list, from = a.getenv("REJOIN_SERVER"), "REJOIN_SERVER"
	}
	if list == "" {
		return nil, nil
	}
	urls := strings.Split(list, ",")
	for i, url := range urls {
		urls[i] = strings.TrimSpace(url)
		if _, _, err := client.ParseURL(urls[i]); err != nil {
			return nil, usagef("%s: %w", from, err)
		}
	}
	return urls, nil
}

// take reads the token unless one was given. One that cannot be read is no error:
// the server will say whether it wants one.
func (t *target) take(path string) error {
	if t.given || path == "" {
		return nil
	}
	token, err := readToken(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	t.token = token
	return err
}

// locate finds the server of the target's data directory again: one that was
// started anew may listen elsewhere.
func (t target) locate() (url, token string, err error) {
	ready, running, err := findServer(t.dir)
	if err != nil {
		return "", "", err
	}
	if !running || len(ready.Listeners) == 0 {
		return "", "", &noServerError{t.dir}
	}
	if !t.given {
		t.token = ""
	}
	err = t.take(ready.TokenFile)
	return ready.nearest(), t.token, err
}

// onThisMachine reports whether a client URL cannot lead to another machine.
func onThisMachine(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == gatewaytcp.SchemeUnix || gatewaytcp.IsLoopback(u.Hostname()))
}

// conn is a client with the answers of a command line.
type conn struct {
	*client.Client
	target  target
	patient bool // a link that is lost is waited for
}

// patience bounds how long a command that stays tries to come to a server that
// took its first connection and broke it off.
const patience = 30 * time.Second

// connect dials the server. Patient means that a connection which breaks before it
// is authenticated is made again, for up to patience; a server that cannot be
// reached at all is an error at once.
func (a *app) connect(ctx context.Context, patient bool) (*conn, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	o := client.Options{URL: t.url, URLs: t.more, Token: t.token, Name: "cli"}
	if o.TLS, err = a.tls.config(); err != nil {
		return nil, err
	}
	if t.dir != "" {
		o.Locate = t.locate
	}
	c, err := client.Dial(ctx, o)
	var dial *client.DialError
	if patient && errors.As(err, &dial) && dial.Broken() {
		fmt.Fprintf(a.err, "link lost: %v, reconnecting\n", dial.Err)
		within, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("gave up after %v", patience))
		defer cancel()
		o.Wait = true
		c, err = client.Dial(within, o)
	}
	if err != nil {
		return nil, err
	}
	return &conn{Client: c, target: t, patient: patient}, nil
}

// withClient runs f with a connection that is closed afterwards.
func (a *app) withClient(ctx context.Context, f func(ctx context.Context, c *conn) error) error {
	return a.withConn(ctx, false, f)
}

// withPatientClient is withClient for a command that stays: a link that breaks
// before it has begun is made again, as later ones are.
func (a *app) withPatientClient(ctx context.Context, f func(ctx context.Context, c *conn) error) error {
	return a.withConn(ctx, true, f)
}

func (a *app) withConn(ctx context.Context, patient bool, f func(ctx context.Context, c *conn) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	c, err := a.connect(ctx, patient)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, c), c.Close())
}

// ask calls a method and decodes its result.
func (c *conn) ask(ctx context.Context, method string, params, result any) error {
	return c.askWithin(ctx, requestTimeout, method, params, result)
}

func (c *conn) askWithin(ctx context.Context, within time.Duration, method string, params, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: %w", method, context.DeadlineExceeded))
	defer cancel()
	raw, err := c.Call(ctx, method, params)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("answer of %s: %w", method, err)
	}
	return nil
}

type sessionParams struct {
	SessionID string `json:"sessionId"`
}

// session finds the session that an argument names: by its id, or by a prefix of
// it that no other session has.
func (c *conn) session(ctx context.Context, arg string) (protocol.SessionInfo, error) {
	var info protocol.SessionInfo
	if !protocol.ValidSessionID(arg) {
		return info, usagef("%q is not a session id", arg)
	}
	err := c.ask(ctx, "get_session", sessionParams{arg}, &info)
	for c.patient && errors.Is(err, client.ErrLost) { // the next attempt waits for a link, or for the end of its time
		err = c.ask(ctx, "get_session", sessionParams{arg}, &info)
	}
	var rpc *client.RPCError
	if err == nil || !errors.As(err, &rpc) || rpc.Code != protocol.CodeSessionNotFound {
		return info, err
	}
	var all []protocol.SessionInfo
	if err := c.ask(ctx, "list_sessions", nil, &all); err != nil {
		return info, err
	}
	return pick(all, arg)
}

const ambiguousShown = 5 // ids that an error lists

func pick(all []protocol.SessionInfo, prefix string) (protocol.SessionInfo, error) {
	var found []protocol.SessionInfo
	for _, s := range all {
		if strings.HasPrefix(s.ID, prefix) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return protocol.SessionInfo{}, fmt.Errorf("no session begins with %q; `rejoin ls` lists them", prefix)
	}
	ids := make([]string, 0, ambiguousShown+1)
	for i, s := range found {
		if i == ambiguousShown {
			ids = append(ids, fmt.Sprintf("… %d in all", len(found)))
			break
		}
		ids = append(ids, s.ID)
	}
	return protocol.SessionInfo{}, fmt.Errorf("%q is ambiguous: %s", prefix, strings.Join(ids, ", "))
}
