// Package arch holds the tree to what docs/ARCHITECTURE.md, docs/protocol.md and
// CONTRIBUTING.md say of it: imports run one way, every promise has its test,
// every reason its row and every limit its figure.
package arch
