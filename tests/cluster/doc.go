// Package cluster runs the journal over real NATS servers, one alone and three in
// a cluster, and takes them away: killed, stopped in order, frozen, one by one and
// in pairs.
package cluster
