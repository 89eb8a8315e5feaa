// Package security tries, from outside, what a token must not be able to do.
package security
