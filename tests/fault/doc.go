// Package fault is where the split system is broken: three NATS servers, two
// brokers, two workers and two gateways, real processes each on a host of its own,
// of which each can be killed, stopped, frozen and cut off while sessions print and
// clients of both gateways read and send. tests/model judges what everybody saw.
package fault
