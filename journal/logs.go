package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Logs returns every log that has a record, in no order, with how many messages
// it holds. It is for starts: it asks the server for all subjects.
// Errors: ErrUnavailable, ctx's.
func (n *Node) Logs(ctx context.Context) (map[Log]uint64, error) {
	out := make(map[Log]uint64)
	for shard := range n.format.Shards {
		if err := n.logsOf(ctx, shard, out); err != nil {
			return nil, fmt.Errorf("list the logs of %s: %w", shardStream(shard), err)
		}
	}
	return out, nil
}

func (n *Node) logsOf(ctx context.Context, shard int, out map[Log]uint64) error {
	stream := shardStream(shard)
	return eachSubject(ctx, n.read, stream, subjectPrefix(stream)+">", func(subject string, messages uint64) {
		if k, ok := keyOf(subject); ok {
			out[Log{Key: k, Shard: shard}] = messages
		}
	})
}

// eachSubject visits, in no order, every subject of a stream that filter takes,
// with how many messages it has. It asks for a page at a time: meanwhile subjects
// may come and go. Errors: ErrUnavailable, ctx's.
func eachSubject(ctx context.Context, nc *nats.Conn, stream, filter string, visit func(subject string, messages uint64)) error {
	for seen := 0; ; {
		var info struct {
			Error *apiError `json:"error"`
			Total int       `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		if err := askAPI(ctx, nc, "STREAM.INFO."+stream, fmt.Appendf(nil, `{"subjects_filter":%q,"offset":%d}`, filter, seen), &info); err != nil {
			return err
		}
		if info.Error != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, info.Error)
		}
		for subject, messages := range info.State.Subjects {
			visit(subject, messages)
		}
		if seen += len(info.State.Subjects); len(info.State.Subjects) == 0 || seen >= info.Total {
			return nil
		}
	}
}

// askAPI puts a request to JetStream and decodes the answer. Errors:
// ErrUnavailable, ctx's; what the answer says is the caller's.
func askAPI(ctx context.Context, nc *nats.Conn, what string, req []byte, answer any) error {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(within, "$JS.API."+what, req)
	if err != nil {
		return unavailable(ctx, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// LostTail reports whether unsettled damage may have taken the newest records of
// a log: it names the log, or it reached the end of the log's shard and the log
// was not settled, that is at rest, before.
func (n *Node) LostTail(l Log, settled bool) bool {
	for _, d := range n.Damage() {
		for _, s := range d.Sessions {
			if s.Before == 0 && s.Log() == l {
				return true
			}
		}
		for _, s := range d.Streams {
			if s.AtEnd && !settled && s.Stream == shardStream(l.Shard) {
				return true
			}
		}
	}
	return false
}
