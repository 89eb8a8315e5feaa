// Package gatewaytcp carries the core's frames over byte streams: TCP, TLS,
// Unix sockets and stdin/stdout. It owns listening, accepting, handshakes,
// keepalive and line framing, and knows nothing of what the lines mean.
//
// Goroutines: Listener.Serve accepts on its caller's goroutine and starts one
// per connection, which it waits for. A stdio pipe has one that reads.
package gatewaytcp
