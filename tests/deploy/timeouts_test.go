package deploy_test

import (
	"regexp"
	"testing"
	"time"
)

// TestIdleTimesAreLong: a session may be silent for hours. What may end a silent
// connection does so far above the 25 s in which WebSocket peers are pinged, and is
// not left to a default.
func TestIdleTimesAreLong(t *testing.T) {
	const least = 20 * 25 * time.Second
	all := texts(t)
	for path, settings := range map[string][]string{
		"deploy/proxy/haproxy.cfg": {`timeout client +(\w+)`, `timeout server +(\w+)`, `timeout tunnel +(\w+)`, `timeout client-fin +(\w+)`, `timeout server-fin +(\w+)`, `hard-stop-after +(\w+)`},
		"deploy/proxy/nginx.conf":  {`proxy_timeout +(\w+);`, `proxy_read_timeout +(\w+);`, `proxy_send_timeout +(\w+);`, `worker_shutdown_timeout +(\w+);`},
		"deploy/proxy/envoy.yaml":  {`[^_]idle_timeout: +(\w+)`, `stream_idle_timeout: +(\w+)`},
	} {
		for _, setting := range settings {
			found := regexp.MustCompile(setting).FindAllStringSubmatch(all[path], -1)
			if len(found) == 0 {
				t.Errorf("%s does not set %s", path, setting)
			}
			for _, m := range found {
				if d, err := time.ParseDuration(m[1]); err != nil || d < least {
					t.Errorf("%s: %q is below %v (%v)", path, m[0], least, err)
				}
			}
		}
	}
}
