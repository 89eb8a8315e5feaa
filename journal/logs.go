package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"rejoin/protocol"
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
	for seen := 0; ; {
		subjects, total, err := n.subjects(ctx, shardStream(shard), subjectPrefix(shardStream(shard))+">", seen)
		if err != nil {
			return err
		}
		for subject, count := range subjects {
			token := strings.Split(subject, ".")
			if sessionSubject(subject) {
				out[Log{Key: protocol.Key{Workspace: token[2], Session: token[3]}, Shard: shard}] = count
			}
		}
		if seen += len(subjects); len(subjects) == 0 || seen >= total {
			return nil
		}
	}
}

// subjects returns one page of a stream's subjects and how many there are.
func (n *Node) subjects(ctx context.Context, stream, filter string, offset int) (map[string]uint64, int, error) {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	m, err := n.read.RequestWithContext(within, "$JS.API.STREAM.INFO."+stream, fmt.Appendf(nil, `{"subjects_filter":%q,"offset":%d}`, filter, offset))
	if err != nil {
		return nil, 0, unavailable(ctx, err)
	}
	var info struct {
		Error *apiError `json:"error"`
		Total int       `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if info.Error != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnavailable, info.Error)
	}
	return info.State.Subjects, info.Total, nil
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
