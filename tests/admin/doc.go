// Package admin looks at metrics, health and profiles of a server from outside.
package admin
