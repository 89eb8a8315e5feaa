package broker

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"rejoin/protocol"
	"rejoin/snapshot"
)

// AgentConfig is a configured agent.
type AgentConfig struct {
	Adapter    string            `yaml:"adapter"`    // required: one of Config.Adapters
	Argv       []string          `yaml:"argv"`       // required; {sessionId} {agentSessionId} {cwd} are filled in
	ResumeArgv []string          `yaml:"resumeArgv"` // empty: a later run starts with Argv
	Env        map[string]string `yaml:"env"`        // on top of what comes from the server
	// EnvAllow holds names of variables that the child gets from the server's
	// environment and that start_session's env may set, and patterns (LC_*, *) of
	// further ones that it gets from there.
	EnvAllow  []string `yaml:"envAllow"`
	Cwd       string   `yaml:"cwd"`            // where start_session names none; empty: the server's
	AllowArgs bool     `yaml:"allowArgs"`      // start_session's args are appended to Argv and ResumeArgv
	Stderr    string   `yaml:"stderr"`         // drop (also when empty), event
	Restart   string   `yaml:"restart"`        // never (also when empty), resume
	Home      string   `yaml:"home,omitempty"` // shared (also when empty): the server's HOME; private: one of each session's own
	Tmp       string   `yaml:"tmp,omitempty"`  // the same of TMPDIR
	Limits    *Limits  `yaml:"limits,omitempty"`
	// Labels are those that a worker must have to run the agent; start_session may
	// add some.
	Labels map[string]string `yaml:"labels,omitempty"`
	// Options are the start options of an agent whose adapter has some. Whoever
	// loads a configuration makes arguments of them; here they have no meaning.
	Options map[string]any `yaml:"options,omitempty"`
}

// Limits of what all processes of one run use together. Zero sets no bound.
type Limits struct {
	Memory  Bytes   `yaml:"memory,omitempty"`  // swap included
	PIDs    int     `yaml:"pids,omitempty"`    // processes and threads
	CPU     float64 `yaml:"cpu,omitempty"`     // processors
	Enforce string  `yaml:"enforce,omitempty"` // required (also when empty): without them nothing starts; preferred
}

// Bytes is a number of bytes. Whoever loads a configuration says how it is written.
type Bytes int64

// Smallest limits: below them no program starts, or it ends at once.
const (
	memoryMin = 1 << 20
	cpuMin    = 0.01
	cpuMax    = 10_000
)

// Record is the limits as a session's record has them; nil when there are none.
func (l *Limits) Record() *protocol.ResourceLimits {
	if l == nil || l.Memory == 0 && l.PIDs == 0 && l.CPU == 0 {
		return nil
	}
	return &protocol.ResourceLimits{Memory: int64(l.Memory), PIDs: l.PIDs, CPU: l.CPU, Enforce: l.Enforce}
}

func (l *Limits) validate() error {
	switch {
	case l == nil:
		return nil
	case l.Memory != 0 && l.Memory < memoryMin:
		return fmt.Errorf("limits.memory must be at least %d bytes", memoryMin)
	case l.PIDs < 0:
		return fmt.Errorf("limits.pids must be positive")
	case l.CPU != 0 && !(l.CPU >= cpuMin && l.CPU <= cpuMax):
		return fmt.Errorf("limits.cpu must be between %v and %v", cpuMin, cpuMax)
	case l.Enforce != "" && l.Enforce != protocol.EnforceRequired && l.Enforce != protocol.EnforcePreferred:
		return fmt.Errorf("limits.enforce is %q, want required or preferred", l.Enforce)
	}
	return nil
}

// Config of a Broker. It is not changed after New.
type Config struct {
	Agents   map[string]AgentConfig
	Missing  []string // agents that were looked for and not found
	Default  string   // agent of a start_session that names none; empty: the only one
	Adapters []string // names the workers know
	// Workers are the ids of the workers there are, at least one; with Discover or
	// Desk none: they tell of themselves in the bucket protocol.BucketWorkers.
	Workers []string
	// Discover: this is one of several processes. The broker finds the workers, and
	// takes over the sessions of those that are lost; there may be other brokers.
	Discover bool
	// Desk: the broker of a gateway whose process has not the role. It knows what
	// brokers know and asks owners itself, but leaves what grants runs to them.
	Desk bool
	// ID names this broker among several. Empty: a new one at every start.
	ID string

	AllowArgv bool     // admins may start any program
	EnvAllow  []string // what of the server's environment every child gets, as in AgentConfig
	Token     string   // the server's own, of the local admin; empty: there is none
	TokenFile string   // see AddToken; it may come later. Empty: none. Without either nothing is asked for
	// SessionsPerToken bounds the live sessions of each token of the token file.
	// Zero means protocol.SessionsPerTokenDefault.
	SessionsPerToken int
	// SessionsKept bounds the sessions of a workspace that are not deleted. Zero
	// means protocol.SessionsKeptDefault.
	SessionsKept int
	DataDir      string // stderr tails are under DataDir/stderr. Required unless Discover or Desk
	Version      string // shown in logs
	// StderrTail and RemoveFiles are the worker's, which keeps what sessions have
	// besides their log. Without the first read_stderr is unsupported; without the
	// second a delete leaves those files. With Discover or Desk neither is used: the
	// worker that ran a session last is asked.
	StderrTail  func(dataDir string, k protocol.Key, run protocol.Run) (string, error)
	RemoveFiles func(dataDir string, k protocol.Key) error
	Checkpoints *snapshot.Store    // removed with their session; nil: there are none
	Retention   snapshot.Retention // of the logs of ended sessions, by age
	RetainEvery time.Duration      // zero: a tenth of Retention.MaxAge, between a minute and an hour
	Logger      *slog.Logger       // nil: discard
	Now         func() time.Time   // nil: time.Now
}

// DefaultAdapter is the adapter of a start_session with an argv of its own.
const DefaultAdapter = "jsonl"

// withDefaults returns c with zero values replaced.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.SessionsPerToken == 0 {
		c.SessionsPerToken = protocol.SessionsPerTokenDefault
	}
	if c.SessionsKept == 0 {
		c.SessionsKept = protocol.SessionsKeptDefault
	}
	if c.ID == "" {
		c.ID = string(protocol.NewEpoch(c.Now()))
	}
	if c.Default == "" && len(c.Agents) == 1 {
		for name := range c.Agents {
			c.Default = name
		}
	}
	return c
}

// split reports whether the roles are those of several processes.
func (c Config) split() bool { return c.Discover || c.Desk }

// Validate reports the first thing wrong with c, by name.
func (c Config) Validate() error {
	switch {
	case c.Discover && c.Desk:
		return fmt.Errorf("broker: Discover and Desk exclude each other")
	case c.split() && len(c.Workers) > 0:
		return fmt.Errorf("broker: Workers are not told where they are found")
	case !c.split() && len(c.Workers) == 0:
		return fmt.Errorf("broker: Workers is empty")
	case !c.split() && c.DataDir == "":
		return fmt.Errorf("broker: DataDir is empty")
	case strings.ContainsAny(c.ID, ".*> \t\r\n"):
		return fmt.Errorf("broker: ID %q is not one subject token", c.ID)
	}
	if _, ok := c.Agents[c.Default]; c.Default != "" && !ok {
		return fmt.Errorf("default agent %q is not configured", c.Default)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		if err := c.Agents[name].validate(c.Adapters); err != nil {
			return fmt.Errorf("agent %q: %w", name, err)
		}
	}
	return nil
}

func (a AgentConfig) validate(adapters []string) error {
	switch {
	case a.Adapter == "":
		return fmt.Errorf("adapter is missing, known: %s", strings.Join(adapters, ", "))
	case !slices.Contains(adapters, a.Adapter):
		return fmt.Errorf("unknown adapter %q, known: %s", a.Adapter, strings.Join(adapters, ", "))
	case a.Options != nil:
		return fmt.Errorf("options are for agents with adapter rpi")
	case len(a.Argv) == 0 || a.Argv[0] == "":
		return fmt.Errorf("argv is empty")
	case !validRestart(a.Restart):
		return fmt.Errorf("restart is %q, want never or resume", a.Restart)
	case a.Stderr != "" && a.Stderr != "drop" && a.Stderr != "event":
		return fmt.Errorf("stderr is %q, want drop or event", a.Stderr)
	}
	if err := validLabels(a.Labels); err != nil {
		return err
	}
	for name := range a.Env {
		if !validEnvName(name) {
			return fmt.Errorf("env name %q", name)
		}
	}
	for _, p := range a.EnvAllow {
		if !ValidEnvPattern(p) {
			return fmt.Errorf("envAllow %q is neither a variable's name nor a prefix with * after it", p)
		}
	}
	if err := a.Limits.validate(); err != nil {
		return err
	}
	return validDirs(a)
}

func validDirs(a AgentConfig) error {
	for _, d := range []struct{ name, value string }{{"home", a.Home}, {"tmp", a.Tmp}} {
		if d.value != "" && d.value != protocol.DirShared && d.value != protocol.DirPrivate {
			return fmt.Errorf("%s is %q, want shared or private", d.name, d.value)
		}
	}
	return nil
}

func validRestart(s string) bool {
	return s == "" || s == protocol.RestartNever || s == protocol.RestartResume
}

// reservedEnv starts the names by which a worker marks its children.
const reservedEnv = "REJOIN_"

// ValidEnvPattern reports whether s is a variable's name, or a prefix of names
// (empty too) with * after it. Names of rejoin's own are neither.
func ValidEnvPattern(s string) bool {
	name, isPrefix := strings.CutSuffix(s, "*")
	return isPrefix && name == "" || validEnvName(name)
}

func validEnvName(s string) bool {
	return s != "" && !strings.ContainsAny(s, "=*\x00") && !strings.HasPrefix(s, reservedEnv)
}
