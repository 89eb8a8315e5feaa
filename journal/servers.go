package journal

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// ServersSubject is where every server of a cluster says what its JetStream is
// like, to users of the system account.
const ServersSubject = "$SYS.REQ.SERVER.PING.JSZ"

// serversWait is how long the answers of all members of a cluster are waited for.
// serversAnswersMax is more of them than one has; further ones are lost.
const (
	serversWait       = 3 * time.Second
	serversAnswersMax = 256
)

// Keeps says how NATS servers sync what they keep, as far as it is known.
type Keeps struct {
	Servers int        // that have said it; zero: nothing is known
	Of      int        // members of the cluster
	Level   Durability // the weakest of them
	Default bool       // one has the interval that NATS has unless it is told: two minutes
}

// natsSyncDefault is the sync_interval of a NATS server that was not told one.
const natsSyncDefault = 2 * time.Minute

// serverSays is the answer of one server.
type serverSays struct {
	Server struct {
		Name string `json:"name"`
	} `json:"server"`
	Data struct {
		Disabled bool `json:"disabled"`
		Config   struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
		} `json:"config"`
		Meta *struct {
			groupSays
			Size int `json:"cluster_size"`
		} `json:"meta_cluster"`
	} `json:"data"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// AskServers asks every server of a cluster, as a user of its system account whose
// seed or credentials are in a file, how it syncs. It waits for the members of the
// cluster that the first answer tells of, but not for ever: most of them are enough,
// fewer are an error, *RefusedError where asking again cannot help.
func AskServers(ctx context.Context, urls []string, creds string, secure *tls.Config) (Keeps, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	options := []nats.Option{nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			err = errNoSystemUser
		}
		cancel(err)
	}), nats.Name("rejoin-system"), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.Timeout(apiTimeout)}
	auth, err := credentials(creds)
	if err != nil {
		return Keeps{}, err
	}
	options = append(options, auth...)
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	nc, err := nats.Connect(strings.Join(urls, ","), options...)
	switch {
	case err != nil && refused(err):
		return Keeps{}, &RefusedError{"the NATS servers refuse the connection to the system account: " + err.Error()}
	case err != nil:
		return Keeps{}, fmt.Errorf("connect to the system account: %w", err)
	}
	defer nc.Close()
	k, err := collect(ctx, nc)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return k, err
}

// errNoSystemUser: asking again does not help.
var errNoSystemUser = &RefusedError{"no NATS server says how it syncs: is that a user of the system account?"}

// collect gathers the answers of all servers, or of most where one is away.
func collect(ctx context.Context, nc *nats.Conn) (k Keeps, err error) {
	inbox := nc.NewInbox()
	answers := make(chan *nats.Msg, serversAnswersMax)
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }() // the connection closes anyway
		err = nc.PublishRequest(ServersSubject, inbox, []byte(`{"config":true}`))
	}
	if err != nil {
		return k, fmt.Errorf("ask the servers: %w", err)
	}
	said := map[string]bool{}
	late := time.NewTimer(serversWait)
	defer late.Stop()
	for k.Servers == 0 || k.Servers < k.Of {
		select {
		case m := <-answers:
			if m.Header.Get(headerStatus) != "" {
				return k, errNoSystemUser
			}
			if err := k.take(m.Data, said); err != nil {
				return k, fmt.Errorf("ask the servers: %w", err)
			}
		case <-late.C:
			if 2*k.Servers <= k.Of {
				return k, fmt.Errorf("ask the servers: %d of %d answer", k.Servers, k.Of)
			}
			return k, nil
		case <-ctx.Done():
			return k, ctx.Err()
		}
	}
	return k, nil
}

// take adds the answer of one server, unless it was there before.
func (k *Keeps) take(data []byte, said map[string]bool) error {
	var a serverSays
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	if a.Error != nil {
		return fmt.Errorf("%s: %s", a.Server.Name, a.Error.Description)
	}
	if a.Data.Disabled || said[a.Server.Name] {
		return nil // it keeps nothing
	}
	said[a.Server.Name] = true
	k.Servers++
	k.Of = max(k.Of, 1)
	if a.Data.Meta != nil {
		k.Of = max(k.Of, a.Data.Meta.Size)
	}
	if c := a.Data.Config; !c.SyncAlways {
		k.Level.Interval = max(k.Level.Interval, c.SyncInterval)
		k.Default = k.Default || c.SyncInterval >= natsSyncDefault
	}
	return nil
}

// credentials are the options that prove who one is: a file with a JWT and a seed,
// or with a seed alone. An empty name is nobody. Errors: *RefusedError.
func credentials(file string) ([]nats.Option, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &RefusedError{"credentials: " + err.Error()}
	}
	if bytes.Contains(text, []byte("BEGIN NATS USER JWT")) {
		return []nats.Option{nats.UserCredentials(file)}, nil
	}
	option, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return nil, &RefusedError{"credentials: " + file + " holds neither a JWT with its seed nor the seed of an nkey"}
	}
	return []nats.Option{option}, nil
}
