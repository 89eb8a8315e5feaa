// Package broker tests the broker on a real journal, with a worker on the bus
// that has no children: what it does, and when it dies, is the test's to say.
package broker
