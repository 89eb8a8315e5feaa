package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rejoin/protocol"
)

const clockApart = time.Second // that two clocks may be: what a person would not notice

// serverSaid is what the doctor wants of server_status.
type serverSaid struct {
	Version     string                  `json:"version"`
	UptimeMs    int64                   `json:"uptimeMs"`
	Durability  string                  `json:"durability"`
	Journal     protocol.JournalStatus  `json:"journal"`
	Containment *protocol.Containment   `json:"containment"`
	Cluster     *protocol.ClusterStatus `json:"cluster"`
}

// none says that nobody serves in the data directory, or not yet.
func (d *doctor) none() {
	b, err := os.ReadFile(filepath.Join(d.s.dataDir, "lock"))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && bad == nil && pid > 0 && syscall.Kill(pid, 0) == nil {
		d.warn("server", fmt.Sprintf("process %d has begun to start in %s and does not serve yet", pid, d.s.dataDir), "its log says what it waits for")
		return
	}
	d.ok("server", "none runs in %s: this is what a start there would find", d.s.dataDir)
}

// askServer asks the server that is meant, if there is one; nil: it has not answered.
func (d *doctor) askServer(ctx context.Context, admin string) *serverSaid {
	d.health(ctx, admin)
	named, err := d.app.servers()
	switch {
	case err != nil:
		d.fail("server", err.Error(), "")
		return nil
	case len(named) == 0 && (!d.running || len(d.ready.Listeners) == 0):
		if d.s.is(protocol.RoleGateway) {
			d.none()
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := d.app.connect(ctx, false)
	if err != nil {
		d.fail("server", err.Error(), hint(err))
		return nil
	}
	var is serverSaid
	err = c.ask(ctx, "server_status", nil, &is)
	if err == nil {
		d.told(&is)
		err = d.compareClocks(ctx, c)
	}
	if err == nil && is.Cluster != nil {
		err = d.cluster(ctx, c, is.Cluster)
	}
	if e := c.Close(); err == nil {
		err = e
	}
	if err != nil {
		d.fail("server", err.Error(), hint(err))
		return nil
	}
	return &is
}

// health asks the admin endpoint, if one is known.
func (d *doctor) health(ctx context.Context, admin string) {
	if admin == "" && (!d.running || d.ready.Admin == "") {
		return
	}
	base, err := d.app.adminBase(admin)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		_, err = askHealth(ctx, base+"/readyz")
	}
	if err != nil {
		d.fail("ready", err.Error(), "the server's log says why")
		return
	}
	d.ok("ready", "%s", base)
}

// told judges what the server says of itself.
func (d *doctor) told(is *serverSaid) {
	if is.Version != version() {
		d.warn("server", fmt.Sprintf("runs version %s and this is %s", is.Version, version()), "restart it, or use its own program")
	} else {
		d.ok("server", "version %s, up for %v", is.Version, (time.Duration(is.UptimeMs) * time.Millisecond).Round(time.Second))
	}
	if is.Durability == keepsUnknown {
		d.warn("durability", "nobody knows what the NATS servers keep when power fails", "--nats-system-creds, or --nats-durability")
	} else {
		d.ok("durability", "%s", is.Durability)
	}
	text := is.Journal.State
	if j := is.Journal; j.UsedBytes != nil && j.QuotaBytes != nil {
		text += ", " + roughly(*j.UsedBytes) + " of " + roughly(*j.QuotaBytes) + " used"
	}
	switch is.Journal.State {
	case "ok":
		d.ok("journal", "%s", text)
	case "tight":
		d.warn("journal", text, is.Journal.Reason)
	default:
		d.fail("journal", text+" "+is.Journal.Detail, is.Journal.Reason)
	}
}

// compareClocks says how far the server's is from this one.
func (d *doctor) compareClocks(ctx context.Context, c *conn) error {
	var pong struct {
		TS int64 `json:"ts"`
	}
	began := time.Now()
	if err := c.ask(ctx, "ping", nil, &pong); err != nil {
		return err
	}
	way := time.Since(began)
	apart := time.UnixMilli(pong.TS).Sub(began.Add(way / 2)).Round(time.Millisecond)
	if apart.Abs() > clockApart+way {
		d.warn("server's clock", fmt.Sprintf("%v from this machine's", apart), "see that both are kept right")
	}
	return nil
}

// cluster judges the processes that serve the same sessions.
func (d *doctor) cluster(ctx context.Context, c *conn, is *protocol.ClusterStatus) error {
	one := func(what string, n int, lost, alone string) {
		switch n {
		case 0:
			d.fail(what, "none", lost)
		case 1:
			d.warn(what, "one", alone)
		default:
			d.ok(what, "%d", n)
		}
	}
	one("brokers", is.Brokers, "start one: without it nothing starts, resumes, stops or is deleted", "a second one: while it is away nothing starts or is taken over")
	one("gateways", is.Gateways, "start one", "a second one: while it is away clients wait")
	one("workers", is.Workers, "start one: nothing can run", "a second one: sessions of a lost worker have nowhere to go")
	one("replicas", is.Replicas, "", "three NATS servers, and streams that were made with them: the loss of that one stops everything, and of its disk loses everything")
	var all []protocol.WorkerInfo
	if err := c.ask(ctx, "list_workers", nil, &all); err != nil {
		return err
	}
	var lost []string
	for _, w := range all {
		if w.State == protocol.WorkerLost {
			lost = append(lost, w.ID)
		}
	}
	if len(lost) > 0 {
		d.warn("workers", "lost: "+listed(lost), "look at those machines; an entry goes when its worker comes back and stops in order")
	}
	return nil
}
