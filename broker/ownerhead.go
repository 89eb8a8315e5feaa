package broker

import (
	"context"

	"rejoin/journal"
	"rejoin/protocol"
)

// OwnerHead returns where a session's log ends by the word of its live owner; live is
// false when nobody owns it, or the owner does not answer. What the owner has not
// stored yet counts. The floor is not told.
func (b *Broker) OwnerHead(ctx context.Context, p Principal, session string) (at journal.Position, live bool, err error) {
	rec, err := b.find(ctx, p, session)
	if err != nil || !owned(rec) {
		return at, false, err
	}
	reply, err := b.ask(ctx, rec.Owner, infoTimeout, request(protocol.OpInfo, rec.Key()))
	if err != nil {
		return at, false, nil //nolint:nilerr // an owner that does not answer says nothing
	}
	for _, info := range reply.Infos {
		if info.Workspace == rec.Workspace && info.ID == rec.ID && info.Run >= rec.Run {
			return journal.Position{Epoch: info.Epoch, Head: info.Head}, true, nil
		}
	}
	return at, false, nil
}
