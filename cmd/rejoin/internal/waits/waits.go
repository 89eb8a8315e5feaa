// Package waits finds out why a session waits for the server's journal. It is the
// command line's: events do not tell it, because there are none while it lasts.
package waits

import (
	"context"
	"encoding/json"
	"time"

	"rejoin/client"
	"rejoin/protocol"
)

// every is how often the server is asked.
const every = 3 * time.Second

// Watch calls tell when the reason why a session waits changes; it is empty while
// the session does not wait, as at first. It returns when ctx ends. What the
// server answers else, or that it does not, is the subscription's business.
func Watch(ctx context.Context, c *client.Client, session string, tell func(why string)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for was := ""; ; {
		if why, ok := ask(ctx, c, session); ok && why != was {
			was = why
			tell(why)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func ask(ctx context.Context, c *client.Client, session string) (why string, ok bool) {
	raw, err := c.Call(ctx, "get_session", map[string]string{"sessionId": session})
	if err != nil {
		return "", false
	}
	var info protocol.SessionInfo
	if json.Unmarshal(raw, &info) != nil {
		return "", false
	}
	return info.Blocked, true
}
