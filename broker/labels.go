package broker

import (
	"maps"
	"slices"
	"strings"

	"rejoin/protocol"
)

// validLabels reports what is wrong with labels that a session demands of its
// worker, or a worker has.
func validLabels(labels map[string]string) error {
	if len(labels) > protocol.LabelsMax {
		return invalid("labels must be at most %d", protocol.LabelsMax).Met("LabelsMax")
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !protocol.ValidLabel(name, labels[name]) {
			return invalid("label %q is not a name and a value of at most %d printable ASCII characters without = and ,", name, protocol.LabelBytesMax).Met("LabelBytesMax")
		}
	}
	return nil
}

// mergeLabels adds what a start demands to what its agent's configuration does,
// which it cannot take back.
func mergeLabels(agent, start map[string]string) (map[string]string, error) {
	if err := validLabels(start); err != nil {
		return nil, err
	}
	if len(agent)+len(start) == 0 {
		return nil, nil
	}
	out := maps.Clone(agent)
	if out == nil {
		out = make(map[string]string, len(start))
	}
	for name, value := range start {
		if is, ok := agent[name]; ok && is != value {
			return nil, invalid("the agent is configured to run where %s=%s", name, is)
		}
		out[name] = value
	}
	return out, nil
}

// labelList is labels as people write them.
func labelList(labels map[string]string) string {
	out := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, ", ")
}
