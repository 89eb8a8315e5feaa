package client

import (
	"context"
	"encoding/json"
	"fmt"

	"rejoin/protocol"
)

// readEventsParams of read_events.
type readEventsParams struct {
	SessionID string         `json:"sessionId"`
	After     protocol.Seq   `json:"after"`
	Epoch     protocol.Epoch `json:"epoch,omitempty"`
}

// ReadEvents reads events of a session behind after, in order and without a hole: as
// many as one page of the server holds, at least one where there is one. Epoch, if it is
// not empty, must be the log's. Like Retry it asks again for as long as that may help.
// Errors: an *RPCError, whose Next says where to go on if the log cannot be read there,
// ErrClosed, the end of ctx.
func (c *Client) ReadEvents(ctx context.Context, session string, after protocol.Seq, epoch protocol.Epoch) ([]Event, error) {
	raw, err := c.Retry(ctx, "read_events", readEventsParams{session, after, epoch})
	if err != nil {
		return nil, err
	}
	var page struct {
		Events []json.RawMessage `json:"events"`
		Epoch  protocol.Epoch    `json:"epoch"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return nil, fmt.Errorf("%w: %w", errShape, err)
	}
	events := make([]Event, len(page.Events))
	for i, object := range page.Events {
		if events[i], err = decodeEvent(object); err != nil {
			return nil, err
		}
		events[i].Epoch = page.Epoch
	}
	return events, nil
}
