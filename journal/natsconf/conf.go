package natsconf

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"rejoin/journal"
)

const (
	configFile = "nats.conf"

	// answersFor is how long a role may take to answer a request: a stop with the
	// longest grace (5 minutes) is answered when the child is gone.
	answersFor = "10m"

	accountRejoin = "REJOIN"
	accountSystem = "SYS"
)

// config is the configuration file of a server.
type config struct {
	Config
	servers []server
	users   []user
	system  string // public key of the system user
}

// of is that of one server. Every text in it is quoted.
func (c config) of(s server) []byte {
	dir := c.home(s)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	files := fmt.Sprintf("cert_file: %s, key_file: %s, ca_file: %s",
		strconv.Quote(filepath.Join(dir, certFile)), strconv.Quote(filepath.Join(dir, keyFile)), strconv.Quote(filepath.Join(dir, caFile)))
	p("# Written by `rejoin nats-config`, which overwrites it.")
	p("server_name: %s", strconv.Quote(s.name))
	p("listen: %s", strconv.Quote(s.at(s.port)))
	p("tls { %s, timeout: 5 }", files)
	p("max_payload: %d", journal.MessageBytesMax)
	p("max_pending: %d", journal.PendingBytesMax)
	p("")
	p("# An acknowledgement survives power loss.")
	p("jetstream { store_dir: %s, sync_interval: always }", strconv.Quote(filepath.Join(c.StoreDir, s.name)))
	if len(c.servers) > 1 {
		p("")
		p("cluster {")
		p("  name: %s", strconv.Quote(c.Name))
		p("  listen: %s", strconv.Quote(s.at(s.routes)))
		p("  tls { %s, verify: true, timeout: 5 }", files)
		p("  no_advertise: true")
		p("  ping_interval: %q", journal.RoutePing.String())
		p("  routes: [")
		for _, o := range c.servers {
			if o.name != s.name {
				p("    %s", strconv.Quote(o.route()))
			}
		}
		p("  ]")
		p("}")
	}
	p("")
	p("system_account: %s", accountSystem)
	p("accounts {")
	p("  %s {", accountSystem)
	p("    users: [")
	p("      { nkey: %s, permissions: {", c.system)
	p("          publish: { allow: [%s] }, subscribe: { allow: [%s] } } }", strconv.Quote(journal.ServersSubject), strconv.Quote("_INBOX.>"))
	p("    ]")
	p("  }")
	p("  %s {", accountRejoin)
	p("    jetstream: enabled")
	p("    users: [")
	for _, u := range c.users {
		p("      # %s", u.name)
		p("      { nkey: %s, permissions: {", u.public)
		p("          publish: { allow: [%s] }", quoted(u.grant.Publish))
		p("          subscribe: { allow: [%s] }", quoted(u.grant.Subscribe))
		if u.grant.Answers {
			p("          allow_responses: { max: 1, expires: %q }", answersFor)
		}
		p("      } }")
	}
	p("    ]")
	p("  }")
	p("}")
	return []byte(b.String())
}

// quoted is a list of subjects, one a line.
func quoted(subjects []string) string {
	var b strings.Builder
	for _, s := range subjects {
		b.WriteString("\n            " + strconv.Quote(s))
	}
	b.WriteString("\n          ")
	return b.String()
}
