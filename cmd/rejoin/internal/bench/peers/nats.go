package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"path/filepath"

	"rejoin/cmd/rejoin/internal/bench"
)

const (
	natsHello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\nPING\r\n"
	natsPong  = "PONG\r\n"

	natsConfig      = "listen: \"ADDRESS\"\nping_interval: \"10m\"\nmax_connections: 65536\nlog_file: \"DIR/log\"\n"
	jetStreamConfig = natsConfig + "jetstream { store_dir: \"DIR/js\", max_mem: 1G, max_file: 20G }\n"
)

func natsPub(subject, reply string) func(dst, line []byte) []byte {
	return func(dst, line []byte) []byte {
		dst = fmt.Appendf(dst, "PUB %s %s%d\r\n", subject, reply, len(line))
		return append(append(dst, line...), '\r', '\n')
	}
}

// startNATS runs nats-server without a store: who is not there gets nothing.
func startNATS(ctx context.Context, o *options, _ string) (bench.Target, func() error, error) {
	s, stop, err := run(ctx, o, filepath.Join(o.bin, "nats-server"), natsConfig)
	if err != nil {
		return nil, nil, err
	}
	s.make = func(ctx context.Context, name string) (*stream, error) {
		c, _, err := dial(ctx, s.address, step{natsHello, natsPong})
		if err != nil {
			return nil, err
		}
		st := &stream{subscribe: func(ctx context.Context, _ int64) (net.Conn, []byte, error) {
			return dial(ctx, s.address, step{natsHello, natsPong}, step{"SUB ev." + name + " 1\r\nPING\r\n", natsPong})
		}}
		st.send, st.close = publisher(c, natsPub("ev."+name, ""))
		return st, nil
	}
	return s, stop, nil
}

// startJetStream runs nats-server with a file store; every observer is a push
// consumer without acknowledgements.
func startJetStream(ctx context.Context, o *options, _ string) (bench.Target, func() error, error) {
	s, stop, err := run(ctx, o, filepath.Join(o.bin, "nats-server"), jetStreamConfig)
	if err != nil {
		return nil, nil, err
	}
	s.make = func(ctx context.Context, name string) (*stream, error) {
		body := fmt.Sprintf(`{"name":"%s","subjects":["ev.%s"],"storage":"file","num_replicas":1,"retention":"limits","discard":"old"}`, name, name)
		c, _, err := dial(ctx, s.address, step{natsHello, natsPong}, step{
			fmt.Sprintf("SUB r.%s 1\r\nPUB $JS.API.STREAM.CREATE.%s r.%s %d\r\n%s\r\n", name, name, name, len(body), body), `"created"`,
		}, step{"SUB a." + name + " 2\r\nPING\r\n", natsPong})
		if err != nil {
			return nil, err
		}
		st := &stream{subscribe: func(ctx context.Context, after int64) (net.Conn, []byte, error) {
			in := "i." + rand.Text()
			body := fmt.Sprintf(`{"stream_name":"%s","config":{"deliver_subject":"%s.d","deliver_policy":"by_start_sequence","opt_start_seq":%d,"ack_policy":"none","replay_policy":"instant","mem_storage":true,"num_replicas":1,"inactive_threshold":30000000000}}`, name, in, after+1)
			return dial(ctx, s.address, step{natsHello, natsPong}, step{
				fmt.Sprintf("SUB %s.d 1\r\nSUB %s.r 2\r\nPUB $JS.API.CONSUMER.CREATE.%s %s.r %d\r\n%s\r\n", in, in, name, in, len(body), body), `"created"`,
			})
		}}
		st.send, st.close = publisher(c, natsPub("ev."+name, "a."+name+" "))
		return st, nil
	}
	return s, stop, nil
}
