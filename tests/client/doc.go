// Package client tests the Go client against real servers that are killed and
// started again under it.
package client
