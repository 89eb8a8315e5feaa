// Package realpi finds the pi that tests/pi/install.sh installs, and prepares a
// home for it in which the model is a mockmodel. It starts no goroutine.
package realpi
