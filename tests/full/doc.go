// Package full fills the disk under a running server, makes its writes fail, and
// takes shards of its journal to their limits: what is refused says why, what
// runs goes on, and afterwards nothing is missing and nothing came twice.
package full
