package gateway

import (
	"context"

	"rejoin/protocol"
)

func listWorkers(ctx context.Context, c *conn, r *request) (reply, error) {
	list, err := c.srv.workers.Workers(ctx, r.who)
	if err != nil {
		return reply{}, err
	}
	return encode(orEmpty(list))
}

func drainWorker(ctx context.Context, c *conn, r *request) (reply, error) {
	id, ok, err := r.params.String("worker")
	if err == nil && (!ok || id == "") {
		err = protocol.Required("worker")
	}
	if err != nil {
		return reply{}, err
	}
	var d protocol.DrainParams
	if d.Undo, _, err = r.params.Bool("undo"); err != nil {
		return reply{}, err
	}
	if d.Move, _, err = r.params.Bool("move"); err != nil {
		return reply{}, err
	}
	info, err := c.srv.workers.DrainWorker(ctx, r.who, id, d)
	if err != nil {
		return reply{}, err
	}
	return encode(info)
}
