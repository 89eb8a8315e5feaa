package admin_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// adminURL reads where the server says its endpoint is.
func adminURL(t *testing.T, s *harness.Server) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ready struct {
		Admin string `json:"admin"`
	}
	if err := json.Unmarshal(b, &ready); err != nil || ready.Admin == "" {
		t.Fatalf("server.json: %s, %v", b, err)
	}
	return ready.Admin
}

func fetch(t *testing.T, method, url, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(harness.Context(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// sample is the value of one line of /metrics; the name with its labels.
func sample(t *testing.T, at, name string) float64 {
	t.Helper()
	status, body := fetch(t, "GET", at+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	return -1
}

// What happens is counted, and nothing that a client chose stands in it.
func TestMetrics(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--admin", "127.0.0.1:0", "--max-request-bytes", "64KiB"}})
	at := adminURL(t, s)
	ctx := harness.Context(t)
	c := harness.Dial(t, s)
	const lines = 3000
	raw, err := c.Call(ctx, "start_session", map[string]any{
		"sessionId": "marker-session", "title": "marker-title", "adapter": "lines", "argv": []string{"sh", "-c", "seq 1 3000 | sed s/^/marker-output-/; cat"},
	})
	if err != nil {
		t.Fatalf("%s %v", raw, err)
	}
	stream, err := c.Subscribe(ctx, "marker-session", map[string]any{"after": 0})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "all is read", func() bool {
		_, seq := stream.Cursor()
		return seq > lines
	})
	if _, err := c.Call(ctx, "get_session", map[string]any{"sessionId": "marker-unknown"}); err == nil {
		t.Fatal("an unknown session")
	}
	if _, err := c.Call(ctx, "marker_method", nil); err == nil {
		t.Fatal("an unknown method")
	}
	wrong := harness.DialWire(t, s)
	wrong.Send(`{"id":1,"method":"authenticate","params":{"token":"marker-token"}}` + "\n")
	wrong.Closed()
	long := harness.DialWire(t, s)
	if err := long.TrySend(strings.Repeat("x", 100<<10)); err != nil {
		t.Log(err)
	}
	long.Closed()

	for name, least := range map[string]float64{
		`rejoin_connections`: 1, `rejoin_connections_total`: 3, `rejoin_accepted_total{scheme="tcp"}`: 3,
		`rejoin_requests_total{method="start_session"}`: 1, `rejoin_requests_total{method="subscribe"}`: 1,
		`rejoin_errors_total{reason="session_not_found"}`: 1, `rejoin_errors_total{reason="method_not_found"}`: 1, `rejoin_errors_total{reason="auth_failed"}`: 1,
		`rejoin_refused_total{limit="RequestBytesDefault"}`: 1,
		`rejoin_subscriptions{state="caught_up"}`:           1, `rejoin_sent_events_total`: lines, `rejoin_sent_bytes_total`: lines * 50,
		`rejoin_journal_records_total`: 2, `rejoin_journal_events_total`: lines, `rejoin_journal_bytes_total`: 1000,
		`rejoin_journal_append_seconds_count`: 2, `rejoin_journal_append_seconds_bucket{le="+Inf"}`: 2, `rejoin_journal_writers`: 1,
		`rejoin_journal_free_bytes`: 1, `rejoin_journal_quota_bytes`: 1, `rejoin_journal_health`: 0, `rejoin_hub_watches`: 1, `rejoin_hub_bytes`: 1000, `rejoin_sessions{state="running"}`: 1, `rejoin_children_started_total`: 1,
	} {
		if got := sample(t, at, name); got < least {
			t.Errorf("%s is %v, want at least %v", name, got, least)
		}
	}
	live := 0.0
	for _, status := range []string{"starting", "idle", "busy", "waiting"} {
		live += sample(t, at, `rejoin_sessions_live{status="`+status+`"}`)
	}
	if live != 1 {
		t.Errorf("%v live sessions", live)
	}
	_, body := fetch(t, "GET", at+"/metrics", "")
	if strings.Contains(body, "marker") || strings.Contains(body, s.Token()) {
		t.Error("metrics show what a client chose")
	}
	if _, err := c.Call(ctx, "stop_session", map[string]any{"sessionId": "marker-session"}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the session is counted as ended", func() bool { return sample(t, at, `rejoin_sessions{state="exited"}`) == 1 })
}

func TestHealthAndProfiles(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--admin", "127.0.0.1:0", "--token", "hush-hush-hush"}})
	at := adminURL(t, s)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/heap": 200,
		"/debug/pprof/cmdline": 404, "/": 404, "/metrics/x": 404,
	} {
		status, body := fetch(t, "GET", at+path, "")
		if status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
		if strings.Contains(body, "hush-hush-hush") {
			t.Errorf("%s shows the token", path)
		}
	}
	if status, _ := fetch(t, "POST", at+"/metrics", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", status)
	}
	if status, _ := fetch(t, "GET", at+"/metrics", "evil.example"); status != http.StatusForbidden {
		t.Errorf("by a foreign name: status %d", status)
	}
}

// While the server stops it is not ready; strangers who hold connections do not
// keep it.
func TestStopIsNotReady(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--admin", "127.0.0.1:0"}})
	at := adminURL(t, s)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // more than it takes
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if status, _ := fetch(t, "GET", at+"/readyz", ""); status != 200 {
		t.Errorf("status %d among strangers", status)
	}
	ctx := harness.Context(t)
	c := harness.Dial(t, s)
	if _, err := c.Call(ctx, "start_session", map[string]any{"adapter": "lines", "argv": []string{"sh", "-c", "trap '' TERM HUP; while :; do sleep 0.1; done"}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	unready := false
	harness.Eventually(t, "it is not ready, or has ended", func() bool {
		resp, err := http.Get(at + "/readyz") //nolint:noctx // it ends with the server
		if err == nil {
			unready = unready || resp.StatusCode == http.StatusServiceUnavailable
			_ = resp.Body.Close() // only the status counts
		}
		return unready || !s.Alive()
	})
	http.DefaultClient.CloseIdleConnections()
	if !unready {
		t.Error("it was ready to the end")
	}
	<-s.Exited()
}

// TestHealthCommand: `rejoin health` says by its exit status what the endpoint
// says, for supervisors that have no HTTP client.
func TestHealthCommand(t *testing.T) {
	s := harness.Start(t, harness.Options{Args: []string{"--admin", "127.0.0.1:0"}})
	address := strings.TrimPrefix(adminURL(t, s), "http://")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"by the data directory", []string{"--data-dir", s.Dir}, 0, "ok"},
		{"by address", []string{"--admin", address}, 0, "ok"},
		{"live", []string{"--admin", address, "--live"}, 0, "ok"},
		{"nothing there", []string{"--admin", "127.0.0.1:1"}, 3, "connection refused"},
		{"no port", []string{"--admin", "127.0.0.1"}, 2, "want host:port"},
		{"no server", []string{"--data-dir", t.TempDir()}, 3, "no server runs in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, said := health(t, c.args...)
			if code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit status %d and %q, want %d and %q", code, said, c.code, c.says)
			}
		})
	}
	unready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "journal full: the disk", http.StatusServiceUnavailable)
	}))
	defer unready.Close()
	code, said := health(t, "--admin", strings.TrimPrefix(unready.URL, "http://"))
	if code != 1 || !strings.Contains(said, "journal full: the disk") {
		t.Errorf("exit status %d and %q of one that is not ready", code, said)
	}
}

func health(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(harness.Context(t), harness.Binary(t), append([]string{"health"}, args...)...)
	cmd.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
