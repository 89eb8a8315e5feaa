package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml"

	"rejoin/broker"
	gatewaytcp "rejoin/gateway-tcp"
	"rejoin/journal"
	"rejoin/protocol"
)

// settings is what a server is told: the keys of --config, and the flags, which
// win over them. Unknown keys are errors. After resolve it is not changed.
type settings struct {
	Agents     map[string]broker.AgentConfig `yaml:"agents,omitempty"`
	Default    string                        `yaml:"default,omitempty"` // agent of a start_session that names none
	Listen     []string                      `yaml:"listen,omitempty"`
	Advertise  []string                      `yaml:"advertise,omitempty"` // URLs of a gateway among others; empty: its listeners
	TLS        tlsFiles                      `yaml:"tls,omitempty"`
	Admin      string                        `yaml:"admin,omitempty"` // host:port of metrics, health and profiles; empty: none
	Encryption encryption                    `yaml:"encryption,omitempty"`
	Roles      []string                      `yaml:"roles,omitempty"` // empty: all
	NATS       natsSettings                  `yaml:"nats,omitempty"`
	Cluster    clusterSettings               `yaml:"cluster,omitempty"`
	Worker     workerSettings                `yaml:"worker,omitempty"`
	Durability string                        `yaml:"durability,omitempty"`
	AllowArgv  bool                          `yaml:"allowArgv"`
	EnvAllow   []string                      `yaml:"envAllow,omitempty"` // of every agent, and of programs that admins start
	Tokens     string                        `yaml:"tokens,omitempty"`   // token file; empty: DATA-DIR/tokens.yaml
	Audit      string                        `yaml:"audit,omitempty"`    // audit log; empty: DATA-DIR/audit.log; off: none
	Retention  retention                     `yaml:"retention,omitempty"`
	Journal    journalSettings               `yaml:"journal,omitempty"`
	Limits     limits                        `yaml:"limits"`
	Cgroups    string                        `yaml:"cgroups,omitempty"` // auto, off
	LogFormat  string                        `yaml:"logFormat,omitempty"`
	LogLevel   string                        `yaml:"logLevel,omitempty"`

	// Flags only.
	dataDir   string
	token     string
	tokenFile string
	noAuth    bool
	insecure  bool
	readyFile string
	child     []string

	// Where values come from, for errors: the file, and the flags that were given.
	file    string
	flagged map[string]bool

	missing  []string                          // known agents whose program was not found
	lookPath func(file string) (string, error) // finds programs; nil: exec.LookPath

	// What resolve finds.
	roles      []protocol.ServerRole
	listeners  []gatewaytcp.Endpoint
	durability journal.Durability
	level      slog.Level
}

// tlsFiles are what tls:// listeners serve with; SIGHUP reads them again.
type tlsFiles struct {
	Cert     string `yaml:"cert,omitempty"`
	Key      string `yaml:"key,omitempty"`
	ClientCA string `yaml:"clientCA,omitempty"` // set: clients need a certificate that it signed
}

// encryption of the journal at rest. Without a key file there is none.
type encryption struct {
	KeyFile string         `yaml:"keyFile,omitempty"`
	Cipher  journal.Cipher `yaml:"cipher,omitempty"` // chacha or aes; empty: that of the directory, chacha for a new one
}

// retention says how much of each session's log is kept. A zero field sets no
// bound; all zero means snapshot.RetentionBytesDefault bytes.
type retention struct {
	MaxAge    duration `yaml:"maxAge,omitempty"`
	MaxBytes  size     `yaml:"maxBytes,omitempty"`
	MaxEvents uint64   `yaml:"maxEvents,omitempty"`
}

// journalSettings of a server.
type journalSettings struct {
	MaxBytes size `yaml:"maxBytes,omitempty"` // of all sessions together; zero: 70 % of the file system
}

// limits of a server. Zero means the default of protocol.
type limits struct {
	MaxRequestBytes size     `yaml:"maxRequestBytes"`
	MaxEventBytes   size     `yaml:"maxEventBytes"`
	AuthTimeout     duration `yaml:"authTimeout"`
	WriteTimeout    duration `yaml:"writeTimeout"`
	MaxConnections  int      `yaml:"maxConnections"`
	MaxSessions     int      `yaml:"maxSessions"` // children at a time

	SessionsPerToken    int `yaml:"sessionsPerToken"` // of each token of the token file
	ConnectionsPerToken int `yaml:"connectionsPerToken"`
	SessionsKept        int `yaml:"sessionsKept"`      // of a workspace, live and ended
	RequestsPerSecond   int `yaml:"requestsPerSecond"` // of a connection; faster ones wait
	AuthFailures        int `yaml:"authFailures"`      // wrong tokens of an address in a minute
}

const (
	listenDefault = "tcp://127.0.0.1:9800"
	childAgent    = "default" // the agent after --

	// Whether runs get control groups of their own: where the system allows it, or never.
	cgroupsAuto = "auto"
	cgroupsOff  = "off"

	// thisProgram is the server's own executable for whoever it spawns (proc(5)).
	// A session keeps its argv, and a path may be gone or another version by the
	// time it is resumed: after an upgrade, or under go run.
	thisProgram = "/proc/self/exe"

	requestBytesMin = 1 << 10
	requestBytesMax = 64 << 20
	eventBytesMin   = 1 << 10
	eventBytesMax   = 32 << 20 // a stored event may be twice that after escaping; journal takes 64 MiB
)

func defaultSettings() settings {
	return settings{
		Durability: "always",
		Limits: limits{
			MaxRequestBytes: protocol.RequestBytesDefault, MaxEventBytes: protocol.EventBytesDefault,
			AuthTimeout: duration(protocol.AuthTimeoutDefault), WriteTimeout: duration(protocol.WriteTimeoutDefault),
			MaxConnections: protocol.ConnectionsMaxDefault, MaxSessions: protocol.SessionsLiveDefault,
			SessionsPerToken: protocol.SessionsPerTokenDefault, ConnectionsPerToken: protocol.ConnectionsPerTokenDefault,
			SessionsKept: protocol.SessionsKeptDefault, RequestsPerSecond: protocol.RequestsPerSecondDefault,
			AuthFailures: protocol.AuthFailuresDefault,
		},
		Cgroups: cgroupsAuto, LogFormat: "text", LogLevel: "info",
	}
}

// load reads a configuration file over s.
func (s *settings) load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return usagef("--config %s: %w", path, cause(err))
	}
	err = s.decode(b)
	s.file = path                              // now: an empty file decodes to zero settings
	if err != nil && !errors.Is(err, io.EOF) { // an empty file is a configuration too
		return usagef("--config %s: %s", path, yaml.FormatError(err, false, true))
	}
	return nil
}

// decode guards against the parser, which panics on some files that are no YAML.
func (s *settings) decode(b []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = errNotYAML
		}
	}()
	return yaml.NewDecoder(bytes.NewReader(b), yaml.Strict(), yaml.CustomUnmarshaler(readBytes)).Decode(s)
}

// errNotYAML is the error of a file on which the parser gives up. No retry helps.
var errNotYAML = errors.New("cannot be read as YAML")

// resolve fills what is derived and checks everything.
func (s *settings) resolve() error {
	for _, check := range []struct {
		resolve func() error
		flags   []string // that may be what is wrong
	}{
		{s.resolveRoles, slices.Concat([]string{"roles", "durability", "label"},
			slices.Collect(maps.Keys(roleSetters(s, s))), slices.Collect(maps.Keys(clusterSetters(s, s))))},
		{s.resolveAgents, []string{"env-allow"}},
		{s.resolveListeners, []string{"listen", "no-auth", "tls-cert", "tls-key", "tls-client-ca"}},
		{s.resolveAuth, []string{"token", "token-file", "no-auth", "tokens"}},
		{s.resolveAdmin, []string{"admin", "insecure"}},
		{s.resolveEncryption, []string{"encrypt-key-file", "encrypt-cipher"}},
		{s.resolveLimits, []string{"max-request-bytes", "max-event-bytes", "auth-timeout", "write-timeout"}},
		{s.resolveRetention, nil},
		{s.resolveJournal, nil},
		{s.resolveCgroups, []string{"cgroups"}},
		{s.resolveLog, []string{"log-format", "log-level"}},
		{s.resolveDurability, []string{"durability"}},
	} {
		if err := check.resolve(); err != nil {
			return &usageError{s.blame(err, check.flags...)}
		}
	}
	return nil
}

// blame names the file where a wrong value stands, unless one of those flags was
// given.
func (s *settings) blame(err error, flags ...string) error {
	for _, name := range flags {
		if s.flagged[name] {
			return err
		}
	}
	if s.file == "" {
		return err
	}
	return fmt.Errorf("--config %s: %w", s.file, err)
}

func (s *settings) resolveDurability() (err error) {
	if s.split() && !s.member() {
		if s.flagged["durability"] || s.Durability != "" && s.Durability != defaultSettings().Durability {
			return fmt.Errorf("%s is for a journal of its own; with NATS servers the servers decide: leave it out here, set sync_interval there, and see --nats-system-creds and --nats-durability",
				s.named("durability", "durability"))
		}
		s.Durability = "" // the servers'
		return nil
	}
	orDefault(&s.Durability, defaultSettings().Durability)
	if s.durability, err = journal.ParseDurability(s.Durability); err != nil && s.flagged["durability"] {
		return fmt.Errorf("--%w", err) // it begins with the key's name, which is the flag's
	}
	return err
}

// named is what the user calls a setting: the flag if it was given, else the key.
func (s *settings) named(flag, key string) string {
	if s.flagged[flag] {
		return "--" + flag
	}
	return key
}

// brokerConfig is the part of the settings that the broker wants.
func (s *settings) brokerConfig() broker.Config {
	c := broker.Config{
		Agents: s.Agents, Missing: s.missing, Default: s.Default, Adapters: slices.Sorted(maps.Keys(adapters())),
		AllowArgv: s.AllowArgv, EnvAllow: s.EnvAllow, DataDir: s.dataDir, Version: version(),
		SessionsPerToken: s.Limits.SessionsPerToken, SessionsKept: s.Limits.SessionsKept,
	}
	switch {
	case !s.split():
		c.Workers = []string{workerID}
	case s.is(protocol.RoleBroker):
		c.Discover = true
	default:
		c.Desk = true
	}
	if s.is(protocol.RoleGateway) {
		c.TokenFile = s.tokensFile()
	}
	return c
}

func (s *settings) resolveListeners() error {
	if !s.is(protocol.RoleGateway) {
		s.Listen, s.listeners = nil, nil
		return nil
	}
	if len(s.Listen) == 0 {
		s.Listen = []string{listenDefault}
	}
	s.listeners = nil
	for _, raw := range s.Listen {
		e, err := gatewaytcp.ParseURL(raw)
		if err == nil {
			err = s.mayListen(e)
		}
		if err != nil {
			return fmt.Errorf("%s %w", s.named("listen", "listen"), err)
		}
		s.listeners = append(s.listeners, e)
	}
	return s.checkTLS()
}

// mayListen refuses what would open this machine to others without being asked
// to: beyond loopback there is a token and TLS, or --insecure.
func (s *settings) mayListen(e gatewaytcp.Endpoint) error {
	switch {
	case s.insecure || e.Loopback():
		return nil
	case s.noAuth:
		return fmt.Errorf("%s: --no-auth would let everyone who can reach it run programs here; leave --no-auth out, or allow it with --insecure", e.URL)
	case e.Scheme != gatewaytcp.SchemeTLS:
		return fmt.Errorf("%s: the token and all events would cross the network in clear text; "+
			"listen on tls:// with --tls-cert and --tls-key, or on 127.0.0.1, or allow it with --insecure", e.URL)
	}
	return nil
}

func (s *settings) checkTLS() error {
	listens := slices.ContainsFunc(s.listeners, func(e gatewaytcp.Endpoint) bool { return e.Scheme == gatewaytcp.SchemeTLS })
	given := s.flagged["tls-cert"] || s.flagged["tls-key"] || s.flagged["tls-client-ca"]
	switch {
	case listens && (s.TLS.Cert == "" || s.TLS.Key == ""):
		return errors.New("a tls:// listener needs a certificate and its key: --tls-cert and --tls-key, or tls: {cert, key} in the configuration")
	case !listens && given:
		return errors.New("--tls-cert, --tls-key and --tls-client-ca are for tls:// listeners, and there is none: --listen tls://host:port")
	}
	return nil
}

func (s *settings) resolveAuth() error {
	given := 0
	for _, set := range []bool{s.token != "", s.tokenFile != "", s.noAuth} {
		if set {
			given++
		}
	}
	if given > 1 {
		return errors.New("--token, --token-file and --no-auth exclude each other")
	}
	if s.split() && s.is(protocol.RoleGateway) && given == 0 && s.Tokens == "" {
		return errors.New("gateways that serve the same sessions must know the same tokens: give each the same --token-file, --token or --tokens")
	}
	if s.noAuth && s.Tokens != "" {
		return fmt.Errorf("%s says who may come and --no-auth lets everybody in: they exclude each other", s.named("tokens", "tokens"))
	}
	if s.Tokens != "" {
		path, err := filepath.Abs(s.Tokens)
		if err != nil {
			return err
		}
		s.Tokens = path
	}
	if s.Audit != "" && s.Audit != auditOff && !filepath.IsAbs(s.Audit) {
		return errors.New("audit must be an absolute path, or off")
	}
	return nil
}

func (s *settings) resolveAdmin() error {
	if s.Admin == "" {
		return nil
	}
	if err := checkAdmin(s.Admin, s.insecure); err != nil {
		return fmt.Errorf("%s %w", s.named("admin", "admin"), err)
	}
	return nil
}

func (s *settings) resolveEncryption() error {
	switch e := s.Encryption; {
	case e.Cipher != "" && e.KeyFile == "":
		return errors.New("encryption.cipher (--encrypt-cipher) needs a key: encryption.keyFile (--encrypt-key-file)")
	case e.Cipher != "" && e.Cipher != journal.CipherChaCha && e.Cipher != journal.CipherAES:
		return fmt.Errorf("encryption.cipher (--encrypt-cipher) is %q, want %s or %s", e.Cipher, journal.CipherChaCha, journal.CipherAES)
	}
	return nil
}

// auditOff is the audit log's name for none.
const auditOff = "off"

// auditFile is where the audit log is; empty for none.
func (s *settings) auditFile() string {
	switch s.Audit {
	case auditOff:
		return ""
	case "":
		return filepath.Join(s.dataDir, "audit.log")
	}
	return s.Audit
}

// tokensFile is the token file; empty when no token is asked for.
func (s *settings) tokensFile() string {
	switch {
	case s.noAuth:
		return ""
	case s.Tokens != "":
		return s.Tokens
	}
	return tokensFile(s.dataDir)
}

func (s *settings) resolveLimits() error {
	l := &s.Limits
	d := defaultSettings().Limits
	orDefault(&l.MaxRequestBytes, d.MaxRequestBytes)
	orDefault(&l.MaxEventBytes, d.MaxEventBytes)
	orDefault(&l.AuthTimeout, d.AuthTimeout)
	orDefault(&l.WriteTimeout, d.WriteTimeout)
	orDefault(&l.MaxConnections, d.MaxConnections)
	orDefault(&l.MaxSessions, d.MaxSessions)
	orDefault(&l.SessionsPerToken, d.SessionsPerToken)
	orDefault(&l.ConnectionsPerToken, d.ConnectionsPerToken)
	orDefault(&l.SessionsKept, d.SessionsKept)
	orDefault(&l.RequestsPerSecond, d.RequestsPerSecond)
	orDefault(&l.AuthFailures, d.AuthFailures)
	switch {
	case l.MaxRequestBytes < requestBytesMin || l.MaxRequestBytes > requestBytesMax:
		return fmt.Errorf("maxRequestBytes (--max-request-bytes) must be between %v and %v", size(requestBytesMin), size(requestBytesMax))
	case l.MaxEventBytes < eventBytesMin || l.MaxEventBytes > eventBytesMax:
		return fmt.Errorf("maxEventBytes (--max-event-bytes) must be between %v and %v", size(eventBytesMin), size(eventBytesMax))
	case l.AuthTimeout < 0:
		return errors.New("authTimeout (--auth-timeout) must be positive")
	case l.WriteTimeout < 0:
		return errors.New("writeTimeout (--write-timeout) must be positive")
	case l.MaxConnections < 0:
		return errors.New("maxConnections must be positive")
	case l.MaxSessions < 0:
		return errors.New("maxSessions must be positive")
	case l.SessionsPerToken < 0:
		return errors.New("sessionsPerToken must be positive")
	case l.ConnectionsPerToken < 0:
		return errors.New("connectionsPerToken must be positive")
	case l.SessionsKept < 0:
		return errors.New("sessionsKept must be positive")
	case l.RequestsPerSecond < 0:
		return errors.New("requestsPerSecond must be positive")
	case l.AuthFailures < 0:
		return errors.New("authFailures must be positive")
	}
	return nil
}

func (s *settings) resolveCgroups() error {
	orDefault(&s.Cgroups, defaultSettings().Cgroups)
	if s.Cgroups != cgroupsAuto && s.Cgroups != cgroupsOff {
		return fmt.Errorf("%s %s: want auto or off", s.named("cgroups", "cgroups"), s.Cgroups)
	}
	return nil
}

func (s *settings) resolveRetention() error {
	switch {
	case s.Retention.MaxAge < 0:
		return errors.New("retention.maxAge must be positive")
	case s.Retention.MaxBytes < 0:
		return errors.New("retention.maxBytes must be positive")
	}
	return nil
}

func (s *settings) resolveJournal() error {
	if m := s.Journal.MaxBytes; m != 0 && m < protocol.JournalBytesMin {
		return fmt.Errorf("journal.maxBytes must be at least %v: an eighth of it has to hold the largest events", size(protocol.JournalBytesMin))
	}
	return nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (s *settings) resolveLog() error {
	d := defaultSettings()
	orDefault(&s.LogFormat, d.LogFormat)
	orDefault(&s.LogLevel, d.LogLevel)
	if s.LogFormat != "text" && s.LogFormat != "json" {
		return fmt.Errorf("%s %s: want text or json", s.named("log-format", "logFormat"), s.LogFormat)
	}
	if err := s.level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return fmt.Errorf("%s %s: want debug, info, warn or error", s.named("log-level", "logLevel"), s.LogLevel)
	}
	return nil
}

// logger writes to w as the settings say.
func (s *settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// missedLines is the line of the log that says that n others are missing there.
func (s *settings) missedLines(n uint64) []byte {
	var b bytes.Buffer
	s.logger(&b).Error("the log is not complete", slog.Uint64("lost", n))
	return b.Bytes()
}

// roleNames are the roles of this process, for people.
func (s *settings) roleNames() []string {
	names := make([]string, 0, len(s.roles))
	for _, role := range s.roles {
		names = append(names, string(role))
	}
	return names
}

// print writes the settings as a configuration file; secrets have no key there.
func (s *settings) print(w io.Writer) error {
	b, err := yaml.MarshalWithOptions(s, yaml.CustomMarshaler(writeBytes))
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = w.Write(b)
	return err
}
