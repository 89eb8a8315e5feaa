// Package guard looks at the boot guard from outside: stores written by the real
// server are damaged, and started again.
package guard
