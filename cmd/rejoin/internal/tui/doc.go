// Package tui is attach on a terminal: a session's transcript as it grows, the
// questions its agent asks, what waits for the agent, and a line to speak to it.
//
// It shows what the events of a subscription add up to (package view) and keeps
// nothing of its own but what the user has paged back to, at most olderMax items.
// Whatever comes from the session is made printable before it is drawn.
//
// Goroutines: Run starts one that reads the subscription and one that tells of
// its link, and waits for both. Bubble Tea has its own, one per request in work,
// which end with Run's context.
package tui
