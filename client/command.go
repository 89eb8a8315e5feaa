package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"rejoin/protocol"
)

// SendOptions of a command. The zero value is fine.
type SendOptions struct {
	// CommandID names the command; the same id never takes effect twice. Empty:
	// one is minted.
	CommandID string
	// Expect is what the session must be like at admission.
	Expect protocol.Expect
	// OnRetry, when set, is told why the command is sent again, before the wait for
	// that. It runs in the caller's goroutine.
	OnRetry func(error)
}

// Send gives a session's child a command: any JSON value that its adapter takes.
// It asks again, under the same command id, until there is an answer that is not
// retryable or ctx ends; a lost link or an unknown outcome does not make it happen
// twice. While this client has a subscription of the session, the command expects
// that subscription's epoch, so that a server which lost its memory refuses a
// second attempt. Errors are those of Call, without ErrLost.
func (c *Client) Send(ctx context.Context, session string, command json.RawMessage, opts SendOptions) (protocol.SendResult, error) {
	if len(command) == 0 {
		return protocol.SendResult{}, fmt.Errorf("client: send: no command")
	}
	return c.command(ctx, "send", session, map[string]any{"command": command}, opts)
}

// Prompt gives a session's agent a text, in whatever form its adapter has for it.
// For the rest it is like Send.
func (c *Client) Prompt(ctx context.Context, session, text string, opts SendOptions) (protocol.SendResult, error) {
	return c.command(ctx, "prompt", session, map[string]any{"text": text}, opts)
}

// Steer tells a session's agent something while it works. For the rest it is like Send.
func (c *Client) Steer(ctx context.Context, session, text string, opts SendOptions) (protocol.SendResult, error) {
	return c.command(ctx, "steer", session, map[string]any{"text": text}, opts)
}

// FollowUp tells a session's agent what comes after its present work. For the
// rest it is like Send.
func (c *Client) FollowUp(ctx context.Context, session, text string, opts SendOptions) (protocol.SendResult, error) {
	return c.command(ctx, "follow_up", session, map[string]any{"text": text}, opts)
}

// Interrupt ends what a session's agent is doing. With Expect.Turn it cannot hit a
// later turn. For the rest it is like Send.
func (c *Client) Interrupt(ctx context.Context, session string, opts SendOptions) (protocol.SendResult, error) {
	return c.command(ctx, "interrupt", session, map[string]any{}, opts)
}

// Respond answers an interaction: outcome is one of protocol.RespondAllow,
// RespondDeny, RespondAnswer, RespondCancel; value is the answer's JSON value, or
// nil. An *RPCError with code protocol.CodeAlreadyResolved says that somebody was
// faster, and its Resolved who. For the rest it is like Send.
func (c *Client) Respond(
	ctx context.Context, session, interaction, outcome string, value json.RawMessage, opts SendOptions,
) (protocol.SendResult, error) {
	params := map[string]any{"interactionId": interaction, "outcome": outcome}
	if len(value) > 0 {
		params["value"] = value
	}
	return c.command(ctx, "respond", session, params, opts)
}

func (c *Client) command(ctx context.Context, method, session string, params map[string]any, opts SendOptions) (protocol.SendResult, error) {
	if opts.CommandID == "" {
		opts.CommandID = NewCommandID()
	}
	if opts.Expect.Epoch == nil {
		opts.Expect.Epoch = c.epochOf(session)
	}
	params["sessionId"], params["commandId"] = session, opts.CommandID
	if opts.Expect != (protocol.Expect{}) {
		params["expect"] = opts.Expect
	}
	var r protocol.SendResult
	raw, err := encode(params)
	if err != nil {
		return r, err
	}
	result, err := c.retry(ctx, method, raw, opts.OnRetry)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return r, fmt.Errorf("client: answer of %s: %w", method, err)
	}
	return r, nil
}

// NewCommandID returns a fresh command id.
func NewCommandID() string { return "c-" + strings.ToLower(rand.Text()) }

// epochOf is the epoch in which a subscription of this client reads the session.
func (c *Client) epochOf(session string) *protocol.Epoch {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		if s.session == session {
			if e := s.epoch.Load(); e != nil {
				return e
			}
		}
	}
	return nil
}
