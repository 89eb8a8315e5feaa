package broker

import (
	"strings"
	"testing"

	"rejoin/protocol"
)

func worker(id string, load, capacity int, labels ...string) candidate {
	m := make(map[string]string)
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		m[name] = value
	}
	return candidate{protocol.WorkerEntry{ID: id, Owner: protocol.OwnerName(id, "1"), Labels: m, Capacity: capacity}, load}
}

func TestRank(t *testing.T) {
	draining, lost, left := worker("d", 0, 9), worker("x", 0, 9), worker("y", 0, 9)
	draining.Draining, lost.Lost, left.Left = true, true, true
	for _, c := range []struct {
		name   string
		all    []candidate
		labels map[string]string
		host   string
		want   string // ids in order, or the error's message
	}{
		{"least load for its size", []candidate{worker("a", 2, 4), worker("b", 3, 10), worker("c", 1, 2)}, nil, "", "b a c"},
		{"more room at the same load", []candidate{worker("a", 0, 4), worker("b", 0, 8)}, nil, "", "b a"},
		{"by id at last", []candidate{worker("b", 1, 4), worker("a", 1, 4)}, nil, "", "a b"},
		{"the host first", []candidate{worker("a", 0, 4), worker("b", 3, 4)}, nil, "b", "b a"},
		{"not when it is full", []candidate{worker("a", 0, 4), worker("b", 4, 4)}, nil, "b", "a"},
		{"all labels", []candidate{worker("a", 0, 4, "repo=a"), worker("b", 0, 4, "repo=a", "cpu=arm"), worker("c", 0, 4, "repo=b", "cpu=arm")}, map[string]string{"repo": "a", "cpu": "arm"}, "c", "b"},
		{"an empty value is one", []candidate{worker("a", 0, 4), worker("b", 0, 4, "gpu=")}, map[string]string{"gpu": ""}, "", "b"},
		{"only those that are there", []candidate{draining, lost, left, worker("a", 0, 1)}, nil, "d", "a"},
		{"none", nil, nil, "", "no worker is running; ask again"},
		{"none with them", []candidate{worker("a", 0, 1)}, map[string]string{"repo": "a", "b": "c"}, "", "no worker with label b=c, repo=a is running"},
		{"none but one that takes no new ones", []candidate{draining, lost}, nil, "", "every worker that could run this is draining"},
		{"none with them but others that drain", []candidate{draining}, map[string]string{"repo": "a"}, "", "no worker with label repo=a is running"},
		{"all of them full", []candidate{worker("a", 1, 1), draining}, nil, "", "every worker that could run this is full: 1 sessions in all"},
		{"no bound told", []candidate{worker("a", 9, 0)}, nil, "", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := rank(c.all, c.labels, c.host)
			if err != nil {
				if err.Message != c.want || !err.Retryable {
					t.Errorf("refused: %+v, want %q", err, c.want)
				}
				return
			}
			var ids []string
			for _, w := range got {
				ids = append(ids, w.ID)
			}
			if s := strings.Join(ids, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}
