package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rejoin/gateway"
)

// until reads lines up to the first one that contains want, and returns how many
// it read.
func (c *client) until(want string) int {
	c.t.Helper()
	for n := 1; ; n++ {
		if strings.Contains(c.line(), want) {
			return n
		}
	}
}

// What an owner's session does is seen by who watches: its status at once, its
// head and counts only when asked for, and then about once a second.
func TestWatchALiveSession(t *testing.T) {
	w := newWorld(t, gateway.Config{})
	url := w.listen("tcp://127.0.0.1:0").URL()
	one, plain, heads := dialURL(t, url).authenticate(), dialURL(t, url).authenticate(), dialURL(t, url).authenticate()
	plain.ask(`{"id":1,"method":"watch_sessions"}`, `"sessions":[]`)
	heads.ask(`{"id":1,"method":"watch_sessions","params":{"heads":true}}`, `"sessions":[]`)
	argv, err := json.Marshal([]string{"sh", "-c", askingChild})
	if err != nil {
		t.Fatal(err)
	}
	one.ask(`{"id":1,"method":"start_session","params":{"sessionId":"s","adapter":"pi","argv":`+string(argv)+`}}`, `"sessionId":"s"`)
	plain.until(`"status":"waiting"`)
	one.pending("s", 2)
	one.respond(`"interactionId":"1.q1","outcome":"allow"`, `"sent"`)
	one.respond(`"interactionId":"1.q2","outcome":"answer","value":"a"`, `"sent"`)
	plain.until(`"status":"idle"`)

	one.start("chatty")
	plain.until(`"id":"chatty"`)
	began := time.Now()
	for range 200 {
		one.ask(`{"id":1,"method":"send","params":{"sessionId":"chatty","command":1}}`, `"sent"`)
	}
	n := heads.until(`"id":"chatty"`)
	one.ask(`{"id":1,"method":"stop_session","params":{"sessionId":"chatty"}}`, `"stopped"`)
	n += heads.until(`"status":"ended"`)
	if most := 10 + 4*int(time.Since(began)/time.Second+1); n > most {
		t.Errorf("%d notifications, want at most %d", n, most)
	}
	if n := plain.until(`"status":"ended"`); n > 2 {
		t.Errorf("%d notifications without heads", n)
	}
}
