// Package badinput sends what no client should: at least a hundred distinct inputs
// of each class to each listener. None may crash the server, make it grow without
// bound or disturb another connection, and each is answered by a named error or a
// close that says why.
package badinput
