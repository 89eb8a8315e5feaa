// Package natsconf starts real nats-servers with what `rejoin nats-config` wrote, and
// tries what each seed may do there.
package natsconf
