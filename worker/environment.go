package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// childEnv is the server's environment without its own variables, then what the
// session's record adds, then the marks. Of a repeated name the last one counts.
func childEnv(extra []string, cwd string, m mark, instance string) []string {
	return mergeEnv(os.Environ(), extra, cwd, m, instance)
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
	if cwd != "" {
		if st, serr := os.Stat(cwd); serr != nil {
			return startFailed(name, "working directory "+cwd+": "+causeOf(serr))
		} else if !st.IsDir() {
			return startFailed(name, "working directory "+cwd+" is not a directory")
		}
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
