// Package encryption looks at an encrypted data directory: what can be read in it
// without the key, and what becomes of it with a wrong one.
package encryption
