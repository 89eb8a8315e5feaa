// Package attach runs rejoin attach on a pseudo terminal and looks at its screen.
package attach
