package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestMembers(t *testing.T) {
	text := ` { "a" : 1,"b\u0063":[ {"a":2} ] , "":"}" } `
	var got []string
	for m := range protocol.Members([]byte(text)) {
		if whole := text[m.At:m.End]; whole[0] != '"' || !strings.HasSuffix(whole, string(m.Value)) || text[m.ValueAt:m.End] != string(m.Value) {
			t.Errorf("member %s stands in %q", m.Name, whole)
		}
		got = append(got, fmt.Sprintf("%s=%s", m.Name, m.Value))
	}
	if want := `a=1|bc=[ {"a":2} ]|="}"`; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
	for m := range protocol.Members([]byte(`{"a":1,"b":2}`)) {
		if string(m.Name) != "a" {
			t.Errorf("went on with %s", m.Name)
		}
		break
	}
	for _, none := range []string{"", " ", "[]", "1", "{}", " { } ", `{"a"`, `{"a":`, `{"a":,`} {
		for m := range protocol.Members([]byte(none)) {
			t.Errorf("%q has member %s", none, m.Name)
		}
	}
}

// FuzzMembers: the members of a valid object are those that Params finds, and
// each stands where it says.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"\u0061":{"b":[1,2]},"c":"\""}`, `[1]`, `{"a":1,"b":2 }`, `{"é":"\ud83d\ude00"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if protocol.ValidateJSON(b) != nil {
			for range protocol.Members(b) { // not promised anything, but to end
			}
			return
		}
		p, err := protocol.ParseParams(b)
		n := 0
		for m := range protocol.Members(b) {
			n++
			if err != nil {
				t.Fatalf("%q is no object and has member %q", b, m.Name)
			}
			if b[m.At] != '"' || string(b[m.ValueAt:m.End]) != string(m.Value) || protocol.ValidateJSON(m.Value) != nil {
				t.Fatalf("%q: member %q at %d, value %q at %d to %d", b, m.Name, m.At, m.Value, m.ValueAt, m.End)
			}
			if _, ok := p.Raw(string(m.Name)); !ok {
				t.Fatalf("%q: Params has no member %q", b, m.Name)
			}
		}
		if name, extra := p.Unknown(); (n > 0) != extra {
			t.Fatalf("%q: %d members, Params has %q", b, n, name)
		}
	})
}

func TestParamsUnknown(t *testing.T) {
	p := params(t, `{"a":1,"b\u0063":2}`)
	if name, ok := p.Unknown("a"); !ok || name != "bc" {
		t.Errorf("the first unknown of a, bc is %q, %v", name, ok)
	}
	if name, ok := p.Unknown("bc", "a"); ok {
		t.Errorf("%q is unknown", name)
	}
}

// TestEscapes: every escape of a string, and halves of pairs.
func TestEscapes(t *testing.T) {
	p := params(t, `{"all":"\b\f\n\r\t\/\\\"\u00e9\ud83d\ude00","half":"a\ud83d","other":"\ude00b","two":"\ud83d\ud83d\ude00"}`)
	for name, want := range map[string]string{
		"all": "\b\f\n\r\t/\\\"é\U0001f600", "half": "a\uFFFD", "other": "\uFFFDb", "two": "\uFFFD\U0001f600",
	} {
		if got, ok, err := p.String(name); err != nil || !ok || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
}

// TestCutNames: a member that the end of input cuts, at each place.
func TestCutNames(t *testing.T) {
	const whole = `{"a" : 1 , "b" : 2}`
	for i := 1; i < len(whole); i++ {
		if protocol.ValidateJSON([]byte(whole[:i])) == nil {
			t.Errorf("%q is valid", whole[:i])
		}
	}
	for _, bad := range []string{`{1:2}`, `{"a" 1}`, `{"a\q":1}`, `{"a":1,2}`, "{\"a\x01\":1}"} {
		if protocol.ValidateJSON([]byte(bad)) == nil {
			t.Errorf("%q is valid", bad)
		}
	}
}

func TestAppendErrorResolved(t *testing.T) {
	e := protocol.Errorf(protocol.ReasonAlreadyResolved, "the question is answered")
	e.ResolvedBy, e.Outcome = "ann", "allow"
	got := string(protocol.AppendError(nil, protocol.RawJSON("3"), e))
	if want := `"resolvedBy":"ann","outcome":"allow"`; !strings.Contains(got, want) {
		t.Errorf("%s lacks %s", got, want)
	}
}
