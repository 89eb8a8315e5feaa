package broker

import (
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestLabels(t *testing.T) {
	many := make(map[string]string)
	for i := range protocol.LabelsMax + 1 {
		many[strings.Repeat("a", i+1)] = "x"
	}
	long := strings.Repeat("x", protocol.LabelBytesMax+1)
	for name, bad := range map[string]map[string]string{
		"many": many, "no name": {"": "x"}, "long name": {long: "x"}, "long value": {"a": long},
		"comma": {"a": "x,y"}, "equals": {"a=b": "x"}, "blank": {"a": "x y"}, "not ASCII": {"ä": "x"},
	} {
		err := validLabels(bad)
		e, ok := protocol.AsError(err)
		if !ok || e.Reason != protocol.ReasonInvalidParams || e.Limit == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(many, "a")
	if err := validLabels(many); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	if err := validLabels(map[string]string{long[1:]: long[1:], "a": ""}); err != nil {
		t.Errorf("as long as may be: %v", err)
	}
	got, err := mergeLabels(map[string]string{"repo": "a", "cpu": "arm"}, map[string]string{"repo": "a", "disk": "ssd"})
	if s := labelList(got); err != nil || s != "cpu=arm, disk=ssd, repo=a" {
		t.Errorf("merged: %s, %v", s, err)
	}
	if _, err := mergeLabels(map[string]string{"repo": "a"}, map[string]string{"repo": "b"}); err == nil {
		t.Error("a start takes the agent's label back")
	}
	if got, err := mergeLabels(nil, nil); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}
