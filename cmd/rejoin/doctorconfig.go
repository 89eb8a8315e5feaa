package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"rejoin/broker"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
	"rejoin/worker"
)

const (
	certificateSoon = 14 * 24 * time.Hour // time to get another one
	outlivesOne     = 3                   // NATS servers, of which most are left then
)

// limits says which limits of agents cannot be enforced here.
func (d *doctor) limits(is protocol.Containment) {
	for _, name := range slices.Sorted(maps.Keys(d.s.Agents)) {
		l := d.s.Agents[name].Limits.Record()
		if l == nil || !d.runsHere(d.s.Agents[name]) {
			continue
		}
		var lack []string
		for limit, set := range map[string]bool{"memory": l.Memory > 0, "pids": l.PIDs > 0, "cpu": l.CPU > 0} {
			if set && !slices.Contains(is.Limits, limit) {
				lack = append(lack, limit)
			}
		}
		slices.Sort(lack)
		switch {
		case len(lack) == 0:
		case l.Enforce == protocol.EnforcePreferred:
			d.warn("limits of "+name, listed(lack)+" cannot be enforced: it runs without any", "let the server make control groups")
		default:
			d.fail("limits of "+name, listed(lack)+" cannot be enforced: it does not start", "let the server make control groups, or set enforce: preferred")
		}
	}
}

// runsHere reports whether a worker with these settings may run an agent.
func (d *doctor) runsHere(a broker.AgentConfig) bool {
	if !d.s.split() {
		return true
	}
	for name, value := range a.Labels {
		if has, ok := d.s.Worker.Labels[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// agents says whose programs are missing. Of a server that runs only the
// configuration that is given tells.
func (d *doctor) agents() {
	if d.running && !d.given {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.s.Agents)) {
		a := d.s.Agents[name]
		if !d.runsHere(a) {
			continue
		}
		rec := &protocol.SessionRecord{Argv: a.Argv, EnvAllow: slices.Concat(a.EnvAllow, d.s.EnvAllow), Home: a.Home, Cwd: a.Cwd}
		for _, key := range slices.Sorted(maps.Keys(a.Env)) {
			rec.Env = append(rec.Env, key+"="+a.Env[key])
		}
		path, err := worker.FindProgram(rec)
		if err == nil && len(a.ResumeArgv) > 0 {
			rec.Argv = a.ResumeArgv
			_, err = worker.FindProgram(rec)
		}
		if err != nil {
			d.fail("agent "+name, err.Error(), "install it, or correct argv, env and cwd; the server's PATH counts, and this one is the command's")
			continue
		}
		if path == thisProgram {
			path = "this program"
		}
		d.ok("agent "+name, "%s", path)
	}
	if len(d.s.missing) > 0 {
		slices.Sort(d.s.missing)
		d.ok("agents", "%s: not on PATH, and so not offered", listed(d.s.missing))
	}
}

// listeners are those of the server that runs, or those that a start would open.
func (d *doctor) listeners() {
	if d.running {
		var urls []string
		for _, l := range d.ready.Listeners {
			urls = append(urls, l.URL)
		}
		d.ok("listeners", "%s", listed(urls))
	}
	certs := d.certificates()
	for _, e := range d.s.listeners {
		if !d.running {
			d.listener(e, certs)
		}
		if !e.Loopback() && e.Scheme != gatewaytcp.SchemeTLS {
			d.warn("listener "+e.URL, "the token and all events cross the network in clear", "tls://, or a tunnel")
		}
	}
	if d.s.noAuth {
		d.warn("authentication", "whoever can connect may run programs as the server's user", "leave --no-auth out")
	}
}

func (d *doctor) listener(e gatewaytcp.Endpoint, certs *gatewaytcp.Certificates) {
	if e.Scheme == gatewaytcp.SchemeTLS && certs == nil {
		return // told already
	}
	ln, err := gatewaytcp.Listen(e.URL, gatewaytcp.Limits{Certificates: certs})
	if err == nil {
		err = errors.Join(d.s.keptPromise(e, ln), ln.Close())
	}
	if err != nil {
		d.fail("listener "+e.URL, err.Error(), "name another with --listen, or stop what listens there")
		return
	}
	d.ok("listener "+e.URL, "can be opened")
}

// certificates are those of tls:// listeners.
func (d *doctor) certificates() *gatewaytcp.Certificates {
	if !slices.ContainsFunc(d.s.listeners, func(e gatewaytcp.Endpoint) bool { return e.Scheme == gatewaytcp.SchemeTLS }) {
		return nil
	}
	certs, err := gatewaytcp.LoadCertificates(gatewaytcp.TLSFiles(d.s.TLS))
	if err != nil {
		d.fail("certificate", err.Error(), "see --tls-cert, --tls-key and --tls-client-ca")
		return nil
	}
	left := time.Until(certs.Expiry())
	until := certs.Expiry().UTC().Format(time.DateTime) + " UTC"
	switch {
	case left <= 0:
		d.fail("certificate", "expired "+until, "write a new one over it and send SIGHUP")
	case left < certificateSoon:
		d.warn("certificate", "expires "+until, "write a new one over it and send SIGHUP")
	default:
		d.ok("certificate", "good until %s", until)
	}
	return certs
}

// tokens looks at who may read the files with tokens, and at what stands in them.
func (d *doctor) tokens() {
	own, more := d.s.tokenFile, d.s.tokensFile()
	if own == "" && d.s.token == "" && !d.s.noAuth {
		own = tokenFile(d.s.dataDir)
	}
	if d.running && !d.given {
		own, more = d.ready.TokenFile, d.ready.Tokens
	}
	if own != "" {
		d.ownToken(own)
	}
	if more != "" {
		d.moreTokens(more)
	}
	if key := d.s.Encryption.KeyFile; key != "" {
		if _, err := readKeyFile(key); err != nil {
			d.fail("encryption key", err.Error(), "a server does not start without it")
		} else {
			d.ok("encryption key", "%s", key)
		}
	}
}

func (d *doctor) ownToken(path string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == tokenFile(d.s.dataDir):
		d.ok("token", "%s is made by the first start", path)
	case err != nil:
		d.fail("token", err.Error(), "a server does not start without it")
	default:
		if err := privateFile(info); err != nil {
			d.warn("token", path+" "+err.Error(), "whoever reads it is the admin of the workspace default")
			return
		}
		if _, err := readToken(path); err != nil {
			d.fail("token", err.Error(), "write it anew; the one in the data directory is made when it is missing")
			return
		}
		d.ok("token", "%s", path)
	}
}

func (d *doctor) moreTokens(path string) {
	all, err := broker.ListTokens(path)
	switch {
	case err != nil:
		d.fail("token file", err.Error(), "correct it: a server does not start with it, and one that runs keeps what it read before")
		return
	case all == nil && !exists(path):
		if path == tokensFile(d.s.dataDir) {
			d.ok("token file", "none; `rejoin token add` makes %s", path)
		} else {
			d.fail("token file", path+" does not exist", "`rejoin token add --tokens "+path+"` makes one")
		}
		return
	}
	var over []string
	for _, t := range all {
		if t.Expired(time.Now()) {
			over = append(over, t.Name)
		}
	}
	if len(over) > 0 {
		d.warn("token file", fmt.Sprintf("%s: %d tokens, expired: %s", path, len(all), listed(over)), "`rejoin token revoke` them, or add new ones")
		return
	}
	d.ok("token file", "%s: %d tokens", path, len(all))
}

// journal is what keeps the events, and what an acknowledgement of it survives.
func (d *doctor) journal(ctx context.Context, asked *serverSaid) {
	if d.s.split() && !d.s.member() {
		d.natsServers(ctx)
		return
	}
	if asked != nil { // it has said what it keeps
		return
	}
	if d.s.member() {
		if _, err := d.s.memberConfig(); err != nil {
			d.fail("cluster", err.Error(), "see --cluster-secret-file, --cluster-ca, --cluster-cert and --cluster-key")
			return
		}
		d.ok("journal", "kept with the two other members of the cluster %s; this one syncs: %s", d.s.Cluster.Name, d.s.Durability)
		return
	}
	if d.s.Durability == (journal.Durability{}).String() {
		d.ok("journal", "embedded in the server; an acknowledged event survives a loss of power (always)")
		return
	}
	d.ok("journal", "embedded in the server; a loss of power takes what was acknowledged in the last %s", d.s.Durability)
}

// natsServers asks them as a role would, and as one who may ask how they sync.
func (d *doctor) natsServers(ctx context.Context) {
	n := d.s.NATS
	secure, err := n.tls()
	if err != nil {
		d.fail("nats", err.Error(), "see --nats-ca, --nats-cert and --nats-key")
		return
	}
	servers, err := journal.CheckServers(journal.RemoteConfig{URLs: n.Servers, Creds: n.Creds, TLS: secure})
	switch {
	case err != nil:
		d.fail("nats", err.Error(), "start them; see `rejoin nats-config` for what they need")
		return
	case servers < outlivesOne:
		d.warn("nats", fmt.Sprintf("one answers, of %d that are known to this process", servers), "name all of three with --nats, so that one may be lost and nothing stops")
	default:
		d.ok("nats", "one answers, of %d that are known to this process", servers)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var k journal.Keeps
	if n.Durability == "" && n.SystemCreds != "" {
		k, err = journal.AskServers(ctx, n.Servers, n.SystemCreds, secure)
	}
	const remedy = "sync_interval: always in their jetstream block, as `rejoin nats-config` writes it"
	switch {
	case err != nil:
		d.fail("durability", err.Error(), "see --nats-system-creds, or say it with --nats-durability")
	case n.Durability != "":
		d.ok("durability", "%s, as --nats-durability says: nobody has asked the servers", d.s.durability)
	case n.SystemCreds == "":
		d.warn("durability", "nobody knows what the servers keep when power fails", "--nats-system-creds, or --nats-durability")
	case k.Default && !n.AcceptDurability:
		d.fail("durability", fmt.Sprintf("the servers sync every %v: no role starts", k.Level.Interval), remedy)
	case k.Default:
		d.warn("durability", fmt.Sprintf("the servers sync every %v: a loss of power takes what was acknowledged since", k.Level.Interval), remedy)
	case k.Servers < k.Of:
		d.warn("durability", fmt.Sprintf("%s, as %d of %d servers say", k.Level, k.Servers, k.Of), "look at those that do not answer")
	default:
		d.ok("durability", "%s, as all %d servers say", k.Level, k.Servers)
	}
}
