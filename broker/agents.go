package broker

import (
	"context"
	"crypto/sha1" //nolint:gosec // RFC 9562 §5.5 names SHA-1 for a version 5 UUID; nothing secret hangs on it
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rejoin/protocol"
	"rejoin/snapshot"
)

// TitleBytesMax bounds a session's title; it stands in every SessionInfo.
const TitleBytesMax = 256

// StartParams of start_session.
type StartParams = protocol.StartParams

// resolve turns the parameters of start_session into the record of a session
// that is about to start; id, epoch, shard and owner are not yet in it.
func (b *Broker) resolve(p Principal, s StartParams) (*protocol.SessionRecord, error) {
	title := s.Title
	if title == "" {
		title = s.Name
	}
	if err := checkTitle(title); err != nil {
		return nil, err
	}
	if s.SessionID != "" && !protocol.ValidSessionID(s.SessionID) {
		return nil, invalid("sessionId must match [A-Za-z0-9_-]{1,64}")
	}
	if !validRestart(s.Restart) {
		return nil, invalid("restart must be never or resume")
	}
	name, agent, err := b.agent(p, s)
	if err != nil {
		return nil, err
	}
	env, err := environment(agent, s)
	if err != nil {
		return nil, err
	}
	place := directory
	if b.cfg.Discover { // it is the worker's machine that has it, or not
		place = elsewhere
	}
	cwd, err := place(s.Cwd, agent.Cwd, s.DefaultCwd)
	if err != nil {
		if s.Cwd == "" && agent.Cwd != "" {
			return nil, invalid("agent %s is configured with a directory it cannot have: %v", name, err)
		}
		return nil, err
	}
	restart := s.Restart
	if restart == "" {
		restart = agent.Restart
	}
	labels, err := mergeLabels(agent.Labels, s.Labels)
	if err != nil {
		return nil, err
	}
	return &protocol.SessionRecord{
		Workspace: p.Workspace, Status: protocol.StatusStarting,
		Agent: name, Adapter: agent.Adapter, Argv: agent.Argv, ResumeArgv: agent.ResumeArgv, Env: env,
		EnvAllow: slices.Concat(agent.EnvAllow, b.cfg.EnvAllow), Home: agent.Home, Tmp: agent.Tmp, Limits: agent.Limits.Record(), Cwd: cwd, Title: title, Labels: labels, Restart: restart, Stderr: agent.Stderr,
	}, nil
}

// agent returns the configuration that s asks for, with s's args in it.
func (b *Broker) agent(p Principal, s StartParams) (string, AgentConfig, error) {
	if len(s.Argv) > 0 {
		return b.program(p, s)
	}
	name := s.Agent
	if name == "" {
		name = b.cfg.Default
	}
	agent, ok := b.cfg.Agents[name]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(b.cfg.Agents)), ", ")
		switch {
		case known == "":
			return "", AgentConfig{}, invalid("no agent is configured")
		case name == "":
			return "", AgentConfig{}, invalid("no default agent is configured; name one of: %s", known)
		case slices.Contains(b.cfg.Missing, name):
			return "", AgentConfig{}, invalid("%s was not found on the server's PATH when it started; install it and restart the server (known: %s)", name, known)
		}
		return "", AgentConfig{}, invalid("agent %q is not configured; known: %s", name, known)
	}
	if s.Adapter != "" && s.Adapter != agent.Adapter {
		return "", AgentConfig{}, invalid("agent %s speaks %s; an adapter is chosen with argv only", name, agent.Adapter)
	}
	if len(s.Args) > 0 && !agent.AllowArgs {
		return "", AgentConfig{}, invalid("agent %s takes no args", name)
	}
	if err := checkArgs("args", s.Args); err != nil {
		return "", AgentConfig{}, err
	}
	return name, agent, nil
}

// program returns the configuration of a session with an argv of its own.
func (b *Broker) program(p Principal, s StartParams) (string, AgentConfig, error) {
	if !b.cfg.AllowArgv {
		return "", AgentConfig{}, protocol.Errorf(protocol.ReasonForbidden, "this server starts configured agents only (--allow-argv)")
	}
	if err := p.need(RoleAdmin); err != nil {
		return "", AgentConfig{}, err
	}
	adapter := s.Adapter
	if adapter == "" {
		adapter = DefaultAdapter
	}
	if !slices.Contains(b.cfg.Adapters, adapter) {
		return "", AgentConfig{}, invalid("unknown adapter %q; known: %s", adapter, strings.Join(b.cfg.Adapters, ", "))
	}
	if s.Agent != "" {
		return "", AgentConfig{}, invalid("agent and argv exclude each other")
	}
	if s.Argv[0] == "" {
		return "", AgentConfig{}, invalid("argv names no program")
	}
	if err := checkArgs("argv", s.Argv); err != nil {
		return "", AgentConfig{}, err
	}
	if err := checkArgs("args", s.Args); err != nil {
		return "", AgentConfig{}, err
	}
	allow := slices.Collect(maps.Keys(s.Env)) // who may start any program may set any name
	return filepath.Base(s.Argv[0]), AgentConfig{Adapter: adapter, Argv: s.Argv, EnvAllow: allow}, nil
}

// environment returns what the child gets on top of what comes from the server,
// sorted. A pattern lets no client set anything: "*" would open LD_PRELOAD.
func environment(agent AgentConfig, s StartParams) ([]string, error) {
	env := maps.Clone(agent.Env)
	if env == nil {
		env = make(map[string]string, len(s.Env))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !validEnvName(name) || !slices.Contains(agent.EnvAllow, name) {
			return nil, invalid("env may not set %q", name)
		}
		if strings.ContainsRune(s.Env[name], 0) {
			return nil, invalid("env %s holds a NUL", name)
		}
		env[name] = s.Env[name]
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}

// directory returns the first named one as an absolute path, if it exists.
func directory(names ...string) (string, error) {
	name := "."
	for _, n := range names {
		if n != "" {
			name = n
			break
		}
	}
	if strings.ContainsRune(name, 0) {
		return "", invalid("cwd holds a NUL")
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", invalid("cwd %s: %v", name, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", invalid("cwd %s does not exist or cannot be read", name)
	}
	if !info.IsDir() {
		return "", invalid("cwd %s is not a directory", name)
	}
	return abs, nil
}

// settleDir gives a session for which nobody named a directory that of its worker.
func (b *Broker) settleDir(r *protocol.SessionRecord, owner string) {
	if b.roster == nil || r.Cwd != "" && !r.CwdOwn {
		return
	}
	if e, ok := b.roster.worker(protocol.WorkerOf(owner)); ok {
		r.Cwd, r.CwdOwn = e.Dir, true
	}
}

// elsewhere is directory for a machine that is not this one: the worker looks
// whether it exists. Empty is the worker's own, see settleDir.
func elsewhere(names ...string) (string, error) {
	for _, name := range names {
		switch {
		case name == "":
		case strings.ContainsRune(name, 0):
			return "", invalid("cwd holds a NUL")
		case !filepath.IsAbs(name):
			return "", invalid("cwd %s must be absolute: the worker may run on another machine", name)
		default:
			return filepath.Clean(name), nil
		}
	}
	return "", nil
}

// agentSession is the placeholder for the agent's own name of its session.
const agentSession = "{agentSessionId}"

// fill replaces the placeholders of a configured argv and appends args. A
// resume argv that is not configured is the argv. In a configured one the agent's
// session stays open until the resume: the agent may have named it by then. So does a
// directory that is the worker's own, until the run.
func fill(rec *protocol.SessionRecord, configured bool, args []string) {
	place := func(argv []string, holes ...string) []string {
		out := slices.Clone(argv)
		if configured {
			if holes = append(holes, "{sessionId}", rec.ID); !rec.CwdOwn {
				holes = append(holes, cwdHole, rec.Cwd)
			}
			r := strings.NewReplacer(holes...)
			for i := range out {
				out[i] = r.Replace(out[i])
			}
		}
		return append(out, args...)
	}
	resume := rec.ResumeArgv
	if configured && rec.CwdOwn {
		rec.ArgvOpen = len(rec.Argv)
	}
	switch {
	case len(resume) == 0:
		rec.Argv = place(rec.Argv, agentSession, agentSessionID(rec.Key()))
		rec.ResumeArgv, rec.ResumeOpen = slices.Clone(rec.Argv), rec.ArgvOpen
	default:
		rec.Argv, rec.ResumeArgv = place(rec.Argv, agentSession, agentSessionID(rec.Key())), place(resume)
		if configured {
			rec.ResumeOpen = len(resume)
		}
	}
}

// cwdHole is the placeholder for the session's directory.
const cwdHole = "{cwd}"

// inDir returns rec with its directory in the command lines, where that is its worker's
// own: the next run may have another.
func inDir(rec *protocol.SessionRecord) *protocol.SessionRecord {
	if !rec.CwdOwn {
		return rec
	}
	out := clone(rec)
	for _, argv := range [][]string{out.Argv[:min(out.ArgvOpen, len(out.Argv))], out.ResumeArgv[:min(out.ResumeOpen, len(out.ResumeArgv))]} {
		for i := range argv {
			argv[i] = strings.ReplaceAll(argv[i], cwdHole, out.Cwd)
		}
	}
	return out
}

// resumeArgv is the command line of the next run: known is the agent's own name
// of its session, empty when the agent has told none. Without one, and where the
// first command line did not choose it either, there is nothing to resume and
// the first command line starts anew.
func resumeArgv(rec *protocol.SessionRecord, known string) []string {
	open := min(rec.ResumeOpen, len(rec.ResumeArgv))
	if !slices.ContainsFunc(rec.ResumeArgv[:open], holdsAgentSession) {
		return rec.ResumeArgv
	}
	if known == "" || strings.ContainsRune(known, 0) {
		known = agentSessionID(rec.Key())
		if !slices.ContainsFunc(rec.Argv, func(a string) bool { return strings.Contains(a, known) }) {
			return rec.Argv
		}
	}
	out := slices.Clone(rec.ResumeArgv)
	for i := range out[:open] {
		out[i] = strings.ReplaceAll(out[i], agentSession, known)
	}
	return out
}

func holdsAgentSession(arg string) bool { return strings.Contains(arg, agentSession) }

// resumable returns rec as a worker is to resume it: with what its agent last
// called its session in the command line.
func (b *Broker) resumable(ctx context.Context, rec *protocol.SessionRecord) (*protocol.SessionRecord, error) {
	open := min(rec.ResumeOpen, len(rec.ResumeArgv))
	if !slices.ContainsFunc(rec.ResumeArgv[:open], holdsAgentSession) {
		return rec, nil
	}
	snap, err := b.folds.Latest(ctx, logOf(rec), 0)
	if err != nil {
		return nil, fmt.Errorf("fold %s: %w", rec.Key(), err)
	}
	s, err := snapshot.Decode(snap.State)
	if err != nil {
		return nil, err
	}
	known := ""
	if s.Extra != nil {
		known = s.Extra.AgentSession
	}
	out := clone(rec)
	out.ResumeArgv, out.ResumeOpen = resumeArgv(rec, known), 0
	return out, nil
}

// agentNamespace is the namespace of agent session ids.
var agentNamespace = [16]byte{0x6b, 0x1c, 0x9a, 0x52, 0x0d, 0x37, 0x4e, 0x0f, 0x9d, 0x5e, 0x21, 0x6a, 0x7f, 0x43, 0xc8, 0x90}

// agentSessionID is the id by which an agent that keeps sessions of its own
// knows this one: a UUID version 5 (RFC 9562 §5.5) of the key, so that a resume
// names the same one as the start.
func agentSessionID(k protocol.Key) string {
	h := sha1.New() //nolint:gosec // as at the import
	h.Write(agentNamespace[:])
	h.Write([]byte(k.String()))
	u := h.Sum(nil)[:16]
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	x := hex.EncodeToString(u)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func checkTitle(title string) error {
	if len(title) > TitleBytesMax || !utf8.ValidString(title) {
		return invalid("title must be UTF-8 of at most %d bytes", TitleBytesMax)
	}
	return nil
}

func checkArgs(name string, args []string) error {
	for i, a := range args {
		if strings.ContainsRune(a, 0) {
			return invalid("%s[%d] holds a NUL", name, i)
		}
	}
	return nil
}

func invalid(format string, args ...any) *protocol.Error {
	return protocol.Errorf(protocol.ReasonInvalidParams, format, args...)
}
