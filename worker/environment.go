package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"rejoin/protocol"
)

// Marks in a child's environment. Every variable of that prefix is the server's
// own and reaches no child.
const (
	envPrefix   = "REJOIN_"
	envSession  = "REJOIN_SESSION"
	envRun      = "REJOIN_RUN"
	envInstance = "REJOIN_INSTANCE"
)

// mark names the run that a process belongs to.
type mark struct {
	session string // workspace/session
	run     protocol.Run
}

// envBasics are the variables of the server that every child gets: who and where
// it is, its language, the way to the network. What else the server was given,
// keys above all, is not the child's unless the configuration names it.
var envBasics = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "NO_COLOR", "TZ", "TMPDIR", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// childEnv is what a child of this server gets: of the server's environment what
// the record allows, then the session's private directories, then what the record
// adds, then the marks. Of a repeated name the last one counts.
func childEnv(rec *protocol.SessionRecord, own []string, instance string) []string {
	base := allowedEnv(os.Environ(), rec.EnvAllow, rec.Home == protocol.DirPrivate)
	m := mark{session: rec.Key().String(), run: rec.Run}
	return mergeEnv(base, slices.Concat(own, rec.Env), rec.Cwd, m, instance)
}

// allowedEnv is the part of environ that envBasics and allow name: I-A1. A child
// with a home of its own is not led back to the server's by XDG variables.
func allowedEnv(environ, allow []string, ownHome bool) []string {
	out := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if ownHome && strings.HasPrefix(name, "XDG_") && !matchesEnv(allow, name) {
			continue
		}
		if matchesEnv(envBasics, name) || matchesEnv(allow, name) {
			out = append(out, kv)
		}
	}
	return out
}

func matchesEnv(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		return p == name || isPrefix && strings.HasPrefix(name, prefix)
	})
}

func mergeEnv(base, extra []string, cwd string, m mark, instance string) []string {
	var all []string
	all = append(all, base...)
	if cwd != "" {
		all = append(all, "PWD="+cwd)
	}
	all = append(all, extra...)
	out := make([]string, 0, len(all)+3)
	at := make(map[string]int, len(all))
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.HasPrefix(name, envPrefix) || strings.IndexByte(kv, 0) >= 0 {
			continue
		}
		if i, seen := at[name]; seen {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return append(out,
		envSession+"="+m.session,
		envRun+"="+strconv.FormatUint(uint64(m.run), 10),
		envInstance+"="+instance)
}

// FindProgram says where this machine has the program of a session with that
// record, or why a worker here could not start it. What sets environments apart
// from that of this process is the record's.
func FindProgram(rec *protocol.SessionRecord) (string, error) {
	path, err := lookPath(rec.Argv, childEnv(rec, nil, ""), rec.Cwd)
	if err != nil {
		return "", err
	}
	return path, checkDirectory(rec.Argv[0], rec.Cwd)
}

// lookPath finds the program of argv as the child would: in the PATH of its own
// environment, or, with a slash in its name, from its working directory. The
// error says where it was looked for.
func lookPath(argv, env []string, cwd string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", protocol.Errorf(protocol.ReasonInvalidParams, "failed to start: argv is empty")
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		if err := executable(path); err != nil {
			return "", startFailed(name, causeOf(err)+" (looked for "+path+")")
		}
		return path, nil
	}
	var dirs string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = v
		}
	}
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) {
			continue // what the working directory happens to hold is not a program by that name
		}
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path, nil
		}
	}
	return "", startFailed(name, "executable file not found (looked in PATH "+dirs+")")
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return syscall.EISDIR
	case st.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

// startError says why a program that was found did not start.
func startError(name, path, cwd string, err error) error {
	if _, ok := protocol.AsError(err); ok {
		return err
	}
	if derr := checkDirectory(name, cwd); derr != nil {
		return derr
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err // ours, not the program's
	}
	if errno == syscall.EAGAIN || errno == syscall.ENOMEM || errno == syscall.EMFILE || errno == syscall.ENFILE {
		return protocol.Errorf(protocol.ReasonOverloaded, "failed to start %s: %s", name, errno.Error())
	}
	return startFailed(name, errno.Error()+" (looked for "+path+")")
}

// checkDirectory says why a child cannot have that working directory; empty is
// the server's own.
func checkDirectory(name, cwd string) error {
	if cwd == "" {
		return nil
	}
	switch st, err := os.Stat(cwd); {
	case err != nil:
		return startFailed(name, "working directory "+cwd+": "+causeOf(err))
	case !st.IsDir():
		return startFailed(name, "working directory "+cwd+" is not a directory")
	}
	return nil
}

func startFailed(name, why string) *protocol.Error {
	return protocol.Errorf(protocol.ReasonInvalidParams, "failed to start %s: %s", name, why)
}

// causeOf is an error without the operation and the path that Go puts before it.
func causeOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
