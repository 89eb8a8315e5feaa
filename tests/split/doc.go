// Package split runs the roles as processes of their own: the whole system as
// deploy/local-cluster.sh starts it, with the seeds that `rejoin nats-config` wrote, and
// single roles that must refuse to start.
package split
