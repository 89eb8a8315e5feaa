package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

// least is the least role of each method.
var least = map[string]string{
	"ping": "observer", "server_status": "observer", "list_sessions": "observer", "get_session": "observer", "watch_sessions": "observer",
	"subscribe": "observer", "resync": "observer", "unsubscribe": "observer", "read_events": "observer", "get_snapshot": "observer",
	"command_status": "observer",

	"start_session": "operator", "send": "operator", "prompt": "operator", "steer": "operator", "follow_up": "operator", "interrupt": "operator",
	"respond": "operator", "set_model": "operator", "resume_session": "operator", "stop_session": "operator", "delete_session": "operator",
	"set_title": "operator", "read_stderr": "operator", "verify_session": "operator",

	"start_session with argv": "admin",
}

var roles = []string{"observer", "operator", "admin"}

// Each method under each role: what is allowed is not refused as forbidden, what is
// not allowed is refused, with -32003 and before anything happens, and whether the
// session exists or not. Proves I-A1.
func TestRoles(t *testing.T) {
	s := harness.Start(t, withEcho(t, ""))
	tokens := map[string]string{}
	for _, role := range roles {
		tokens[role] = addToken(t, s.Dir, "the-"+role, role, "default")
	}
	admin := as(t, s, tokens["admin"])
	id := start(t, admin, "sessionId", "there").ID
	for name, needs := range least {
		for i, role := range roles {
			allowed := i >= indexOf(roles, needs)
			for _, session := range []string{id, "nowhere"} {
				t.Run(name+" by "+role+" of "+session, func(t *testing.T) {
					method, params := request(name, session)
					e := ask(t, s, tokens[role], method, params)
					forbidden := e != nil && e.Code == -32003 && e.Data.Reason == "forbidden" && !e.Data.Retryable
					if forbidden == allowed {
						t.Errorf("allowed: %v, answered %v", allowed, e)
					}
				})
			}
		}
	}
	// Nothing that was refused happened: each start that was allowed made one session.
	if n := len(harness.Do[[]session](t, admin, "list_sessions", nil)); n != 1+2*2+2 {
		t.Errorf("%d sessions", n)
	}
}

// request is one of that name that changes nothing that other requests need.
func request(name, session string) (method string, params map[string]any) {
	params = map[string]any{"sessionId": session}
	switch name {
	case "start_session":
		return name, map[string]any{"agent": "echo"}
	case "start_session with argv":
		return "start_session", map[string]any{"argv": harness.ChildArgv("echo")}
	case "stop_session", "delete_session", "resume_session":
		params["sessionId"] = "nowhere" // the role is looked at first
	case "send":
		params["command"] = 1
	case "prompt", "steer", "follow_up":
		params["text"] = "x"
	case "respond":
		params["interactionId"], params["outcome"] = "1.x", "allow"
	case "set_model":
		params["model"] = "m"
	case "set_title":
		params["title"] = "a title"
	case "resync", "unsubscribe":
		params = map[string]any{"subscriptionId": 1 << 40}
	case "read_events":
		params["after"] = 0
	case "command_status":
		params["commandIds"] = []string{"x"}
	case "subscribe":
		params["until"] = 1
	}
	return name, params
}

func indexOf(list []string, v string) int {
	for i, x := range list {
		if x == v {
			return i
		}
	}
	return len(list)
}

// docs/protocol.md says the same.
func TestRolesAreDocumented(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		for _, role := range roles {
			if rest, ok := strings.CutPrefix(line, "| "+role+" | "); ok {
				rows[role] = strings.ReplaceAll(rest, "the verbs", "`prompt` `steer` `follow_up` `interrupt` `respond` `set_model`")
			}
		}
	}
	for name, role := range least {
		method, _, argv := strings.Cut(name, " with ")
		if argv {
			continue
		}
		if !strings.Contains(rows[role], "`"+method+"`") {
			t.Errorf("the row of %s does not name %s: %s", role, method, rows[role])
		}
	}
}
