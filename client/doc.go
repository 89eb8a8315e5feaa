// Package client is the Go client of rejoin's native protocol: it dials,
// authenticates, asks, sends commands and follows sessions, and it survives what
// happens to a link in between.
//
// # What it owns
//
//   - Client: requests over one connection that is dialled again whenever it is
//     lost, with exponential back-off and full jitter (backoff.go). Call asks
//     once; Retry and the command methods ask again until there is an answer, the
//     latter always under the same command id, so that a command takes effect at
//     most once (I-B1) however often the link breaks.
//   - Subscription: the events of one session, in order, each once, or a snapshot
//     that covers what is missing (I-J4). It checks that seq is dense on every
//     event, resumes by (epoch, seq) after a loss, and never skips.
//
// A Subscription has a connection of its own. It stops reading when its consumer
// does, which is the back-pressure the server knows how to handle: a slow reader
// gets later events, never a hole. On a connection shared with requests that
// would delay their answers.
//
// # Several servers
//
// A client may know several servers of the same sessions. One that fails, or says
// that it drains, goes behind the others, for all links of the client
// (servers.go); what a draining server names is tried first. A request that was
// sent before stays where it is until its answer comes; what follows, and every
// subscription, goes on elsewhere, from the cursor it has reached.
//
// # Liveness
//
// After 30 s without a byte the reader of a link sends a ping and gives the server
// 10 s to say anything; whatever arrives ends that wait (pulse.go). The clock runs
// only while the reader waits for bytes, so a slow consumer is never mistaken
// for a dead peer, and it belongs to one connection, so a late pong cannot end the
// next one. The answer to a ping names the head of a subscription; when that is
// ahead of what arrived and nothing follows for 10 s, the link is dropped and the
// subscription resumes.
//
// # What it does not do
//
// It keeps no event, folds no state, and decides nothing about sessions. It speaks
// tcp, tls and unix sockets.
//
// # Goroutines
//
// One per Client (connect, read, connect again) and one per Subscription. Close
// ends and waits for them; nothing is left after it.
package client
